"""R7: kill -9 anywhere, take up again: the same end, the same log, no effect twice and none lost."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM, Person

from reliability.governed.cases import KEY, draw_cases, make_seating
from reliability.governed.killable_process import Countdown, play
from reliability.governed.kills import Killer, kill_and_resume, measure, start_killer, summarise
from simulator.governance.log import verify_chain
from simulator.governance.runner import open_services, play_governed

NUM_KILLS = 20


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with start_killer() as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, float]:
    return measure(tmp_path_factory.mktemp("calm") / "store.db")


def test_the_undisturbed_play_has_everything_in_it(undisturbed: tuple[dict[str, Any], int, float]) -> None:
    calm, num_statements, _ = undisturbed
    kinds = [kind for trace in calm["trace"] for kind, _ in trace]
    assert {"requested", "rejected", "committed", "executed", "observed", "replanned", "closed"} <= set(kinds)
    assert num_statements > 200
    assert [status for _, status, _ in calm["status"]] == ["completed", "completed"]


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_killed_anywhere_it_ends_the_same(
    number: int, killer: Killer, undisturbed: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    problem, _ = kill_and_resume(killer, tmp_path / "store.db", number, undisturbed)
    assert problem == ""


def test_killed_again_and_again_it_ends_the_same(
    killer: Killer, undisturbed: tuple[dict[str, Any], int, float], tmp_path: Path
) -> None:
    """Every life is long enough for what was done before, and a little more."""
    path, num_kills = tmp_path / "store.db", 0
    wanted, num_statements, _ = undisturbed
    while killer.play(path, statement=100 + 40 * num_kills):
        num_kills += 1
        assert num_kills < num_statements
    assert num_kills >= 4
    assert summarise(asyncio.run(play(path, Countdown(0))), path) == wanted


def fork_player(path: Path, num_cases: int) -> int:
    """A process that plays the cases before a person who approves all."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        cases = draw_cases(num_cases)

        async def run() -> set[str]:
            async with open_services(path, key=KEY) as services:
                services.reviewers.register("ann")
                played = await play_governed(cases, services, make_seating(cases), Person(), CALM)
                return {episode.status for episode in played}

        status = 0 if asyncio.run(run()) == {"completed"} else 2
    finally:
        os._exit(status)


@pytest.mark.process
def test_processes_that_play_one_store_at_the_same_time_do_everything_once(tmp_path: Path) -> None:
    """They come to the same requests and the same end; nobody disturbs another's play."""
    path, num_cases = tmp_path / "store.db", 3
    children = [fork_player(path, num_cases) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]

    async def count() -> Counter[str]:
        async with open_services(path, key=KEY) as services:
            assert verify_chain(services.log.entries(), head=services.log.head()) is None
            return Counter(entry.kind for entry in services.log.entries())

    kinds = asyncio.run(count())
    assert (kinds["committed"], kinds["closed"], kinds["executed"]) == (3, 3, 12)
    assert kinds["refused"] == 0
