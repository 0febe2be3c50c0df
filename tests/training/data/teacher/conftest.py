"""Time limit and small shards for tests of the teacher."""

from collections.abc import Iterator

import pytest
from time_limits import fail_after

from training.data.folders import datasets

HARD_LIMIT_S = 120


@pytest.fixture
def no_hang() -> Iterator[None]:
    """A test that hangs fails instead."""
    with fail_after(HARD_LIMIT_S):
        yield


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "SCENARIOS_PER_SHARD", 5)
