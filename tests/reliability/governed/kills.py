"""R7: governed episodes killed at any statement and resumed: the same end, log and effects as undisturbed."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliability.governed.cases import KEY
from reliability.governed.killable_process import Countdown, play
from reliability.governed.traces import TracedEpisode
from reliability.trials import Trial, Trials
from simulator.governance.log import verify_chain
from simulator.governance.runner import open_services

if TYPE_CHECKING:
    from reliability.stages.prepared_runs import PreparedRuns


class Killer:
    """The process whose forks are killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def play(self, path: Path, *, statement: int = 0, delay_s: float = 0.0) -> bool:
        """Play in a process of its own; whether it was killed before its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path} {statement} {delay_s}\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        assert status in (0, signal.SIGKILL), status
        return status != 0


@contextmanager
def start_killer() -> Iterator[Killer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "reliability.governed.killable_process"],
        env={"PYTHONPATH": ":".join(map(str, sys.path)), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Killer(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def summarise(episodes: Sequence[TracedEpisode], path: Path) -> dict[str, Any]:
    """All that must be the same however often the play was killed."""

    async def check() -> None:
        async with open_services(path, key=KEY) as services:
            assert verify_chain(services.log.entries(), head=services.log.head()) is None

    asyncio.run(check())
    timeless = [
        {name: value for name, value in episode.state.items() if name != "__interrupt__"}
        for episode in episodes
    ]
    return {
        "status": [(episode.thread, episode.status, episode.error) for episode in episodes],
        "state": timeless,
        "trace": [episode.trace for episode in episodes],
    }


def measure(path: Path) -> tuple[dict[str, Any], int, float]:
    """The undisturbed end, its number of statements, and its seconds."""
    countdown, start = Countdown(0), time.monotonic()
    episodes = asyncio.run(play(path, countdown))
    return summarise(episodes, path), countdown.count, time.monotonic() - start


def kill_and_resume(
    killer: Killer, path: Path, number: int, undisturbed: tuple[dict[str, Any], int, float]
) -> tuple[str, bool]:
    """Kill at a random statement or moment, then play to the end.

    Returns what differs from the undisturbed play ("" for nothing), and whether the kill came before the end.
    """
    wanted, num_statements, seconds = undisturbed
    rng = random.Random(f"kill/{number}")
    if number % 4:
        was_killed = killer.play(path, statement=rng.randint(1, num_statements))
    else:
        was_killed = killer.play(path, delay_s=rng.uniform(0.01, seconds))
    found = summarise(asyncio.run(play(path, Countdown(0))), path)
    return ", ".join(name for name in wanted if found[name] != wanted[name]), was_killed


def governed_kills(runs: "PreparedRuns", count: int) -> Trials:
    """Yield so many kills, three of four at a random statement, the others at a random moment."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        undisturbed = measure(folder / "undisturbed.db")
        killer = stack.enter_context(start_killer())
        for number in range(count):

            def call(number: int = number) -> str:
                return kill_and_resume(killer, folder / f"{number}.db", number, undisturbed)[0]

            yield Trial(f"{number}", "any statement" if number % 4 else "any time", call)
