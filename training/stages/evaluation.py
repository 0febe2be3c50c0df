"""The stages `evaluate/...`: scores of a role, of the team and of the baselines on sealed test scenarios."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evaluation.scoring.baselines import score_role_baselines, score_team_baselines
from evaluation.scoring.scores import RoleScores, TeamScores, write_scores
from evaluation.scoring.sealed_plays import NO_REPEATS, Repeats, score_plays, score_role, score_team
from roles.registry import ROLES
from scenarios.base import Scenario, Split
from scenarios.team import TeamScenario
from simulator.records import Episode
from simulator.reward import TeamVerdict
from training.config.run_config import RunConfig
from training.data.demonstrations import role_scenario
from training.models.engine_factory import serve
from training.models.weights import load_team, load_weights
from training.rl.team.governed_play import GovernedPlayer
from training.rl.team.governed_score import GovernedScorer
from training.rl.team.score import reward_team
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import choose_game, make_chat, test_cases, test_difficulties
from training.stages.order import EVALUATED_AFTER, GOVERNED

Scores = RoleScores | TeamScores
NUM_TRIED_CASES = 100  # team cases, the first ones, that are played several times
REPEATED_STAGES = ("grpo", "marl")  # whose team plays some cases several times


def evaluate_once(path: Path, name: str, units: int, score: Callable[[Run], Sequence[Scores]]) -> None:
    """Write the scores of an evaluation and mark it done; one that is done is left as it is."""
    run = Run.open(path)
    if run.is_done(name):
        return
    store_scores(run, name, score(run))
    report_progress(units)


def play_options(run: Run) -> dict[str, Any]:
    """What all evaluated plays of a run share."""
    config = run.config.evaluation
    return {
        "temperature": config.temperature,
        "with_greedy": config.greedy,
        "folder": outcomes_folder(run),
        "block_size": config.block_size,
    }


def evaluate_role(path: Path, stage: str, role: str) -> None:
    """Score one role after one stage on its sealed test scenarios."""

    def score(run: Run) -> list[Scores]:
        count = run.config.evaluation.num_role_scenarios
        return [play_sealed(run, stage, role, count, outcomes_folder(run))]

    evaluate_once(path, f"evaluate/{stage}/{role}", 20, score)


def play_sealed(
    run: Run, stage: str, role: str, num_scenarios: int, folder: Path, split: Split = "test"
) -> RoleScores:
    """Scores of a role after a stage on its first scenarios of a sealed split; `folder` keeps every play."""
    config = run.config
    model, tokenizer = load_weights(run, EVALUATED_AFTER.get(stage, stage), role)
    chat = make_chat(tokenizer, config)
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        return score_role(
            role,
            stage,
            list_test_scenarios(config, role, num_scenarios, split),
            engine=engine,
            chat=chat,
            max_turns=config.grpo.max_turns,
            max_completion_tokens=config.grpo.max_completion_tokens,
            max_failed_calls=config.grpo.max_failed_calls,
            kind=config.grpo.agent,
            style=config.model.prompts,
            **play_options(run) | {"folder": folder},
        )


def evaluate_team(path: Path, stage: str) -> None:
    """Score the team after one stage on the sealed test cases."""

    def score(run: Run) -> list[Scores]:
        config = run.config
        models, tokenizer = load_team(run, EVALUATED_AFTER.get(stage, stage))
        chat = make_chat(tokenizer, config)
        with serve(run, models, stage, end_id=chat.end_id) as engine:
            scores = score_team(
                stage,
                test_cases(config),
                engine=engine,
                chat=chat,
                weights=config.team_reward,
                max_completion_tokens=config.marl.max_completion_tokens,
                rounds=config.marl.rounds,
                repeats=find_repeats(config) if stage in REPEATED_STAGES else NO_REPEATS,
                make_game=choose_game(config),
                **play_options(run),
            )
        return [scores]

    evaluate_once(path, f"evaluate/{stage}/team", 40, score)


def evaluate_governed(path: Path, stage: str) -> None:
    """Score the team after one stage on governed episodes of the sealed test cases."""

    def score(run: Run) -> list[Scores]:
        config, reward = run.config, run.config.team_reward
        models, tokenizer = load_team(run, stage)
        chat, game = make_chat(tokenizer, config), choose_game(config)
        player = GovernedPlayer(config=config.marl, chat=chat, roles=tuple(models), make_game=game)
        scorer = GovernedScorer(weights=reward, reward=reward_team)
        with serve(run, models, stage, end_id=chat.end_id) as engine:

            def play(
                part: Sequence[TeamScenario], temperature: float, first_place: int, stream: str
            ) -> list[tuple[Episode, TeamVerdict]]:
                groups = player.play_once(engine, part, f"{stream}/{temperature}", temperature=temperature)
                scored = [group.report_sets[0].scored[0] for group in scorer.score(groups)]
                return [(one.episode, one.verdict) for one in scored]

            return [score_plays(stage + GOVERNED, test_cases(config), play, **play_options(run))]

    evaluate_once(path, f"evaluate/{stage}{GOVERNED}/team", 40, score)


def evaluate_baselines(path: Path) -> None:
    """Score the baselines of every role and of the team on the same test scenarios."""

    def score(run: Run) -> list[Scores]:
        config, count = run.config, run.config.evaluation.num_role_scenarios
        scores: list[Scores] = []
        for role in ROLES:
            scenarios = list_test_scenarios(config, role, count)
            scores += score_role_baselines(role, scenarios, config.model.prompts)
        return [*scores, *score_team_baselines(test_cases(config), config.team_reward)]

    evaluate_once(path, "evaluate/baselines", 10, score)


def find_repeats(config: RunConfig) -> Repeats:
    """The sealed cases that are played several times, for the chance that all tries succeed."""
    return Repeats(num_tries=config.evaluation.num_tries, num_cases=NUM_TRIED_CASES)


def store_scores(run: Run, name: str, scores: Sequence[Scores]) -> None:
    """Write scores/NAME.jsonl, then mark the evaluation done."""
    target = scores_path(run, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_scores(target, scores)
    run.mark_done(name)


def outcomes_folder(run: Run) -> Path:
    """The folder of every evaluated play of a run."""
    return run.path / "scores" / "outcomes"


def scores_path(run: Run, name: str) -> Path:
    """The file of an evaluation's scores, e.g. scores/sft-cto.jsonl of "evaluate/sft/cto"."""
    return run.path / "scores" / f"{name.removeprefix('evaluate/').replace('/', '-')}.jsonl"


def list_test_scenarios(config: RunConfig, role: str, count: int, split: Split = "test") -> list[Scenario]:
    """The first scenarios of a role in a sealed split."""
    return [
        role_scenario(role, split, config.data.seed, index, test_difficulties(config), config.model.prompts)
        for index in range(count)
    ]
