"""Latency and throughput of `emads serve`: many callers send cases, each waits for its decision.

    emads serve scripted
    python -m benchmarks.serving.load http://127.0.0.1:8400 --count 256 --at-once 64

Every call sends a case of its own key. Refused calls (429) wait as they are told and ask again.
"""

import argparse
import asyncio
import time
from pathlib import Path

import openai

CASE = Path(__file__).parents[2] / "examples/card-payments.yaml"


async def measure(url: str, model: str | None, count: int, at_once: int, token: str) -> list[float]:
    """Return the seconds of each decision."""
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=20, timeout=600)
    chosen = model or (await client.models.list()).data[0].id
    text, places = CASE.read_text(), asyncio.Semaphore(at_once)

    async def decide(number: int) -> float:
        message = f"# call {number}\n{text}"
        async with places:
            start = time.perf_counter()
            await client.chat.completions.create(
                model=chosen, messages=[{"role": "user", "content": message}]
            )
            return time.perf_counter() - start

    return await asyncio.gather(*(decide(number) for number in range(count)))


def main() -> None:
    """Print one row of a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model")
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--token", default="none")
    given = parser.parse_args()
    start = time.perf_counter()
    seconds = sorted(asyncio.run(measure(given.url, given.model, given.count, given.at_once, given.token)))
    wall_s = time.perf_counter() - start
    half, most = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.95)]
    print("| decisions | callers | p50 s | p95 s | decisions/s |\n|---:|---:|---:|---:|---:|")
    print(f"| {given.count} | {given.at_once} | {half:.2f} | {most:.2f} | {given.count / wall_s:.1f} |")


if __name__ == "__main__":
    main()
