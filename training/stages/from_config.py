"""Objects that several stages build from a run's config: chat, engine, team cases, the joint start."""

from functools import partial
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.team import TEAM_ROLES
from scenarios.team import PlanGame, TeamScenario
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from simulator.game import MakeGame
from training.config.data_config import FIRST_MARL_INDEX
from training.config.run_config import RunConfig
from training.data.demonstrations import team_scenario
from training.models.weights import JOINT, Team, load_team, open_start
from training.runs.resume import logged_values
from training.runs.run_folder import Run
from training.stages.order import SOURCE


def make_chat(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> HFChat:
    """The chat that turns this run's transcripts into tokens."""
    return HFChat(tokenizer, short_prompts=config.model.short_prompts)


def choose_game(config: RunConfig) -> MakeGame:
    """The joint game in the style of prompts, and with the questions, that this run trains and plays with."""
    return partial(PlanGame, style=config.model.prompts, questions=config.model.questions)


def team_engine(
    models: Team, tokenizer: PreTrainedTokenizerBase, config: RunConfig, stage: str
) -> TransformersEngine:
    """An engine that serves every role's own weights under the role's name."""
    engine = TransformersEngine(end_id=make_chat(tokenizer, config).end_id, seed=config.seed)
    for role, model in models.items():
        engine.set_policy(role, model, version=f"{role}@{stage}")
    return engine


def load_joint_start(run: Run) -> tuple[dict[str, PreTrainedModel], PreTrainedTokenizerBase]:
    """The team that joint training starts from: after GRPO, or after that of `marl.start_from`.

    Raises:
        UserError: there are no such weights, or as `open_start`.
    """
    folders = joint_start_folders(run)
    runs = {folder: open_start(run, "marl.start_from", folder) for folder in dict.fromkeys(folders.values())}
    sources = {role: (runs[folder], JOINT) for role, folder in folders.items()}
    return load_team(run, SOURCE[JOINT], sources=sources)


def joint_start_folders(run: Run) -> dict[str, str]:
    """The run folder of `marl.start_from` for every role that has one."""
    start = run.config.marl.start_from or {}
    return dict.fromkeys(TEAM_ROLES, start) if isinstance(start, str) else start


def past_own_scores(run: Run, role: str) -> list[float]:
    """A role's own scores in the joint steps that its weights had before this run, oldest first.

    They are the logged ones of the runs that `marl.start_from` names, one after the other, as far back as
    their folders are there.
    """
    past: list[float] = []
    name, seen = f"own_score/{role}", {run.path.resolve()}
    while folder := joint_start_folders(run).get(role):
        if Path(folder).resolve() in seen or not (Path(folder) / "config.yaml").is_file():
            break
        run = Run.open(Path(folder))
        seen.add(run.path.resolve())
        past = [row[name] for row in logged_values(run, JOINT, [name])] + past
    return past


def first_joint_case(run: Run) -> int:
    """Index of a run's first case of joint training: behind those that `marl.start_from` has learnt from."""
    folders = dict.fromkeys(joint_start_folders(run).values())
    ends = (Run.open(Path(one)).read_payload(JOINT).get("next_case", FIRST_MARL_INDEX) for one in folders)
    return max(ends, default=FIRST_MARL_INDEX)


def joint_cases(config: RunConfig, step: int, first_case: int = FIRST_MARL_INDEX) -> list[TeamScenario]:
    """The training cases of one joint step."""
    marl, data = config.marl, config.data
    first = first_case + step * marl.scenarios_per_step
    return [
        team_scenario("train", data.seed, first + i, data.difficulties)
        for i in range(marl.scenarios_per_step)
    ]


def validation_cases(config: RunConfig) -> list[TeamScenario]:
    """Team cases of the validation split, for choosing the best joint step."""
    data = config.data
    return [
        team_scenario("validation", data.seed, index, data.difficulties)
        for index in range(
            config.marl.guards.validation_scenarios if config.marl.guards.validate_every else 0
        )
    ]


def test_difficulties(config: RunConfig) -> tuple[int, ...]:
    """Difficulties of the sealed scenarios."""
    return config.evaluation.difficulties or config.data.difficulties


def test_cases(config: RunConfig) -> list[TeamScenario]:
    """The sealed team cases of a run."""
    return [
        team_scenario("test", config.data.seed, index, test_difficulties(config))
        for index in range(config.evaluation.num_team_scenarios)
    ]
