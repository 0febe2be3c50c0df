"""GRPO against SFT where demonstrations are few and verified cases are free, at equal compute.

    python -m benchmarks.roles.demonstration_budget --out runs/budget --role cto --budget 1000
    python -m benchmarks.roles.demonstration_budget --out runs/budget --seeds 0 1 2 --set grpo.max_steps=120

Every role is fine-tuned on so many demonstrations, then goes on from there in three ways: SFT over the same
demonstrations again, SFT on own answers of full reward beside them, GRPO. Each learns from as many
transcripts. All are scored on the same sealed scenarios at temperature 1; changes are paired by scenario,
with intervals over seeds and scenarios and Holm-corrected permutation tests over all rows. What is done is
kept in --out.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from emads.commands.stages import base_task, evaluate_role_task, grpo_task, sft_control_task, sft_task
from evaluation.scoring.scores import RoleScores, read_scores
from evaluation.stats.effects import detectable_change, detectable_over_seeds, is_claimed
from evaluation.stats.intervals import holm, paired_permutation_p
from evaluation.stats.over_seeds import seeded_interval
from roles.registry import ROLES
from training.config.loading import load_config
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages.evaluation import scores_path
from training.stages.order import ROLE_CONTROLS

ARMS = ("sft", *ROLE_CONTROLS, "grpo")
COMPARISONS = tuple(("grpo", before) for before in ARMS[:-1])
Cell = tuple[str, int]  # role, demonstrations


def open_run(options: argparse.Namespace, budget: int, seed: int) -> Run:
    """The run of this budget and seed; its settings are the config's, else."""
    changes = [*options.set, f"data.num_demonstrations={budget}", f"seed={seed}", f"data.seed={seed}"]
    config = load_config(options.config, changes)
    path = options.out / f"budget-{budget}" / f"seed-{seed}"
    return Run.create(path, config, resume=path.exists())


def list_tasks(run: Run, roles: Sequence[str]) -> Iterator[Task]:
    """All arms of these roles, and their scores."""
    yield base_task(run)
    for role in roles:
        yield sft_task(run, role)
        yield grpo_task(run, role, after=(f"sft/{role}",))
        for stage in ROLE_CONTROLS:
            yield sft_control_task(run, stage, role, after=(f"sft/{role}",))
        for stage in ARMS:
            yield evaluate_role_task(run, stage, role, after=(f"{stage}/{role}",))


def read_rewards(run: Run, stage: str, role: str) -> tuple[float, ...]:
    """The stored rewards at temperature 1."""
    (found,) = read_scores(scores_path(run, f"evaluate/{stage}/{role}"))
    assert isinstance(found, RoleScores)
    return found.sampled


def print_levels(cells: dict[Cell, dict[str, list[tuple[float, ...]]]]) -> None:
    print("| role | demonstrations | " + " | ".join(ARMS) + " |\n|---|---:" + "|---:" * len(ARMS) + "|")
    for (role, budget), arms in cells.items():
        means = [f"{statistics.fmean(map(statistics.fmean, arms[arm])):.3f}" for arm in ARMS]
        print(f"| {role} | {budget} | " + " | ".join(means) + " |")


def print_changes(cells: dict[Cell, dict[str, list[tuple[float, ...]]]]) -> None:
    rows = {
        (role, budget, after, before): [
            [a - b for a, b in zip(later, earlier, strict=True)]
            for later, earlier in zip(arms[after], arms[before], strict=True)
        ]
        for (role, budget), arms in cells.items()
        for after, before in COMPARISONS
    }
    flat = {key: [value for of_seed in changes for value in of_seed] for key, changes in rows.items()}
    p = holm({str(key): paired_permutation_p(values, [0.0] * len(values)) for key, values in flat.items()})
    print("\n| role | demonstrations | paired change | reward | by seed | p (Holm) | detectable |")
    print("|---|---:|---|---|---|---:|---:|")
    for (role, budget, after, before), changes in rows.items():
        key = (role, budget, after, before)
        interval = seeded_interval(changes)
        detectable = (
            detectable_over_seeds(interval.low, interval.high, len(changes))
            if len(changes) > 1
            else detectable_change(flat[key], [0.0] * len(flat[key]))
        )
        change = {
            "mean": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "p": p[str(key)],
            "detectable": detectable,
        }
        star = " *" if is_claimed(change) else ""
        seeds = ", ".join(f"{statistics.fmean(of_seed):+.3f}" for of_seed in changes)
        shown = "-" if detectable is None else f"{detectable:.3f}"
        print(
            f"| {role} | {budget} | {after} - {before} | {interval.mean:+.3f} "
            f"[{interval.low:+.3f}, {interval.high:+.3f}]{star} | {seeds} | {p[str(key)]:.4f} | {shown} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--role", choices=ROLES, action="append", help="repeatable; all roles by default")
    parser.add_argument("--budget", type=int, action="append", help="repeatable; 250, 1000, 4000 by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--config", type=Path, default=None, help="of every run; the demo's by default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    quiet_libraries()
    roles, budgets = options.role or list(ROLES), options.budget or [250, 1000, 4000]
    cells: dict[Cell, dict[str, list[tuple[float, ...]]]] = {}
    for budget in budgets:
        for seed in options.seeds:
            run = open_run(options, budget, seed)
            title = f"{budget} demonstrations, seed {seed}"
            run_tasks(
                list(list_tasks(run, roles)),
                num_workers=options.workers,
                num_threads=1,
                title=title,
                prepare=quiet_libraries,
            )
            for role in roles:
                arms = cells.setdefault((role, budget), {arm: [] for arm in ARMS})
                for arm in ARMS:
                    arms[arm].append(read_rewards(run, arm, role))
    print_levels(cells)
    print_changes(cells)
    print("\n* claimed: interval apart from 0, p < .05 after Holm, no smaller than detectable")


if __name__ == "__main__":
    main()
