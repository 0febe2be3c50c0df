"""Time limit and small shards for tests of the teacher."""

import signal
from collections.abc import Iterator

import pytest

from training.data.folders import requests

HARD_LIMIT_S = 120


@pytest.fixture
def no_hang() -> Iterator[None]:
    """A test that hangs fails instead."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"the test took longer than {HARD_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HARD_LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SCENARIOS_PER_SHARD", 5)
