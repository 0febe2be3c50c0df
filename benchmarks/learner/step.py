"""The learner against TRL's GRPO step on the identical ragged batch, and five roles in one pass against five.

    python -m benchmarks.learner.step                  # SmolLM2-135M shapes, random weights, CPU, float32
    python -m benchmarks.learner.step --size tiny      # a model of seconds, to see that it works

Every side is a process of its own, so that memory is its own; the ways of going through five roles take
turns in one. Tokens per second count the tokens of the rows, prompts included, once per row on either side,
over the process's CPU seconds on one thread, which other work on the machine hardly moves. Memory is how far
the peak grows over what stood before. TRL's time leaves out its rollout and scoring: forward, loss and
backward only, on either side. Several threads, two ranks and the handing on of weights go by the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.learner.ranks import run_ranks
from benchmarks.learner.roles import WAYS, run_roles, run_sync
from benchmarks.learner.rows import GROUP_SIZE, SIZES, make_rows
from benchmarks.learner.trl_step import OURS, largest_gap, run_ours, run_trl


def run_side(arguments: list[str], threads: int, ranks: int = 1) -> dict[str, Any]:
    """One side in a process of its own, or in several."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmarks.learner.step", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def compare(size: str, repeats: int, threads: int, per_forward: Sequence[int]) -> None:
    """All sides one after the other, as a table; both ratios are to the first of TRL."""
    rows = make_rows(size)
    tokens = sum(len(row.token_ids) for row in rows)
    print(f"{len(rows)} rows, {tokens} tokens, {size}, float32, {threads} threads\n")
    print("| step | tokens/s | times TRL's | peak growth (MiB) | TRL's over it | largest gradient gap |")
    print("|---|---:|---:|---:|---:|---:|")
    common = ["--size", size, "--repeats", str(repeats)]
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        found = {}
        for count in per_forward:
            side = ["--side", "trl", "--rows", str(count), "--folder", scratch]
            found[f"TRL, {count} rows per forward"] = run_side([*common, *side], threads)
        base = found[f"TRL, {per_forward[0]} rows per forward"]
        for name in OURS:
            found[name] = run_side([*common, "--side", name, "--folder", scratch], threads)
            found[name]["gap"], largest = largest_gap(Path(scratch))
    for name, one in found.items():
        gap = f"{one['gap']:.1e} of {largest:.1e}" if "gap" in one else ""
        print(
            f"| {name} | {tokens / one['seconds']:.0f} | {base['seconds'] / one['seconds']:.2f} |"
            f" {one['growth'] / 2**20:.0f} | {base['growth'] / one['growth']:.2f} | {gap} |"
        )


def compare_roles(size: str, repeats: int, threads: int, shapes: Sequence[tuple[int, int]]) -> None:
    """Five roles' adapters in one pass against five passes, for (groups, rows of a group) per role."""
    print(f"\n| five roles, {size}, {threads} threads | way | tokens/s | over padded | over same layout |")
    print("|---|---|---:|---:|---:|")
    for groups, group_size in shapes:
        side = ["--side", "roles", "--groups", str(groups), "--group-size", str(group_size)]
        found = run_side(["--size", size, "--repeats", str(repeats), *side], threads)
        seconds = found["seconds"]
        for way in WAYS:
            ratios = [f"{seconds[base] / seconds[way]:.2f}" for base in WAYS[:2]]
            print(f"| {groups} x {group_size} rows | {way} | {found['tokens'] / seconds[way]:.0f} |", end="")
            print(f" {ratios[0]} | {ratios[1]} |")


def compare_sync(size: str, threads: int) -> None:
    """Time and memory of handing a step's weights on."""
    found = run_side(["--size", size, "--side", "sync"], threads)
    print(f"\n{size}, milliseconds: " + ", ".join(f"{name} {ms:.1f}" for name, ms in found.items()))


def compare_ranks(size: str, repeats: int, threads: int) -> None:
    """One process against two, each on so many threads."""
    common = ["--size", size, "--repeats", str(repeats), "--side", "ranks"]
    one, two = (run_side(common, threads, ranks) for ranks in (1, 2))
    print(
        f"\nTeam step, {size}: {one['seconds']:.3f} s on one rank, {two['seconds']:.3f} s on two:"
        f" {one['seconds'] / two['seconds']:.2f} times as fast; exchange of gradients {two['exchange']:.4f} s"
    )


PARTS = ("trl", "roles", "sync", "ranks")
SHAPES = ((1, 4), (1, 8), (2, 4))  # groups and rows of a group that a role has in a step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="smollm2")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--trl-rows", type=int, action="append", help="rows per forward pass of TRL")
    parser.add_argument("--side", help="(internal) one side only, as JSON")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.side is None:
        parts, sizes = options.part or PARTS, (options.size, options.repeats, options.threads)
        if "trl" in parts:
            compare(*sizes, options.trl_rows or [GROUP_SIZE, GROUP_SIZE // 4])
        if "roles" in parts:
            compare_roles(*sizes, SHAPES)
        if "sync" in parts:
            compare_sync(options.size, options.threads)
        if "ranks" in parts:
            compare_ranks(*sizes)
    elif options.side == "trl":
        print(json.dumps(run_trl(options.size, options.rows, options.repeats, options.folder)))
    elif options.side == "sync":
        print(json.dumps(run_sync(options.size)))
    elif options.side == "ranks":
        print(json.dumps(run_ranks(options.size, options.repeats)))
    elif options.side == "roles":
        print(json.dumps(run_roles(options.size, options.groups, options.group_size, options.repeats)))
    else:
        print(json.dumps(run_ours(options.size, options.side, options.repeats, options.folder)))


if __name__ == "__main__":
    main()
