"""Gain of one role from labels, by way of learning, number of labels and kind of reviewer.

    python -m benchmarks.feedback runs/demo --role cto --out feedback.jsonl

A role starts from its SFT weights; simulated reviewers label answers that it sampled. Every way ends in plays
of the same sealed scenarios, and its change from the start is paired by scenario. A line of the file is one
measurement; what it holds is not measured again. `--show` prints the tables alone.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emads.commands.labels import simulate_labels
from evaluation.stats.intervals import paired_interval
from simulator.line_files import LineFile, read_lines
from training.feedback.labels import read_labels
from training.feedback.reviewers import Kind, Reviewer
from training.feedback.reward_model import RewardModel, load_reward_model
from training.feedback.rows import preference_rows
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights, save_weights
from training.runs.run_folder import Run
from training.stages.evaluation import play_sealed
from training.stages.feedback import (
    prepare_stage,
    train_corrections,
    train_ppo,
    train_preferences,
    train_reward,
)
from training.stages.from_config import make_chat
from training.stages.grpo import train_grpo

SOURCE = "sft"
WAYS = ("corrections", "dpo", "kto", "reward+grpo", "reward+ppo")
LABELS: Mapping[str, Kind] = {"corrections": "correction", "kto": "verdict"}
LABEL_STRIDE = 100_000  # scenarios between the labels of two draws
CHECK_FIRST = 900_000  # first scenario of the comparisons on which reward models are checked
NUM_CHECKED = 200


def main() -> None:
    """Measure what is not in the file yet, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--role", default="cto")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--counts", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--reviewers", nargs="+", default=["exact", "noisy:0.1"])
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2], help="independent sets of labels")
    parser.add_argument("--scenarios", type=int, default=400)
    parser.add_argument("--rl-steps", type=int, default=40)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if not options.show:
        quiet_libraries()
        measure_all(Run.open(options.run), options)
    print_tables(read_measurements(options.out))


def measure_all(run: Run, options: argparse.Namespace) -> None:
    """Every cell of the grid that the file lacks."""
    done = {cell_of(one) for one in read_measurements(options.out)}
    start = sample_sealed(run, SOURCE, options)
    for draw in options.draws:
        for count in options.counts:
            for reviewer in options.reviewers:
                cell = {"role": options.role, "count": count, "reviewer": reviewer, "draw": draw}
                todo = [way for way in options.ways if (way, *cell.values()) not in done]
                if not todo:
                    continue
                with tempfile.TemporaryDirectory(prefix="emads-feedback-") as folder:
                    for way in todo:
                        begun = time.monotonic()
                        found = measure(run, way, cell, start, Path(folder), options)
                        seconds = time.monotonic() - begun
                        line = {"way": way, **cell, **found, "seconds": round(seconds, 1)}
                        with LineFile(options.out) as file:
                            file.add(json.dumps(line).encode())
                        print(
                            json.dumps({k: v for k, v in line.items() if k not in ("scores", "curve")}),
                            flush=True,
                        )


