"""Latency and throughput of `emads serve`: many callers wait for their decisions, then for single role calls.

    emads serve runs/demo
    python -m benchmarks.serving.load http://127.0.0.1:8400 --count 64 --at-once 1 --at-once 8 --at-once 64

A decision is a whole case: reports, decision, votes. A role call asks the CTO's weights one question of its
family. Every call has a text of its own. Refused calls (429) wait as they are told and ask again; what gets
no answer is lost.
"""

import argparse
import asyncio
import time
from pathlib import Path

import openai

from scenarios.registry import families

CASE = Path(__file__).parents[2] / "examples/parcel-sorter.yaml"
ROLE = "cto"


async def measure(
    client: openai.AsyncOpenAI, model: str, text: str, count: int, at_once: int
) -> tuple[list[float], int]:
    """Return the seconds of each answered call, and the number of the others."""
    places = asyncio.Semaphore(at_once)

    async def ask(number: int) -> float | None:
        message = f"# call {at_once}.{number}\n{text}"
        async with places:
            start = time.perf_counter()
            try:
                reply = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": message}]
                )
            except openai.OpenAIError as error:
                print(f"lost: {error}")
                return None
            return time.perf_counter() - start if reply.choices[0].message.content else None

    seconds = await asyncio.gather(*(ask(number) for number in range(count)))
    answered = sorted(one for one in seconds if one is not None)
    return answered, count - len(answered)


async def run(given: argparse.Namespace) -> None:
    """Print a row per kind of call and number of callers."""
    client = openai.AsyncOpenAI(base_url=f"{given.url}/v1", api_key=given.token, max_retries=20, timeout=3600)
    name = given.model or (await client.models.list()).data[0].id
    question = families("short")[ROLE].generate("test", 0, 0, 1).brief
    calls = {"decision": (name, given.case.read_text()), "role": (f"{name}/{ROLE}", question)}
    print(
        "| call | callers | calls | lost | p50 s | p95 s | calls/min |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for call in given.call or calls:
        model, text = calls[call]
        for at_once in given.at_once or [1, 8, 64]:
            count = max(given.count if at_once > 1 else given.count // 4, 1)
            start = time.perf_counter()
            seconds, lost = await measure(client, model, text, count, at_once)
            per_minute = 60 * len(seconds) / (time.perf_counter() - start)
            half, most = (seconds[int(len(seconds) * share)] for share in (0.5, 0.95))
            print(
                f"| {call} | {at_once} | {count} | {lost} | {half:.2f} | {most:.2f} | {per_minute:.0f} |",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", help="name of the team (default: the first that the server lists)")
    parser.add_argument("--call", action="append", choices=["decision", "role"], help="default: both")
    parser.add_argument("--case", type=Path, default=CASE)
    parser.add_argument(
        "--count", type=int, default=64, help="calls per row; a single caller makes a quarter"
    )
    parser.add_argument("--at-once", type=int, action="append", help="repeatable (default 1, 8 and 64)")
    parser.add_argument("--token", default="none")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
