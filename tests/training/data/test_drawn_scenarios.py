"""Drawn scenarios: a sequence of any length that makes only what is asked for."""

import pytest

from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from training.data.drawn_scenarios import MOST_HELD, DrawnScenarios


def test_only_what_is_asked_for_is_made_and_kept_for_a_while() -> None:
    made: list[int] = []

    def draw(place: int) -> Scenario:
        made.append(place)
        return FAMILIES["cto"].generate("train", 0, place, 1)

    scenarios = DrawnScenarios(draw, 10**12)
    assert len(scenarios) == 10**12
    assert scenarios[7] is scenarios[7]
    assert [one.index for one in scenarios[3:5]] == [3, 4]
    assert scenarios[-1].index == 10**12 - 1
    assert made == [7, 3, 4, 10**12 - 1]
    for place in range(MOST_HELD):
        assert scenarios[place].index == place
    assert made.count(7) == 1
    with pytest.raises(IndexError, match="no scenario"):
        scenarios[10**12]
