"""What an evaluated run keeps beside its scores: every play as a row, details, a single-agent baseline."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from evaluation.scoring.scores import read_scores
from evaluation.scoring.sealed_plays import score_episodes
from evaluation.scoring.single_agent import play_alone
from evaluation.summary.details import OUTCOMES_FOLDER, build_details, read_outcomes, write_details
from evaluation.summary.plays_table import flatten, write_results
from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.engines.embedded.engine import TransformersEngine
from simulator.records import Episode
from training.models.weights import load_weights
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.evaluation import store_scores
from training.stages.from_config import make_chat, test_cases

SINGLE, STAGE = "single_trained", "marl"  # ReconcileGPT after joint training, alone, with all facts


def evaluate_single(path: Path) -> None:
    """Score the jointly trained ReconcileGPT as a single agent with every seat's facts and tools."""
    run = Run.open(path)
    name = f"evaluate/{SINGLE}/team"
    if run.is_done(name):
        return
    config = run.config
    model, tokenizer = load_weights(run, STAGE, RECONCILER)
    chat = make_chat(tokenizer, config)
    engine = TransformersEngine(end_id=chat.end_id, seed=config.seed)
    engine.set_policy(RECONCILER, model, version=f"{RECONCILER}@{STAGE}")

    def play(part: Sequence[TeamScenario], temperature: float, first_place: int) -> list[Episode]:
        return play_alone(
            part,
            engine=engine,
            chat=chat,
            temperature=temperature,
            max_completion_tokens=config.marl.max_completion_tokens,
            stream=f"evaluate/{SINGLE}",
            style=config.model.prompts,
            first_place=first_place,
        )

    scores = score_episodes(
        SINGLE,
        test_cases(config),
        play,
        weights=config.team_reward,
        folder=run.path / OUTCOMES_FOLDER,
    )
    store_scores(run, name, [scores])
    report_progress(20)


def store_details(run: Run) -> None:
    """Write details.json, results.jsonl and results.parquet from the run's outcomes."""
    outcomes = read_outcomes(run.path)
    write_details(run.path, build_details(outcomes, num_bootstrap=run.config.evaluation.num_bootstrap))
    write_results(run.path, flatten(run.config.name, run.config.seed, outcomes))


def forget_scores(run: Run) -> None:
    """Drop every score and play of the run, so that all is played again; weights stay."""
    for folder in (run.path / "scores", run.path / "stages" / "evaluate"):
        shutil.rmtree(folder, ignore_errors=True)


def forget_scores_without_plays(run: Run) -> None:
    """Drop the marks of evaluations whose plays are not all stored (older versions kept scores alone)."""
    for mark in sorted((run.path / "stages" / "evaluate").glob("*/*.json")):
        stage, owner = mark.parent.name, mark.stem
        scored = read_scores(run.path / "scores" / f"{stage}-{owner}.jsonl")[0]
        plays = run.path / OUTCOMES_FOLDER / f"{stage}-{owner}.greedy.jsonl"
        if not plays.is_file() or plays.read_bytes().count(b"\n") < len(scored.greedy):
            mark.unlink()
