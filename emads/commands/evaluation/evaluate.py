"""`emads evaluate`: one run or several, their seeds compared, and the gates that people set on numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emads.commands.demo import GATE_FAILURE
from emads.commands.evaluation.evaluate_run import evaluate_run, print_summary
from evaluation.comparison.seeds import (
    compare_seeds,
    read_seed,
    read_seed_comparison,
    seed_comparison_tables,
    write_seed_comparison,
)
from evaluation.summary.details import detail_tables, read_details
from evaluation.summary.gates import Gate, GateRule, check_gate_rules, read_gate_file
from evaluation.summary.run_summary import combine_seeds, read_summary, write_summary
from evaluation.summary.run_table import gate_table
from evaluation.summary.tables import print_tables
from roles.errors import UserError
from training.config.run_config import compute_digest
from training.runs.run_folder import Run


def evaluate_runs(paths: Sequence[Path], *, again: bool = False, gate: Path | None = None) -> int:
    """Evaluate every run, compare several as seeds, check gates.

    Returns: 0, or 3 where a gate of the file is missed.

    Raises:
        UserError: no run there, a gate file with a mistake, no weights.
    """
    rules = read_gate_file(gate) if gate is not None else []
    runs = find_runs(paths)
    for run in runs:
        print_summary(evaluate_run(run.path, again=again))
        print_tables(detail_tables(read_details(run.path)))
    if len(runs) > 1:
        compare_runs(runs)
    return check_run_gates(runs, rules)


def find_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these folders: a run, its further seeds in `seed-N` below it, or a folder of runs.

    Raises:
        UserError: a folder without any run.
    """
    folders: dict[Path, None] = {}
    for path in paths:
        below = sorted(file.parent for file in path.glob("*/config.yaml"))
        is_run = (path / "config.yaml").is_file()
        found = [path, *(one for one in below if one.name.startswith("seed-"))] if is_run else below
        if not found:
            Run.open(path)  # says what is missing
        folders |= dict.fromkeys(found)
    return [Run.open(folder) for folder in folders]


def compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Compare runs of one config as seeds; seed_comparison.json and the joint summary go to the first one.

    Raises:
        UserError: runs whose configs differ in more than seeds, name and keys that change no weights.
    """
    first = runs[0].config
    digest = compute_digest(first)
    for run in runs[1:]:
        data = run.config.data.model_copy(update={"seed": first.data.seed})
        same = run.config.model_copy(update={"seed": first.seed, "name": first.name, "data": data})
        if compute_digest(same) != digest:
            raise UserError(
                f"{run.path} has another config than {runs[0].path}: only seeds of one config are compared"
                " together; evaluate them one by one"
            )
    comparison = compare_seeds(
        [read_seed(run.path, run.config.seed) for run in runs],
        same_scenarios=all(run.config.data == first.data for run in runs),
    )
    write_seed_comparison(runs[0].path, comparison)
    summaries = [read_summary(run.path) for run in runs]
    summaries = [{key: value for key, value in one.items() if key != "seeds"} for one in summaries]
    write_summary(runs[0].path, combine_seeds(summaries))
    print_tables(seed_comparison_tables(comparison))
    return comparison


def check_run_gates(runs: Sequence[Run], rules: Sequence[GateRule]) -> int:
    """Print the gates of every run; 0, or 3 where one is missed."""
    if not rules:
        return 0
    comparison = read_seed_comparison(runs[0].path) if len(runs) > 1 else {}
    gates: list[Gate] = []
    for run in runs:
        numbers = {**read_summary(run.path), "details": read_details(run.path), "seed_comparison": comparison}
        checked = check_gate_rules(rules, numbers)
        prefix = f"{run.path.name}: " if len(runs) > 1 else ""
        gates += [Gate(name=prefix + one.name, passed=one.passed, detail=one.detail) for one in checked]
    print_tables([gate_table([one.as_dict() for one in gates])])
    missed = [gate.name for gate in gates if not gate.passed]
    print(f"gates: {'all green' if not missed else 'RED: ' + ', '.join(missed)}")
    return GATE_FAILURE if missed else 0
