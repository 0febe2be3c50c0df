"""Engine benchmarks: the same calls (prompts, lengths, adapters) played in several ways.

    python -m benchmarks.engines.compare joint --shape tiny --episodes 32
    python -m benchmarks.engines.compare tools | refresh | scaling [--shape 135m] [--out FILE.jsonl]

`--engine transformers` plays joint, tools and scaling on the embedded engine; refresh is vLLM's.

Work equality is asserted before a ratio is printed. Repeats alternate between the ways, so that what disturbs
one disturbs all; medians of the repeats are shown. Completions have fixed lengths (no end token). A shape has
random weights: speed does not depend on them.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.adapter_refresh import run_refresh
from benchmarks.engines.models import SHAPES, load_team, scratch, write_base
from benchmarks.engines.open_engines import Generate, Way, compare, describe, fresh, measured_engine, show
from benchmarks.engines.workloads import (
    LENGTHS,
    Ask,
    Call,
    Episode,
    expected_tokens,
    joint_episodes,
    play_by_role,
    play_in_order,
    play_in_waves,
    play_together,
    play_with_barriers,
    tool_transcripts,
)
from simulator.engines.base import PolicyEngine


def run_joint(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Joint episodes: all at once, one role at a time, with turn barriers, and call by call."""
    base = write_base(args.shape, folder / "base")
    team = load_team(base)
    served = None if args.base else team
    work = joint_episodes(
        args.episodes,
        vocab=SHAPES[args.shape][0],
        prompt=args.prompt,
        mean_tokens=args.tokens,
        lengths=args.lengths,
    )
    few, seats = work[: args.few], args.seats or args.episodes
    with measured_engine(args, base, served, seats=4 * seats) as (engine, forget):
        answer = Ask(engine)
        ways = {
            "ours": fresh(forget, lambda: play_together(work, answer, seats=seats)),
            "one role at a time": fresh(
                forget, lambda: play_in_waves(work, seats, lambda wave: play_by_role(wave, answer))
            ),
            "turn barriers": fresh(
                forget, lambda: play_in_waves(work, seats, lambda wave: play_with_barriers(wave, answer))
            ),
        }
        title = f"joint episodes, {seats} at once, {describe(args)}"
        tokens = expected_tokens(work)
        found = [show(f"{args.episodes} {title}", compare(ways, tokens, args.repeats), tokens)]
        if few:
            generate = Generate(team if served is not None else team.unload(), with_adapters=not args.base)
            ways = {
                "ours": fresh(forget, lambda: play_together(few, answer, seats=seats)),
                "sequential transformers.generate": lambda: asyncio.run(play_in_order(few, generate)),
            }
            tokens = expected_tokens(few)
            found.append(show(f"{len(few)} {title}", compare(ways, tokens, args.repeats), tokens))
    return found


def run_tools(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Transcripts of several turns with a tool after each but the last; barrier loops take --seats each."""
    base = write_base(args.shape, folder / "base")
    work = tool_transcripts(
        args.episodes,
        vocab=SHAPES[args.shape][0],
        prompt=args.prompt,
        mean_tokens=args.tokens,
        turns=args.turns,
        lengths=args.lengths,
    )
    team = None if args.base else load_team(base)
    seats, tool_s = args.seats or args.episodes, args.tool_ms / 1000
    with measured_engine(args, base, team, seats=seats) as (engine, forget):
        answer = Ask(engine)

        def barriers(*, serial: bool) -> Way:
            async def play(wave: Sequence[Episode]) -> int:
                return await play_with_barriers(wave, answer, tool_s=tool_s, serial_tools=serial)

            return fresh(forget, lambda: play_in_waves(work, seats, play))

        ways = {
            "ours": fresh(forget, lambda: play_together(work, answer, tool_s=tool_s, seats=seats)),
            "turn barriers, tools at once": barriers(serial=False),
        }
        if args.tool_ms:
            ways["turn barriers, tools in order"] = barriers(serial=True)
        medians = compare(ways, expected_tokens(work), args.repeats)
    title = f"{args.episodes} transcripts of {args.turns} turns, {seats} at once, {args.tool_ms} ms tool"
    return [show(f"{title}, {describe(args)}", medians, expected_tokens(work))]


def run_scaling(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Tokens per second against calls in flight and against roles."""
    base = write_base(args.shape, folder / "base")
    vocab = SHAPES[args.shape][0]
    found = []
    names = tuple(f"role{i}" for i in range(8))
    team = load_team(base, names)

    def measure(engine: PolicyEngine, roles: Sequence[str], in_flight: int) -> float:
        """Median tokens per second of completions that begin and end together."""
        rates = []
        for repeat in range(args.repeats + 1):
            generator = torch.Generator().manual_seed(repeat)
            calls = [
                Call(
                    role=roles[i % len(roles)],
                    session=f"{repeat}/{i}",
                    prompt_ids=tuple(torch.randint(12, vocab, (args.prompt,), generator=generator).tolist()),
                    num_tokens=args.tokens,
                )
                for i in range(in_flight)
            ]
            work: list[Episode] = [((call,),) for call in calls]
            start = time.perf_counter()
            made = asyncio.run(play_together(work, Ask(engine)))
            if repeat:
                rates.append(made / (time.perf_counter() - start))
            assert made == args.tokens * in_flight
        return statistics.median(rates)

    for weights, adapters in (("base", None), ("adapters", team)):
        label = f"{args.engine}, {weights}"
        seats = max(args.in_flight)
        with measured_engine(args, base, adapters, seats=seats, roles=names) as (engine, _):
            points = [("in_flight", x, names[:5], x) for x in args.in_flight]
            if adapters is not None:
                points += [("roles", x, names[:x], min(64, seats)) for x in (1, 2, 4, 5, 8)]
            for axis, x, roles, in_flight in points:
                rate = measure(engine, roles, in_flight)
                found.append({"axis": axis, "label": label, "x": x, "rate": rate, "n": args.repeats})
                print(f"{label:24s} {x:4d} {axis:9s} {rate:9.0f} tokens/s", flush=True)
    return found


PARTS = {
    "joint": run_joint,
    "tools": run_tools,
    "refresh": run_refresh,
    "scaling": run_scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--engine", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--seats", type=int, help="episodes at once (default: all)")
    parser.add_argument("--few", type=int, default=8, help="episodes also played call by call")
    parser.add_argument("--prompt", type=int, default=96, help="tokens")
    parser.add_argument("--tokens", type=int, default=24, help="mean tokens of a completion")
    parser.add_argument("--lengths", choices=LENGTHS, default="exponential")
    parser.add_argument("--tool-ms", type=int, default=50)
    parser.add_argument("--base", action="store_true", help="all roles on the base, no adapters")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument(
        "--in-flight", type=lambda text: [int(x) for x in text.split(",")], default=[1, 4, 16, 64]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file that results are appended to")
    args = parser.parse_args()
    folder = scratch()
    try:
        found = PARTS[args.part](args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.out is not None:
        with args.out.open("a", encoding="utf-8") as file:
            for record in found:
                file.write(
                    json.dumps({"part": args.part, "shape": args.shape, "engine": args.engine, **record})
                    + "\n"
                )


if __name__ == "__main__":
    main()