def measure(
    run: Run,
    way: str,
    cell: Mapping[str, Any],
    start: Sequence[float],
    folder: Path,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Train a copy of the run in one way and play it; scores, and what is known of the reward model."""
    role, kind = cell["role"], LABELS.get(way, "comparison")
    labels = folder / f"{kind}.jsonl"
    if not labels.exists():
        simulate_labels(
            run,
            role,
            kind,
            Reviewer.parse(cell["reviewer"]),
            stage=SOURCE,
            count=cell["count"],
            out=labels,
            first=cell["draw"] * LABEL_STRIDE,
        )
    copy = copy_run(run, role, folder / way, options.rl_steps, with_model=way == "reward+grpo")
    facts: dict[str, Any] = {}
    settings = [f"source={SOURCE}"]
    if way.startswith("reward"):
        facts = train_judge(run, copy, role, labels, settings)
    stage = {"reward+grpo": "grpo", "reward+ppo": "ppo"}.get(way, way)
    if stage == "grpo":
        train_grpo(copy.path, role)
    else:
        more = [f"max_steps={options.rl_steps}"] if stage == "ppo" else []
        prepare_stage(copy, stage, role, None if stage == "ppo" else labels, settings + more, resume=False)
        trains: Mapping[str, Callable[[], None]] = {
            "corrections": lambda: train_corrections(copy.path, role),
            "dpo": lambda: train_preferences(copy.path, "dpo", role),
            "kto": lambda: train_preferences(copy.path, "kto", role),
            "ppo": lambda: train_ppo(copy.path, role),
        }
        trains[stage]()
    scores = sample_sealed(copy, stage, options)
    change = paired_interval(scores, start)
    return {
        **facts,
        "score": statistics.fmean(scores),
        "change": [change.mean, change.low, change.high],
        "scores": scores,
        "curve": read_curve(copy, f"{stage}/{role}"),
    }


def copy_run(run: Run, role: str, path: Path, steps: int, *, with_model: bool) -> Run:
    """A new run with the role's starting weights; with a reward model GRPO learns from that alone."""
    changes: dict[str, Any] = {"grpo__max_steps": steps}
    if with_model:
        changes |= {"grpo__verifier_weight": 0.0, "grpo__model_weight": 1.0}
    copy = Run.create(path, run.config.changed(**changes))
    model, tokenizer = load_weights(run, SOURCE, role)
    save_weights(copy, SOURCE, role, model, tokenizer, step=0)
    return copy


def train_judge(run: Run, copy: Run, role: str, labels: Path, settings: list[str]) -> dict[str, Any]:
    """Train the role's reward model and check it on comparisons of an exact reviewer on other scenarios."""
    prepare_stage(copy, "reward", role, labels, settings, resume=False)
    train_reward(copy.path, role)
    checked = copy.path / "check.jsonl"
    exact = Reviewer.parse("exact")
    simulate_labels(
        run, role, "comparison", exact, stage=SOURCE, count=NUM_CHECKED, out=checked, first=CHECK_FIRST
    )
    _, tokenizer = load_weights(run, SOURCE, role)
    rows = preference_rows(read_labels(checked), make_chat(tokenizer, run.config))
    judge: RewardModel = load_reward_model(copy, role)
    return {"accuracy": judge.accuracy(rows)}


def sample_sealed(run: Run, stage: str, options: argparse.Namespace) -> list[float]:
    """Verified reward of sampled play on the first sealed scenarios."""
    with tempfile.TemporaryDirectory(prefix="emads-plays-") as folder:
        scores = play_sealed(run, stage, options.role, options.scenarios, Path(folder))
    return [float(value) for value in scores.sampled]


def read_curve(run: Run, stage: str) -> list[list[float]]:
    """Step, mean score of the reward model and mean verified reward of the rollouts of every RL step."""
    rows = [(row.step, row.metrics) for row in run.read_metrics(stage)]
    return [
        [float(step), metrics["reward/model"], metrics["verified"]]
        for step, metrics in rows
        if "reward/model" in metrics
    ]


def read_measurements(path: Path) -> list[dict[str, Any]]:
    """All lines of the file."""
    return [json.loads(line) for line in read_lines(path)]


def cell_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """The cell of the grid that a line measures."""
    return tuple(line[key] for key in ("way", "role", "count", "reviewer", "draw"))


def print_tables(lines: Sequence[Mapping[str, Any]]) -> None:
    """Scores by way, reviewer and number of labels, and the curves of reward models against verifiers."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["role"], line["way"], line["count"], line["reviewer"]), []).append(line)
    print("| role | way | labels | reviewer | draws | sealed score | change from SFT | reward model right |")
    print("|---|---|---:|---|---:|---:|---|---:|")
    for (role, way, count, reviewer), found in sorted(groups.items()):
        change = pool_changes(found)
        accuracies = [one["accuracy"] for one in found if one.get("accuracy") is not None]
        shown = f"{statistics.fmean(accuracies):.2f}" if accuracies else "-"
        score = statistics.fmean(one["score"] for one in found)
        print(f"| {role} | {way} | {count} | {reviewer} | {len(found)} | {score:.3f} | {change} | {shown} |")
    for line in lines:
        if line["curve"]:
            print(f"\n{line['way']}, {line['count']} labels, {line['reviewer']}, draw {line['draw']}:")
            print_curve(line["curve"])


def pool_changes(found: Sequence[Mapping[str, Any]]) -> str:
    """Mean change over draws; with one draw its interval over scenarios, else the range over draws."""
    means = [one["change"][0] for one in found]
    low, high = (found[0]["change"][1:]) if len(found) == 1 else (min(means), max(means))
    return f"{statistics.fmean(means):+.3f} [{low:+.3f}, {high:+.3f}]"


def print_curve(curve: Sequence[Sequence[float]], parts: int = 5) -> None:
    """Means over so many stretches of the steps."""
    print("| steps | reward model | verified |\n|---|---:|---:|")
    for part in range(parts):
        rows = curve[len(curve) * part // parts : len(curve) * (part + 1) // parts]
        if rows:
            judged, verified = (statistics.fmean(row[place] for row in rows) for place in (1, 2))
            print(f"| {rows[0][0]:.0f}-{rows[-1][0]:.0f} | {judged:.3f} | {verified:.3f} |")


if __name__ == "__main__":
    main()
