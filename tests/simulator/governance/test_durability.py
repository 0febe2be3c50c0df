"""R7: kill -9 anywhere, take up again: the same end, the same log, no effect twice and none lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emads.reliability.governed.killable_process import Countdown, play
from emads.reliability.governed.kills import Killer, kill_and_resume, measure, start_killer, summarise

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
    kinds = [kind for trace in calm["trace"] for _, kind, _ in trace]
    assert {"requested", "rejected", "committed", "executed", "observed", "replanned", "closed"} <= set(kinds)
    assert num_statements > 500
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
    """Every life is long enough for one more step only."""
    path, num_kills = tmp_path / "store.db", 0
    wanted, num_statements, _ = undisturbed
    while killer.play(path, statement=150):
        num_kills += 1
        assert num_kills < num_statements
    assert num_kills >= 4
    assert summarise(asyncio.run(play(path, Countdown(0))), path) == wanted
