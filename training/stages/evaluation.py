"""The stages `evaluate/...`: scores of a role, of the team and of the baselines on sealed test scenarios."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evaluation.scoring.baselines import play_role_baselines, play_team_baselines
from evaluation.scoring.outcomes import (
    BLOCK_SIZE,
    FOLDER,
    TEAM,
    StagePlays,
    describe_episode,
    outcome_path,
    write_outcomes,
)
from evaluation.scoring.sealed_plays import PlayPart, play_stage, solo_player, team_player
from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario, Split, Style
from scenarios.registry import families
from training.config.run_config import RunConfig
from training.data.demonstrations import role_scenario
from training.models.engine_factory import serve
from training.models.weights import BASE, load_team, load_weights
from training.rl.team.play import GovernedPlayer
from training.rl.team.score import TeamScorer
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import choose_game, make_chat, test_cases, test_difficulties

NUM_TRIED_CASES = 100  # team cases, the first ones, that are played several times
REPEATED_STAGES = ("grpo", "marl", "single_sft", "single_grpo")  # whose team plays some cases several times
UNTRAINED = "untrained"  # title of the base's scores
GOVERNED = "_governed"  # ends the title of scores that a stage's team earned in governed episodes
GOVERNED_STAGES = ("grpo", "marl")  # whose teams play them, where joint training does


def evaluate_once(path: Path, name: str, units: int, play: Callable[[Run], object]) -> None:
    """Make the plays of an evaluation and mark it done; one that is done is left as it is."""
    run = Run.open(path)
    if run.is_done(name):
        return
    play(run)
    run.mark_done(name)
    report_progress(units)


def play_sealed(
    run: Run,
    stage: str,
    owner: str,
    scenarios: Sequence[Any],
    play: PlayPart,
    *,
    folder: Path | None = None,
    with_greedy: bool = True,
) -> StagePlays:
    """Play sealed scenarios as the run's config says; `folder` keeps every play (default: the run's own).

    Without `with_greedy` nothing is played greedily, whatever the config says.
    """
    config = run.config.evaluation
    is_repeated = owner == TEAM and stage in REPEATED_STAGES
    return play_stage(
        owner,
        stage,
        scenarios,
        play,
        folder=folder or outcomes_folder(run),
        temperature=config.temperature,
        with_greedy=with_greedy and config.greedy,
        block_size=run.config.rollouts.block_size or BLOCK_SIZE,
        num_tries=config.num_tries if is_repeated else 1,
        num_tried=NUM_TRIED_CASES,
    )


def evaluate_role(path: Path, stage: str, role: str) -> None:
    """Score one role after one stage on its sealed test scenarios."""
    evaluate_once(
        path,
        f"evaluate/{stage}/{role}",
        20,
        lambda run: play_sealed_role(run, stage, role, run.config.evaluation.num_role_scenarios),
    )


def play_sealed_role(
    run: Run, stage: str, role: str, num_scenarios: int, folder: Path | None = None, split: Split = "test"
) -> StagePlays:
    """Play a role after a stage on its first scenarios of a sealed split; `folder` as for `play_solo`."""
    scenarios = list_test_scenarios(run.config, role, num_scenarios, split)
    return play_solo(run, stage, role, scenarios, families(run.config.model.prompts), folder=folder)


def play_solo(
    run: Run,
    stage: str,
    role: str,
    scenarios: Sequence[Scenario],
    families: Mapping[str, Family],
    *,
    roles: Mapping[str, Role] = ROLES,
    folder: Path | None = None,
) -> StagePlays:
    """Play a role, or a solver of tasks, after a stage on scenarios of its family.

    Plays that are kept in a `folder` beside the run's own are sampled alone.
    """
    grpo = run.config.grpo
    model, tokenizer = load_weights(run, weights_of(stage), role)
    chat = make_chat(tokenizer, run.config)
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        play = solo_player(
            role,
            families,
            engine=engine,
            chat=chat,
            max_turns=grpo.max_turns,
            max_completion_tokens=grpo.max_completion_tokens,
            max_failed_calls=grpo.max_failed_calls,
            kind=grpo.agent,
            roles=roles,
        )
        return play_sealed(run, stage, role, scenarios, play, folder=folder, with_greedy=folder is None)


def evaluate_team(path: Path, stage: str) -> None:
    """Score the team after one stage on the sealed test cases."""

    def play(run: Run) -> StagePlays:
        config = run.config
        models, tokenizer = load_team(run, weights_of(stage))
        chat = make_chat(tokenizer, config)
        with serve(run, models, stage, end_id=chat.end_id) as engine:
            play = team_player(
                engine=engine,
                chat=chat,
                weights=config.team_reward,
                max_completion_tokens=config.marl.max_completion_tokens,
                make_game=choose_game(config),
                rounds=config.marl.rounds,
            )
            return play_sealed(run, stage, TEAM, test_cases(config), play)

    evaluate_once(path, f"evaluate/{stage}/team", 40, play)


def evaluate_governed(path: Path, stage: str) -> None:
    """Score the team after one stage on governed episodes of the sealed test cases."""

    def play_all(run: Run) -> StagePlays:
        config, reward = run.config, run.config.team_reward
        models, tokenizer = load_team(run, stage)
        chat, game = make_chat(tokenizer, config), choose_game(config)
        player = GovernedPlayer(config=config.marl, chat=chat, roles=tuple(models), make_game=game)
        scorer = TeamScorer(weights=reward)
        with serve(run, models, stage, end_id=chat.end_id) as engine:

            async def play(
                part: Sequence[Any], temperature: float, first_place: int, stream: str
            ) -> list[Any]:
                stream = f"{stream}/{temperature}"
                groups = await player.play_each(engine, part, stream, temperature=temperature)
                scored = [group.report_sets[0].scored[0] for group in scorer.score(groups)]
                return [
                    describe_episode(case, one.episode, one.verdict)
                    for case, one in zip(part, scored, strict=True)
                ]

            return play_sealed(run, stage + GOVERNED, TEAM, test_cases(config), play)

    evaluate_once(path, f"evaluate/{stage}{GOVERNED}/team", 40, play_all)


def evaluate_baselines(path: Path) -> None:
    """Score the baselines of every role and of the team on the same test scenarios."""

    def play(run: Run) -> None:
        config, count = run.config, run.config.evaluation.num_role_scenarios
        made: dict[str, Mapping[str, Sequence[Any]]] = {}
        for role in ROLES:
            scenarios = list_test_scenarios(config, role, count)
            made[role] = play_role_baselines(role, scenarios, config.model.prompts)
        games = choose_game(config)
        made[TEAM] = play_team_baselines(test_cases(config), config.team_reward, make_game=games)
        for owner, stages in made.items():
            for stage, plays in stages.items():
                write_outcomes(outcome_path(outcomes_folder(run), stage, owner, "sampled"), plays)

    evaluate_once(path, "evaluate/baselines", 10, play)


def weights_of(title: str) -> str:
    """The stage whose weights are scored under a title: the stage of this name, or the base."""
    return BASE if title == UNTRAINED else title


def outcomes_folder(run: Run) -> Path:
    """The folder of every evaluated play of a run."""
    return run.path / FOLDER


def list_test_scenarios(config: RunConfig, role: str, count: int, split: Split = "test") -> list[Scenario]:
    """The first scenarios of a role in a sealed split."""
    return _draw_scenarios(
        role, split, config.data.seed, count, test_difficulties(config), config.model.prompts
    )


@lru_cache(maxsize=2)  # a worker scores a role after several stages
def _draw_scenarios(
    role: str, split: Split, seed: int, count: int, difficulties: tuple[int, ...], style: Style
) -> list[Scenario]:
    return [role_scenario(role, split, seed, index, difficulties, style) for index in range(count)]
