"""Objects that several stages build from a run's config: chat, engine, team cases, the joint start."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from scenarios.base import Split
from scenarios.team import PlanGame, PlayableCase, TeamScenario
from simulator.engines.embedded.hf_chat import HFChat
from training.config.run_config import FIRST_MARL_INDEX, RunConfig
from training.data.demonstrations import team_scenario
from training.models.weights import JOINT, load_team, open_start
from training.runs.resume import logged_values
from training.runs.run_folder import Run


def make_chat(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> HFChat:
    """The chat that turns this run's transcripts into tokens."""
    return HFChat(tokenizer, short_prompts=config.model.short_prompts)


def choose_game(config: RunConfig) -> Callable[[PlayableCase], PlanGame]:
    """The joint game in the style of prompts, and with the questions, that this run trains and plays with."""
    return partial(PlanGame, style=config.model.prompts, questions=config.model.questions)


def load_joint_start(run: Run, source: str) -> tuple[dict[str, PreTrainedModel], PreTrainedTokenizerBase]:
    """The team that joint training starts from: after stage `source`, or that of `marl.start_from`.

    Raises:
        UserError: there are no such weights, or as `open_start`.
    """
    folder = run.config.marl.start_from
    if folder is None:
        return load_team(run, source)
    return load_team(open_start(run, "marl.start_from", folder), JOINT, model=run.config.model)


def past_own_scores(run: Run, role: str) -> list[float]:
    """A role's own scores in the joint steps that its weights had before this run, oldest first.

    They are the logged ones of the runs that `marl.start_from` names, one after the other, as far back as
    their folders are there.
    """
    past: list[float] = []
    name, seen = f"own_score/{role}", {run.path.resolve()}
    while folder := run.config.marl.start_from:
        if Path(folder).resolve() in seen or not (Path(folder) / "config.yaml").is_file():
            break
        run = Run.open(Path(folder))
        seen.add(run.path.resolve())
        past = [row[name] for row in logged_values(run, JOINT, [name])] + past
    return past


def first_joint_case(run: Run) -> int:
    """Index of a run's first case of joint training: behind those that `marl.start_from` has learnt from."""
    folder = run.config.marl.start_from
    if folder is None:
        return FIRST_MARL_INDEX
    return int(Run.open(Path(folder)).read_payload(JOINT).get("next_case", FIRST_MARL_INDEX))


def _team_cases(config: RunConfig, split: Split, first: int, count: int) -> list[TeamScenario]:
    data = config.data
    levels = test_difficulties(config) if split == "test" else data.difficulties
    return [team_scenario(data, split, first + place, levels) for place in range(count)]


def joint_cases(config: RunConfig, step: int, first_case: int = FIRST_MARL_INDEX) -> list[TeamScenario]:
    """The training cases of one joint step."""
    count = config.marl.scenarios_per_step
    return _team_cases(config, "train", first_case + step * count, count)


def validation_cases(config: RunConfig) -> list[TeamScenario]:
    """Team cases of the validation split, for choosing the best joint step."""
    guards = config.marl.guards
    return _team_cases(config, "validation", 0, guards.validation_scenarios if guards.validate_every else 0)


def test_difficulties(config: RunConfig) -> tuple[int, ...]:
    """Difficulties of the sealed scenarios."""
    return config.evaluation.difficulties or config.data.difficulties


def test_cases(config: RunConfig) -> list[TeamScenario]:
    """The sealed team cases of a run."""
    return _team_cases(config, "test", 0, config.evaluation.num_team_scenarios)
