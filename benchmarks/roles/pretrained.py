"""Single roles of a run through base, SFT, GRPO and sealed tests after each, as a table with intervals.

    python -m benchmarks.roles.pretrained --run runs/smollm2 --config configs/schedules/smollm2.yaml \\
        --role cto --role coo --set sft.max_steps=20 --set evaluation.num_role_scenarios=40

The stages are those of `emads train` and `emads evaluate`, which play all roles; here only those named.
What is done is skipped, a killed stage goes on; `--until sft` stops there. `--log FILE` keeps the metrics.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from evaluation.scoring.outcomes import MODES, StagePlays, read_stage
from evaluation.stats.intervals import Interval, mean_interval, paired_interval
from roles.errors import UserError
from roles.registry import ROLES
from training.config.loading import load_config
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run
from training.stages.evaluation import evaluate_role
from training.stages.table import train_stage

STEPS = ("untrained", "sft", "grpo")
LOGGED = (
    "loss", "kl", "entropy", "grad_norm", "verified", "exact", "feasible", "turns", "own_tokens", "truncated",
    "tool_failures", "groups_with_signal", "groups_left_out", "validation/loss", "surprise",
    "answer_variety", "skipped_steps",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Train what is asked for, then print all that was scored so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--role", action="append", choices=list(ROLES), required=True)
    parser.add_argument("--until", choices=STEPS, default="grpo")
    parser.add_argument("--no-scores", action="store_true", help="train only")
    parser.add_argument("--log", type=Path, help="write the stages' metrics here, one JSON line each")
    options = parser.parse_args(arguments)
    quiet_libraries()
    try:
        run = Run.create(options.run, load_config(options.config, options.set), resume=not options.set)
        train_stage(run.path, "base")
        for role in options.role:
            for step in STEPS[: STEPS.index(options.until) + 1]:
                _perform(run, role, step, with_scores=not options.no_scores)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in _table(run, options.role):
        print(line)
    if options.log:
        _write_log(run, options.log)
    return 0


def _perform(run: Run, role: str, step: str, *, with_scores: bool) -> None:
    """One stage of one role and its sealed test, each in its place of the run; says what it cost."""
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    if step == "sft":
        train_stage(run.path, "sft", role)
    elif step == "grpo":
        train_stage(run.path, "grpo", role)
    _say(f"{step}/{role}", wall_s, cpu_s)
    if with_scores:
        wall_s, cpu_s = time.perf_counter(), _cpu_s()
        evaluate_role(run.path, step, role)
        _say(f"evaluate/{step}/{role}", wall_s, cpu_s)


def _say(name: str, wall_s: float, cpu_s: float) -> None:
    wall_s, cpu_s = time.perf_counter() - wall_s, _cpu_s() - cpu_s
    if cpu_s > 1:
        print(f"{name}: {wall_s:.0f} s, {cpu_s:.0f} CPU-s, {torch.get_num_threads()} threads", flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _table(run: Run, roles: Sequence[str]) -> list[str]:
    lines = [
        "| role | weights | greedy reward | exact, feasible | at temperature 1 | exact, feasible"
        " | gained greedily since the row above |",
        "|---|---|---|---|---|---|---|",
    ]
    for role in roles:
        before: StagePlays | None = None
        for step in STEPS:
            now = read_stage(run.path, step, role)
            if now is None:
                continue
            cells = [
                f"{_show(mean_interval(now.column('reward', mode)))}"
                f" | {_share(now.column('exact', mode))}, {_share(now.column('feasible', mode))}"
                for mode in MODES[::-1]
            ]
            pair = [one.column("reward", "greedy") for one in (now, before or now)]
            gain = _show(paired_interval(*pair), signed=True) if before else ""
            lines.append(f"| {role} | {step} | {' | '.join(cells)} | {gain} |")
            before = now
    return lines


def _show(interval: Interval, *, signed: bool = False) -> str:
    form = "+.3f" if signed else ".3f"
    return f"{interval.mean:{form}} ({interval.low:{form}} to {interval.high:{form}})"


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values)}/{len(values)}"


def _write_log(run: Run, file: Path) -> None:
    """The logged numbers that say how training went, rounded: a file small enough to keep."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        for row in run.read_metrics():
            kept = {k: round(v, 5) for k, v in row.metrics.items() if k in LOGGED or k.startswith("reward/")}
            out.write(json.dumps({"stage": row.stage, "step": row.step, **kept}) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
