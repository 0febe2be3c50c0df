"""Credit schemes against numbers worked out by hand."""

import random

import pytest

from training.credit import SCHEMES
from training.credit.base import ReportSet, centre, reconciler_advantages
from training.credit.difference import Difference
from training.credit.shared import Shared

# means 0.5, 0.9 and 0.1; without the CTO's report 0.2, 0.9 and 0.4; without the COO's the same as with it
SETS = (
    ReportSet(rewards=(0.8, 0.2), without={"cto": 0.2, "coo": 0.5}),
    ReportSet(rewards=(1.0, 0.8), without={"cto": 0.9, "coo": 0.9}),
    ReportSet(rewards=(0.0, 0.2), without={"cto": 0.4, "coo": 0.1}),
)


def test_centre_is_the_reward_minus_the_mean_and_nothing_else() -> None:
    assert centre([1.0, 0.0, 0.5, 0.5]) == [0.5, -0.5, 0.0, 0.0]
    assert centre([-0.2, 0.4]) == pytest.approx([-0.3, 0.3])  # no division by a standard deviation
    assert sum(centre([0.1, 0.7, 0.3])) == pytest.approx(0.0)


@pytest.mark.parametrize("value", [0.1, 1 / 3, -0.2, 0.1 + 0.2])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_group_of_equal_rewards_gets_exact_zeros(value: float, size: int) -> None:
    """Not rounding errors of the mean: an advantage of 1e-17 would count as signal."""
    assert centre([value] * size) == [0.0] * size


@pytest.mark.parametrize("rewards", [[], [0.3]])
def test_nobody_is_compared_with_himself(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match=f"at least 2 rewards to compare, got {len(rewards)}"):
        centre(rewards)


def test_shared_gives_every_specialist_the_sets_mean_against_the_other_sets() -> None:
    for role in ("cto", "coo"):
        assert Shared().specialist_advantages(role, SETS) == pytest.approx([0.0, 0.4, -0.4])


def test_difference_gives_a_specialist_what_its_own_report_added() -> None:
    # cto: 0.5 - 0.2, 0.9 - 0.9, 0.1 - 0.4 = 0.3, 0, -0.3
    assert Difference().specialist_advantages("cto", SETS) == pytest.approx([0.3, 0.0, -0.3])
    assert Difference().specialist_advantages("coo", SETS) == [0.0, 0.0, 0.0]


def test_the_reconciler_is_compared_on_the_same_reports_only() -> None:
    assert [reconciler_advantages(one) for one in SETS] == [
        pytest.approx([0.3, -0.3]),
        pytest.approx([0.1, -0.1]),
        pytest.approx([-0.1, 0.1]),
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_equal_sets_carry_no_signal(name: str) -> None:
    equal = [ReportSet(rewards=(0.7, 0.1), without={"cto": 1 / 3})] * 4
    assert SCHEMES[name]().specialist_advantages("cto", equal) == [0.0] * 4


@pytest.mark.parametrize("name", SCHEMES)
def test_equal_rewards_in_another_order_carry_no_signal(name: str) -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in floating point."""
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.2, 0.2)]
    sets = [ReportSet(rewards=rewards, without={"cto": 0.4}) for rewards in orders]
    assert len({sum(rewards) for rewards in orders}) > 1
    assert SCHEMES[name]().specialist_advantages("cto", sets) == [0.0] * 3


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scenario_with_one_report_set_cannot_be_credited(name: str) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        SCHEMES[name]().specialist_advantages("cto", SETS[:1])


@pytest.mark.parametrize("name", SCHEMES)
def test_the_order_of_the_sets_does_not_matter(name: str) -> None:
    rng = random.Random(0)
    sets = [
        ReportSet(rewards=(rng.random(), rng.random(), rng.random()), without={"cto": rng.random()})
        for _ in range(6)
    ]
    order = rng.sample(range(6), 6)
    straight = SCHEMES[name]().specialist_advantages("cto", sets)
    shuffled = SCHEMES[name]().specialist_advantages("cto", [sets[i] for i in order])
    assert shuffled == pytest.approx([straight[i] for i in order])
    assert len(set(straight)) == 6


def test_only_schemes_that_need_them_ask_for_counterfactuals() -> None:
    assert {name: SCHEMES[name]().needs_counterfactuals for name in SCHEMES} == {
        "shared": False,
        "difference": True,
    }
