"""Tokens per second of one and of two `vllm serve` replicas behind our client, same calls, same machine.

    python -m benchmarks.engines.replicas --shape tiny --episodes 16 [--out FILE.jsonl]

On a machine whose cores one replica fills, two gain nothing: the figure says what routing costs there.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from benchmarks.engines.models import RANK, SHAPES, load_team, scratch, write_base, write_tokenizer
from benchmarks.engines.workloads import ROLES, Ask, expected_tokens, joint_episodes, play_together
from simulator.engines.vllm.serve_command import SERVER_VARIABLES, server_command
from simulator.engines.vllm.server_client import VLLMServerEngine


def start_server(base: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server process on a free port of the loopback, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"host": "127.0.0.1", "max_lora_rank": RANK}
    command = server_command(base, port=port, on_cpu=True, options=options)
    process = subprocess.Popen(
        command,
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        env={**os.environ, **SERVER_VARIABLES, "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1"},
        start_new_session=True,
    )
    return process, f"http://127.0.0.1:{port}"


def wait_for(url: str, timeout_s: float = 600.0) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"{url} does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = scratch()
    base = write_base(args.shape, folder / "base")
    write_tokenizer(base, SHAPES[args.shape][0])  # servers answer nothing without one
    team = load_team(base)
    started: list[tuple[subprocess.Popen[bytes], str]] = []
    try:
        for number in range(2):  # one after the other: each takes all cores while it starts
            started.append(start_server(base, folder / f"{number}.log"))
            wait_for(started[-1][1])
        work = joint_episodes(
            args.episodes, vocab=SHAPES[args.shape][0], prompt=args.prompt, mean_tokens=args.tokens
        )
        rates: dict[int, list[float]] = {1: [], 2: []}
        engines = {}
        for count in rates:
            engines[count] = VLLMServerEngine([url for _, url in started[:count]], end_id=None)
            for role in ROLES:
                engines[count].set_policy(role, team, version=f"{role}@{count}", adapter=role)
        for repeat in range(args.repeats + 1):
            for count, engine in engines.items():
                start = time.perf_counter()
                made = asyncio.run(play_together(work, Ask(engine)))
                assert made == expected_tokens(work)
                if repeat:
                    rates[count].append(made / (time.perf_counter() - start))
        for engine in engines.values():
            engine.close()
    finally:
        for process, _ in started:
            os.killpg(process.pid, 15)
            process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
    for count, values in rates.items():
        rate = statistics.median(values)
        print(f"{count} replicas {rate:9.0f} tokens/s")
        if args.out is not None:
            record = {"part": "scaling", "shape": args.shape, "axis": "replicas", "n": args.repeats}
            with args.out.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({**record, "label": "vllm serve, adapters", "x": count, "rate": rate}) + "\n"
                )


if __name__ == "__main__":
    main()
