"""R7: kill -9 anywhere, take up again: the same end, the same log, no effect twice and none lost.

The full battery: python tests/simulator/governance/test_durability.py 300
"""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from governed_child import Countdown, play
from governed_tables import KEY

from simulator.governance.runner import GovernedEpisode, open_office
from simulator.governance.store.decision_log import verify_chain

NUM_KILLS = 20
ROOT = Path(__file__).parent.parent.parent.parent


class Killer:
    """The process whose forks are killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def play(self, path: Path, *, statement: int = 0, delay_s: float = 0.0, checkpoints: str = "") -> bool:
        """Play in a process of its own; whether it was killed before its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path} {statement} {delay_s} {checkpoints}\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        assert status in (0, signal.SIGKILL), status
        return status != 0


@contextmanager
def start_killer() -> Iterator[Killer]:
    program = str(ROOT / "tests" / "support" / "governed_child.py")
    process = subprocess.Popen(
        [sys.executable, program],
        cwd=ROOT,
        env={
            "PYTHONPATH": ":".join(map(str, [ROOT, ROOT / "tests" / "support", *sys.path])),
            "PATH": "/usr/bin:/bin",
        },
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


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with start_killer() as started:
        yield started


def summarise(episodes: Sequence[GovernedEpisode], path: Path) -> dict[str, Any]:
    """All that must be the same however often the play was killed."""

    async def read() -> dict[str, Any]:
        async with open_office(path, key=KEY) as office:
            assert verify_chain(office.log.entries(), head=office.log.head()) is None
            tables = {
                table: sorted(
                    map(repr, office.connection.execute(f"SELECT {columns} FROM {table}").fetchall())
                )
                for table, columns in (
                    ("deliveries", "*"),
                    ("commits", "thread, digest, attempt"),
                    ("precedents", "thread, body"),
                    ("effects", "*"),
                )
            }
            tables["nonces"] = [str(office.connection.execute("SELECT count(*) FROM nonces").fetchone()[0])]
        return dict(tables)

    timeless = [
        {name: value for name, value in episode.state.items() if name not in ("ruling", "__interrupt__")}
        for episode in episodes
    ]
    return {
        "status": [(episode.thread, episode.status, episode.error) for episode in episodes],
        "state": timeless,
        "trace": [episode.trace for episode in episodes],
        "tables": asyncio.run(read()),
    }


def measure(path: Path, checkpoints: str | None = None) -> tuple[dict[str, Any], int, float]:
    """The undisturbed end, its number of statements, and its seconds."""
    countdown, start = Countdown(0), time.monotonic()
    episodes = asyncio.run(play(path, countdown, checkpoints))
    return summarise(episodes, path), countdown.count, time.monotonic() - start


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, float]:
    return measure(tmp_path_factory.mktemp("calm") / "store.db")


def kill_and_resume(killer: Killer, path: Path, number: int, calm: tuple[dict[str, Any], int, float]) -> bool:
    """Kill at a random statement or moment, then play to the end; whether the kill came before that."""
    wanted, num_statements, seconds = calm
    rng = random.Random(f"kill/{number}")
    if number % 4:
        was_killed = killer.play(path, statement=rng.randint(1, num_statements))
    else:
        was_killed = killer.play(path, delay_s=rng.uniform(0.01, seconds))
    assert summarise(asyncio.run(play(path, Countdown(0))), path) == wanted
    return was_killed


def test_the_undisturbed_play_has_everything_in_it(undisturbed: tuple[dict[str, Any], int, float]) -> None:
    calm, num_statements, _ = undisturbed
    kinds = [kind for trace in calm["trace"] for _, kind, _ in trace]
    assert {"requested", "rejected", "committed", "executed", "observed", "replanned", "closed"} <= set(kinds)
    assert num_statements > 500
    assert [status for _, status, _ in calm["status"]] == ["handed_over", "completed"]


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_killed_anywhere_it_ends_the_same(
    number: int, killer: Killer, undisturbed: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    kill_and_resume(killer, tmp_path / "store.db", number, undisturbed)


def test_killed_again_and_again_it_ends_the_same(
    killer: Killer, undisturbed: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    """Every life is long enough for one more step only."""
    path, num_kills = tmp_path / "store.db", 0
    wanted, num_statements, _ = undisturbed
    while killer.play(path, statement=150):
        num_kills += 1
        assert num_kills < num_statements
    assert num_kills >= 4
    assert summarise(asyncio.run(play(path, Countdown(0))), path) == wanted


def main(num_kills: int) -> None:
    """The full battery on the command line."""
    folder = Path(tempfile.mkdtemp(prefix="emads-kills-"))
    calm = measure(folder / "calm.db")
    with start_killer() as killer:
        hits = sum(kill_and_resume(killer, folder / f"{n}.db", n, calm) for n in range(num_kills))
    shutil.rmtree(folder)
    print(f"{num_kills} plays, {hits} killed before their end, all of them ended the same")


if __name__ == "__main__":
    main(int(sys.argv[1]))
