"""Gain of one role from labels, by way of learning, number of labels and kind of reviewer.

    python -m benchmarks.review.feedback runs/feedback --seeds 0 1 2

Every seed trains a base and the role's SFT of the default config, cut short at `--sft-steps`, into
FOLDER/seed-N; simulated reviewers label answers that it sampled there, each seed others. Every way of
learning starts from these weights and ends in plays of the same sealed scenarios; changes are paired by
scenario. FOLDER/measured.jsonl gets a line per measurement, and what it holds is not measured again; other
SFT steps need another folder. `--show` prints the tables alone.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from emads.commands.review import simulate_labels
from evaluation.stats.intervals import Interval, seeded_interval
from simulator.export.atomic_files import write_atomic
from simulator.line_files import LineFile, read_lines
from training.config.loading import load_config
from training.feedback.labels import read_labels
from training.feedback.reviewers import EXACT, Kind, LabelReviewer
from training.feedback.reward_model import load_reward_model
from training.feedback.rows import preference_rows
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights, save_weights
from training.runs.run_folder import Run
from training.stages.evaluation import play_sealed_role
from training.stages.feedback import prepare_stage
from training.stages.from_config import make_chat
from training.stages.table import train_stage

SOURCE = "sft"
WAYS = ("start", "corrections", "dpo", "reward+grpo", "reward+ppo")
SETTINGS: Mapping[
    str, tuple[str, ...]
] = {  # found on validation cases of seed 0; defaults suit larger models
    "corrections": ("learning_rate=1e-3",),
    "dpo": ("learning_rate=1e-3", "sft_weight=5"),
}
LABEL_STRIDE = 100_000  # scenarios between the labels of two seeds
CHECK_FIRST = 900_000  # first scenario of the comparisons on which reward models are checked
NUM_CHECKED = 200
CELL = ("way", "role", "count", "reviewer", "seed")


def main() -> None:
    """Measure what is not in the file yet, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, help="a model per role; default: the default config")
    parser.add_argument("--role", default="cto")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--counts", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--reviewers", nargs="+", default=["exact", "noisy:0.1"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--sft-steps", type=int, default=200, help="the demo's 800 leave little to teach")
    parser.add_argument("--rl-steps", type=int, default=20)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if not options.show:
        quiet_libraries()
        for seed in options.seeds:
            measure_seed(seed, options)
    print_tables(read_measurements(options.folder))


def measure_seed(seed: int, options: argparse.Namespace) -> None:
    """Every cell of one seed that the file lacks."""
    done = {cell_of(one) for one in read_measurements(options.folder)}
    run: Run | None = None
    for count in options.counts:
        for reviewer in options.reviewers:
            with tempfile.TemporaryDirectory(prefix="emads-feedback-") as scratch:
                for way in options.ways:
                    # the start is the same whatever labels follow: it is measured once
                    labelled = (0, "none") if way == "start" else (count, reviewer)
                    cell = dict(zip(CELL, (way, options.role, *labelled, seed), strict=True))
                    if cell_of(cell) in done:
                        continue
                    run = run or start_run(seed, options)
                    begun = time.process_time()
                    found = measure(run, cell, Path(scratch), options)
                    line = {**cell, **found, "cpu_s": round(time.process_time() - begun, 1)}
                    with LineFile(options.folder / "measured.jsonl") as file:
                        file.add(json.dumps(line).encode())
                    done.add(cell_of(cell))
                    shown = {key: value for key, value in line.items() if key not in ("scores", "curve")}
                    print(json.dumps(shown), flush=True)


def start_run(seed: int, options: argparse.Namespace) -> Run:
    """The seed's run with base and SFT weights of the role; scenarios are the same for every seed."""
    config = load_config(options.config).changed(seed=seed, sft__max_steps=options.sft_steps)
    run = Run.create(options.folder / f"seed-{seed}", config)
    train_stage(run.path, "base")
    train_stage(run.path, "sft", options.role)
    return run


def measure(run: Run, cell: Mapping[str, Any], scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train a copy of the run in one way and play it; scores, and what is known of the reward model."""
    way, role = cell["way"], cell["role"]
    if way == "start":
        return play(run, SOURCE, options)
    labels = find_labels(run, cell, scratch, options)
    facts: dict[str, Any] = {}
    if way.startswith("reward"):
        copy = Run.open(scratch / "reward") if (scratch / "reward").exists() else None
        if copy is None:
            copy = copy_run(run, role, scratch / "reward", options.rl_steps)
            prepare_stage(copy, "reward", role, labels, list_settings("reward"), resume=False)
            train_stage(copy.path, "reward", role)
        facts = {"accuracy": check_reward_model(run, copy, role)}
    else:
        copy = copy_run(run, role, scratch / way, options.rl_steps)
    stage = {"reward+grpo": "grpo", "reward+ppo": "ppo"}.get(way, way)
    if stage == "ppo":
        settings = [*list_settings(stage), f"max_steps={options.rl_steps}"]
        prepare_stage(copy, stage, role, None, settings, resume=False)
    elif stage != "grpo":
        prepare_stage(copy, stage, role, labels, list_settings(stage), resume=False)
    train_stage(copy.path, stage, role)
    return {**facts, **play(copy, stage, options), "curve": read_curve(copy, f"{stage}/{role}")}


def list_settings(stage: str) -> list[str]:
    """Settings of a stage that learns from labels, as `--set` takes them."""
    return [f"source={SOURCE}", *SETTINGS.get(stage, ())]


def find_labels(run: Run, cell: Mapping[str, Any], scratch: Path, options: argparse.Namespace) -> Path:
    """The first labels of the cell's kind and reviewer; all that the seed needs are made at once."""
    kind: Kind = "correction" if cell["way"] == "corrections" else "comparison"
    most = max(options.counts)
    outs = {
        LabelReviewer.parse(one): run.path.with_name(f"{run.path.name}-labels") / f"{kind}-{one}-{most}.jsonl"
        for one in options.reviewers
    }
    missing = {reviewer: path for reviewer, path in outs.items() if not path.exists()}
    if missing:
        first = cell["seed"] * LABEL_STRIDE
        simulate_labels(run, cell["role"], kind, missing, stage=SOURCE, count=most, first=first)
    lines = islice(read_lines(outs[LabelReviewer.parse(cell["reviewer"])]), cell["count"])
    found = scratch / f"{kind}.jsonl"
    write_atomic(found, b"".join(line + b"\n" for line in lines))
    return found


def copy_run(run: Run, role: str, path: Path, steps: int) -> Run:
    """A new run with the role's starting weights, whose GRPO learns from a reward model alone."""
    changes = {"grpo__max_steps": steps, "grpo__model_share": 1.0}
    copy = Run.create(path, run.config.changed(**changes))
    model, tokenizer = load_weights(run, SOURCE, role)
    save_weights(copy, SOURCE, role, model, tokenizer, step=0)
    return copy


def check_reward_model(run: Run, judged: Run, role: str) -> float | None:
    """Accuracy of the role's reward model on comparisons of an exact reviewer on other scenarios."""
    checked = run.path.with_name(f"{run.path.name}-labels") / "check.jsonl"
    if not checked.exists():
        simulate_labels(
            run, role, "comparison", {EXACT: checked}, stage=SOURCE, count=NUM_CHECKED, first=CHECK_FIRST
        )
    _, tokenizer = load_weights(run, SOURCE, role)
    rows = preference_rows(read_labels(checked), make_chat(tokenizer, run.config))
    return load_reward_model(judged, role).accuracy(rows)


def play(run: Run, stage: str, options: argparse.Namespace) -> dict[str, Any]:
    """Verified reward of sampled play on the first sealed scenarios, and the mean of greedy play."""
    with tempfile.TemporaryDirectory(prefix="emads-plays-") as folder:
        plays = play_sealed_role(run, stage, options.role, options.scenarios, Path(folder))
    sampled = [round(float(value), 6) for value in plays.column("reward")]
    return {
        "score": statistics.fmean(sampled),
        "greedy": statistics.fmean(plays.column("reward", "greedy")),
        "scores": sampled,
    }


def read_curve(run: Run, stage: str) -> list[list[float]]:
    """Step, mean score of the reward model and mean verified reward of the rollouts of every RL step."""
    rows = [(row.step, row.metrics) for row in run.read_metrics(stage)]
    return [
        [float(step), metrics["reward/model"], metrics["verified"]]
        for step, metrics in rows
        if "reward/model" in metrics
    ]


def read_measurements(folder: Path) -> list[dict[str, Any]]:
    """All lines of the file."""
    return [json.loads(line) for line in read_lines(folder / "measured.jsonl")]


def cell_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """The cell of the grid that a line measures."""
    return tuple(line[key] for key in CELL)


def print_tables(lines: Sequence[Mapping[str, Any]]) -> None:
    """Scores by way, reviewer and number of labels, and the curves of reward models against verifiers."""
    starts = {(one["role"], one["seed"]): one for one in lines if one["way"] == "start"}
    for (role, seed), one in starts.items():
        print(f"{role}, seed {seed}, before: {one['score']:.3f} sampled, {one['greedy']:.3f} greedy")
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in lines:
        if one["way"] != "start":
            key = (one["role"], WAYS.index(one["way"]), one["count"], one["reviewer"])
            groups.setdefault(key, []).append(one)
    print(
        "\n| role | way | labels | reviewer | sampled | change | of each seed | greedy change"
        " | reward model right |"
    )
    print("|---|---|---:|---|---:|---:|---:|---:|---:|")
    for (role, way, count, reviewer), found in sorted(groups.items()):
        before = [starts[role, one["seed"]] for one in found]
        change = find_change(found, before)
        greedy = statistics.fmean(
            one["greedy"] - two["greedy"] for one, two in zip(found, before, strict=True)
        )
        accuracies = [one["accuracy"] for one in found if one.get("accuracy") is not None]
        shown = f"{statistics.fmean(accuracies):.2f}" if accuracies else "-"
        score = statistics.fmean(one["score"] for one in found)
        seeds = " ".join(
            f"{one['score'] - two['score']:+.3f}" for one, two in zip(found, before, strict=True)
        )
        print(
            f"| {role} | {WAYS[way]} | {count} | {reviewer} | {score:.3f} |"
            f" {change:+.3f} | {seeds} | {greedy:+.3f} |"
            f" {shown} |"
        )
    for (role, way, count, reviewer), found in sorted(groups.items()):
        if found[0].get("curve"):
            print(f"\n{role}, {WAYS[way]}, {count} labels, {reviewer}, mean of {len(found)} seeds:")
            print_curve([one["curve"] for one in found])


def find_change(found: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> Interval:
    """Mean change paired by scenario, with its interval over seeds and scenarios."""
    changes = [
        [after - start for after, start in zip(one["scores"], two["scores"], strict=True)]
        for one, two in zip(found, before, strict=True)
    ]
    return seeded_interval(changes, same_scenarios=True)


def print_curve(curves: Sequence[Sequence[Sequence[float]]], parts: int = 5) -> None:
    """Means over the seeds and over so many stretches of the steps."""
    print("| steps | reward model | verified |\n|---|---:|---:|")
    num_steps = min(map(len, curves))
    for part in range(parts):
        places = range(num_steps * part // parts, num_steps * (part + 1) // parts)
        if places:
            means = [
                statistics.fmean(curve[at][column] for curve in curves for at in places) for column in (1, 2)
            ]
            print(f"| {places[0] + 1}-{places[-1] + 1} | {means[0]:.3f} | {means[1]:.3f} |")


if __name__ == "__main__":
    main()
