"""Files of an evaluated run beside its scores: every play as a row, and details."""

import shutil

from evaluation.scoring.scores import read_scores
from evaluation.summary.details import OUTCOMES_FOLDER, build_details, read_outcomes, write_details
from evaluation.summary.plays_table import flatten, write_results
from training.runs.run_folder import Run


def store_details(run: Run) -> None:
    """Write details.json, results.jsonl and results.parquet from the run's outcomes."""
    outcomes = read_outcomes(run.path)
    write_details(run.path, build_details(outcomes))
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
