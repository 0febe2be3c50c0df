"""Tokens per second of the vLLM engine on one CUDA device, against the device's measured bandwidth.

    python -m benchmarks.gpu.vllm_engine --shape 3b --in-flight 1,16,64,256

A decode step reads every weight and the keys and values of every call once, so that

    tokens/s <= in_flight * bandwidth / (weight bytes + in_flight * mean context * key-value bytes per token)

The bandwidth is that of a copy on this device (read + write), not the maker's figure. Weights are random:
speed does not depend on them. Five adapters are mixed in every batch; with --base there is none.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.engines.models import SHAPES, load_team, scratch, write_base
from benchmarks.engines.open_engines import open_engine
from benchmarks.engines.workloads import ROLES, Ask, Call, Episode, play_together
from roles.errors import UserError
from simulator.engines.vllm.engine import VLLMEngine


def measure_bandwidth(gibibytes: float = 4.0, repeats: int = 20) -> float:
    """Bytes per second that a large copy moves, reading and writing, median of `repeats`."""
    source = torch.empty(int(gibibytes * 2**30), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    rates = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        rates.append(2 * source.numel() / (start.elapsed_time(end) / 1000))
    del source, target
    torch.cuda.empty_cache()
    return statistics.median(rates[2:])


def roof(shape: str, in_flight: int, context: float, bandwidth: float, bytes_per_number: int = 2) -> float:
    """Tokens per second at which reading weights and keys alone takes all the bandwidth."""
    vocab, hidden, wide, layers, heads, kv_heads, _ = SHAPES[shape]
    head = hidden // heads
    per_layer = hidden * (heads + 2 * kv_heads) * head + heads * head * hidden + 3 * hidden * wide
    weights = (layers * per_layer + vocab * hidden) * bytes_per_number
    per_token = 2 * layers * kv_heads * head * bytes_per_number
    return in_flight * bandwidth / (weights + in_flight * context * per_token)


def measure(engine: VLLMEngine, in_flight: int, args: argparse.Namespace, vocab: int) -> float:
    """Median tokens per second of completions that begin and end together, prompts computed before."""
    rates = []
    for repeat in range(args.repeats + 1):
        generator = torch.Generator().manual_seed(repeat)
        calls = [
            Call(
                role=ROLES[i % len(ROLES)],
                session=f"{repeat}/{i}",
                prompt_ids=tuple(torch.randint(12, vocab, (args.prompt,), generator=generator).tolist()),
                num_tokens=args.tokens,
            )
            for i in range(in_flight)
        ]
        work: list[Episode] = [((call,),) for call in calls]
        first = [
            ((Call(role=c.role, session=c.session, prompt_ids=c.prompt_ids, num_tokens=1),),) for c in calls
        ]
        asyncio.run(play_together(first, Ask(engine)))
        start = time.perf_counter()
        made = asyncio.run(play_together(work, Ask(engine)))
        elapsed = time.perf_counter() - start
        assert made == in_flight * args.tokens
        if repeat:
            rates.append(made / elapsed)
    return statistics.median(rates)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--in-flight", default="1,4,16,64,256")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--base", action="store_true", help="no adapters")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise UserError("this benchmark needs a CUDA device and the CUDA build of vLLM; none is here")
    bandwidth = measure_bandwidth()
    print(f"{torch.cuda.get_device_name()}: {bandwidth / 1e12:.2f} TB/s measured by a copy")
    counts = [int(text) for text in args.in_flight.split(",")]
    folder = scratch()
    try:
        base = write_base(args.shape, folder / "base", torch.bfloat16)
        engine = open_engine(
            base, None if args.base else load_team(base), seats=max(counts), max_model_len=8192
        )
        records = []
        for in_flight in counts:
            rate = measure(engine, in_flight, args, SHAPES[args.shape][0])
            most = roof(args.shape, in_flight, args.prompt + args.tokens / 2, bandwidth)
            records.append({"in_flight": in_flight, "rate": rate, "roof": most})
            print(f"{in_flight:4d} in flight {rate:9.0f} tokens/s, roof {most:9.0f}, {rate / most:6.1%}")
        engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.out is not None:
        args.out.write_text(json.dumps({"shape": args.shape, "bandwidth": bandwidth, "rates": records}))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
