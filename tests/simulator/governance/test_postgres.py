"""Checkpoints in PostgreSQL, on a real server of its own: conformance, kill -9, a server that dies."""

import asyncio
import getpass
import importlib.util
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM, yes_man
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from emads.reliability.governed.cases import KEY, make_seating
from emads.reliability.governed.killable_process import CASES, Countdown, play
from emads.reliability.governed.kills import measure, start_killer, summarise
from roles.errors import InfrastructureError, UserError
from simulator.governance.runner import open_services, play_governed
from simulator.governance.store.checkpoints import open_checkpointer
from simulator.governance.store.database import open_store

DRIVERS = ("psycopg", "psycopg_pool", "langgraph.checkpoint.postgres")
MISSING = [name for name in DRIVERS if importlib.util.find_spec(name) is None]
PROGRAMS = {name: shutil.which(name) for name in ("initdb", "postgres", "createdb")}
WITHOUT = [*MISSING, *(name for name, path in PROGRAMS.items() if path is None)]
pytestmark = pytest.mark.skipif(bool(WITHOUT), reason=f"PostgreSQL is not here: no {', '.join(WITHOUT)}")
NUM_KILLS = 20
USER = "nobody" if os.getuid() == 0 else getpass.getuser()  # the server refuses to run as root


class Server:
    """A PostgreSQL server on a socket in a folder of its own, reached by nobody else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, (f"db{number}" for number in itertools.count())
        shutil.chown(folder, USER)
        self.run("initdb", "-D", f"{folder}/data", "-U", "emads", "--auth=trust", "--no-sync")
        self.process = self.start()

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(PROGRAMS[program]), *arguments], check=True, capture_output=True, user=USER, cwd="/"
        )

    def start(self) -> "subprocess.Popen[bytes]":
        """Start, and wait until it answers. Processes are killed here, not machines: no fsync."""
        options = ["-D", f"{self.folder}/data", "-k", str(self.folder), "-c", "listen_addresses="]
        options += ["-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(PROGRAMS["postgres"]), *options], stdout=log, stderr=log, user=USER, cwd="/"
            )
        for _ in range(200):
            done = subprocess.run(["psql", *self.place(), "-c", "select 1", "postgres"], capture_output=True)
            if done.returncode == 0:
                return process
            signal.sigtimedwait([], 0.1)
        raise RuntimeError((self.folder / "log").read_text())

    def place(self) -> list[str]:
        return ["-h", str(self.folder), "-U", "emads"]

    def make_database(self) -> str:
        """The URL of an empty one."""
        name = next(self.names)
        self.run("createdb", *self.place(), name)
        return f"postgresql:///{name}?host={self.folder}&user=emads"

    def kill(self) -> None:
        """SIGKILL to the server and everything that it started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (self.process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="emads-pg-"))
    started = Server(folder)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_checkpointer_conforms(server: Server) -> None:
    async def open_saver() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        async with open_checkpointer(server.make_database(), open_store(None)) as saver:
            yield saver

    report = asyncio.run(validate(checkpointer_test(name="postgres")(open_saver)))
    assert [failure for result in report.results.values() for failure in result.failures] == []
    assert report.passed_all_base()


def test_killed_anywhere_it_ends_the_same(server: Server, tmp_path: Path) -> None:
    calm = measure(tmp_path / "calm.db", server.make_database())
    num_killed = 0
    with start_killer() as killer:
        for number in range(NUM_KILLS):
            rng, path, url = random.Random(f"pg/{number}"), tmp_path / f"{number}.db", server.make_database()
            statement = rng.randint(1, calm[1]) if number % 2 else 0
            delay_s = 0.0 if number % 2 else rng.uniform(0.01, calm[2])
            num_killed += killer.play(path, statement=statement, delay_s=delay_s, checkpoints=url)
            assert summarise(asyncio.run(play(path, Countdown(0), url)), path) == calm[0]
    assert num_killed > NUM_KILLS / 2


def test_a_server_that_dies_loses_nothing(server: Server, tmp_path: Path) -> None:
    """Every episode in flight is taken up again when the server is back."""
    url, path = server.make_database(), tmp_path / "s.db"

    class Killing:
        """A reviewer at whose first look the server dies."""

        name = "ann"

        async def review(self, request: Any) -> Any:
            server.kill()
            return await yes_man().review(request)

    async def run(reviewer: Any) -> list[str]:
        async with open_services(path, key=KEY, checkpoints=url) as services:
            episodes = await play_governed(
                CASES, services, make_seating(CASES), reviewer, CALM, concurrency=1
            )
            return [episode.status for episode in episodes]

    with pytest.raises(InfrastructureError, match="PostgreSQL server failed"):
        asyncio.run(run(Killing()))
    server.process = server.start()
    assert set(asyncio.run(run(yes_man()))) <= {"completed", "handed_over", "completed_with_alerts"}


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_services(
            None, key=KEY, checkpoints=f"postgresql:///x?host={tmp_path}&password=secret"
        ):
            raise AssertionError("opened")

    with pytest.raises(UserError, match="checkpoints at 'postgresql'") as raised:
        asyncio.run(run())
    assert "secret" not in str(raised.value)
