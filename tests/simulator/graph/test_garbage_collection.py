"""The garbage collector during large batches: calm inside, as it was afterwards."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from team_tables import CHAT, SAMPLING, TEAM, draw_scenarios, oracle_engine

from simulator.engines.base import Completion, CompletionRequest
from simulator.graph.concurrency import FEWEST, MOST, deferred_garbage_collection
from simulator.graph.runner import play_episodes


@pytest.fixture(autouse=True)
def usual_limits() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize(("in_flight", "limit"), [(1, FEWEST), (500, 500_000), (9_000, MOST)])
def test_limits_grow_with_what_is_in_flight_and_come_back(in_flight: int, limit: int) -> None:
    with deferred_garbage_collection(in_flight):
        assert gc.get_threshold()[0] == limit
        assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_calls_side_by_side_end_in_any_order() -> None:
    first, second = deferred_garbage_collection(100), deferred_garbage_collection(200)
    with first:
        second.__enter__()
        assert gc.get_threshold()[0] == 200_000
    assert gc.get_threshold()[0] == 200_000
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((700, 10, 10), 0)


@pytest.mark.parametrize("limits", [(0, 10, 10), (5_000_000, 3, 3)])
def test_a_collector_that_is_off_or_calmer_stays_so(limits: tuple[int, int, int]) -> None:
    gc.set_threshold(*limits)
    with deferred_garbage_collection(2_000):
        assert gc.get_threshold() == limits
    assert gc.get_threshold() == limits


def test_an_error_gives_the_limits_back() -> None:
    with pytest.raises(RuntimeError), deferred_garbage_collection(1):
        raise RuntimeError
    assert gc.get_threshold() == (700, 10, 10)


def test_episodes_are_played_in_calm() -> None:
    scenarios, seen = draw_scenarios(2), set()
    inner = oracle_engine(scenarios)

    class Looking:
        async def complete(self, request: CompletionRequest) -> Completion:
            seen.add(gc.get_threshold()[0])
            return await inner.complete(request)

        def end_session(self, session: str) -> None:
            pass

    asyncio.run(play_episodes(scenarios, TEAM, Looking(), CHAT, SAMPLING, concurrency=300))
    assert seen == {300_000}
    assert gc.get_threshold() == (700, 10, 10)
