"""The learner against TRL's GRPO step on the identical ragged batch.

    python -m benchmarks.learner.step                  # SmolLM2-135M shapes, random weights, CPU, float32
    python -m benchmarks.learner.step --size tiny      # a model of seconds, to see that it works

Every side is a process of its own, so that memory is its own. Tokens per second count the tokens of the rows,
prompts included, once per row on either side, over the process's CPU seconds on one thread, which other work
on the machine hardly moves. Memory is how far the peak grows over what stood before. TRL's time leaves out
its rollout and scoring: forward, loss and backward only, on either side.
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

from benchmarks.learner.rows import GROUP_SIZE, SIZES, make_rows
from benchmarks.learner.trl_step import OURS, largest_gap, run_ours, run_trl


def run_side(arguments: list[str], threads: int) -> dict[str, Any]:
    """One side in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.learner.step", *arguments],
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="smollm2")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trl-rows", type=int, action="append", help="rows per forward pass of TRL")
    parser.add_argument("--side", help="(internal) one side only, as JSON")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.side is None:
        per_forward = options.trl_rows or [GROUP_SIZE, GROUP_SIZE // 4]
        compare(options.size, options.repeats, options.threads, per_forward)
    elif options.side == "trl":
        print(json.dumps(run_trl(options.size, options.rows, options.repeats, options.folder)))
    else:
        print(json.dumps(run_ours(options.size, options.side, options.repeats, options.folder)))


if __name__ == "__main__":
    main()
