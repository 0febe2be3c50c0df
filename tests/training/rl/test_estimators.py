"""Advantage estimators and KL estimates against numbers worked out by hand."""

import math
from typing import Any

import pytest
import torch

from training.learner.learner import estimate_kl
from training.rl.credit import (
    ESTIMATORS,
    LEAST_STD,
    Scores,
    compare_most_different,
    find_most_different,
    normalise_role,
)
from training.rl.critic import generalised_advantages

GROUPS = ((1.0, 0.0, 0.5, 0.5), (0.2, 0.2))


def advantages(name: str, *groups: Scores) -> list[list[float]]:
    return ESTIMATORS[name](groups or GROUPS, list)


def test_dr_grpo_subtracts_the_mean() -> None:
    assert advantages("dr_grpo") == [[0.5, -0.5, 0.0, 0.0], [0.0, 0.0]]


def test_grpo_divides_by_the_groups_sample_deviation() -> None:
    std = math.sqrt((0.25 + 0.25) / 3)  # n - 1, as torch.std and TRL
    first, second = advantages("grpo")
    assert first == pytest.approx([0.5 / (std + 1e-4), -0.5 / (std + 1e-4), 0.0, 0.0])
    assert second == [0.0, 0.0]


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_a_tiny_deviation_blows_nothing_up(gap: float) -> None:
    """Without the floor the advantages of two rewards that differ by anything would be +-0.7."""
    for name in ("grpo", "reinforce_pp"):
        (values,) = advantages(name, (0.5, 0.5 + gap))
        assert values[1] == pytest.approx(gap / 2 / (LEAST_STD + 1e-4))
        assert abs(values[1]) < 0.011


@pytest.mark.parametrize(
    ("rewards", "count", "chosen"),
    [
        ([0.5, 0.0, 1.0, 0.6], 2, {1, 2}),  # the lowest and the highest
        ([1.0, 0.9, 0.0, 1.0], 3, {0, 2, 3}),
        ([0.0, 0.0, 0.0, 1.0], 2, {0, 3}),
        ([0.0, 1.0, 1.0, 1.0, 0.1, 0.2], 4, {0, 1, 2, 4}),
    ],
)
def test_the_rewards_that_differ_most_are_chosen(rewards: list[float], count: int, chosen: set[int]) -> None:
    places = find_most_different(rewards, count)
    assert len(places) == len(set(places)) == count
    assert sorted(rewards[place] for place in places) == sorted(rewards[place] for place in chosen)


def test_a_part_of_the_scores_weighs_as_much_as_all_and_the_others_have_none() -> None:
    """0 and 1 of four are .5 from their mean, twice; the group of two is compared as it is."""
    groups = [(0.5, 0.0, 1.0, 0.6), (0.2, 0.4)]
    found = compare_most_different(ESTIMATORS["dr_grpo"], 2)(groups, list)
    assert found == [pytest.approx([0, -1.0, 1.0, 0]), pytest.approx([-0.1, 0.1])]
    found = compare_most_different(ESTIMATORS["rloo"], 2)(groups, list)
    assert found == [pytest.approx([0, -2.0, 2.0, 0]), pytest.approx([-0.2, 0.2])]
    assert compare_most_different(ESTIMATORS["dr_grpo"], 0)(groups, list) == advantages("dr_grpo", *groups)


def test_rloo_compares_with_the_others() -> None:
    first, second = advantages("rloo")
    assert first == pytest.approx([1 - 1 / 3, 0 - 2 / 3, 0.5 - 0.5, 0.5 - 0.5])
    assert second == [0.0, 0.0]


def test_reinforce_pp_divides_by_the_deviation_of_the_batch() -> None:
    groups = ((1.0, 0.0), (0.6, 0.4), (0.3, 0.3))
    scale = math.sqrt((2 * 0.25 + 2 * 0.01) / 4) + 1e-4  # the group without a difference does not count
    assert advantages("reinforce_pp", *groups) == [
        pytest.approx([0.5 / scale, -0.5 / scale]),
        pytest.approx([0.1 / scale, -0.1 / scale]),
        [0.0, 0.0],
    ]


def test_gae_hands_rewards_to_the_value_heads() -> None:
    assert advantages("gae") == [[1.0, 0.0, 0.5, 0.5], [0.2, 0.2]]


def test_generalised_advantages_by_hand() -> None:
    # errors 0.5 - 0.2, 0.4 - 0.5 and 1 - 0.4; from the back 0.6, -0.1 + 0.5 * 0.6, 0.3 + 0.5 * 0.2
    assert generalised_advantages([0.2, 0.5, 0.4], 1.0, 0.5) == pytest.approx([0.4, 0.2, 0.6])
    assert generalised_advantages([0.2, 0.5, 0.4], 1.0, 1.0) == pytest.approx(
        [0.8, 0.5, 0.6]
    )  # reward - value
    assert generalised_advantages([0.2, 0.5, 0.4], 1.0, 0.0) == pytest.approx([0.3, -0.1, 0.6])


@pytest.mark.parametrize("name", ["dr_grpo", "grpo", "rloo", "reinforce_pp"])
def test_equal_scores_give_exact_zeros_and_one_score_is_refused(name: str) -> None:
    assert advantages(name, (1 / 3,) * 7) == [[0.0] * 7]
    with pytest.raises(ValueError, match="at least 2"):
        advantages(name, (0.3,))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "gae"])
def test_better_scores_get_larger_advantages_with_the_right_sign(name: str) -> None:
    (values,) = advantages(name, (0.9, 0.1, 0.4))
    assert values[0] > 0 > values[2] > values[1]


def test_a_batch_over_several_ranks_is_normalised_as_one() -> None:
    one, other = [[0.5, -0.5]], [[0.1, -0.1], [0.0, 0.0]]
    together = normalise_role([*one, *other])
    sums = {"squares": 2 * 0.25 + 2 * 0.01, "count": 4.0}

    def total(values: Any) -> list[float]:
        return [sums["squares"], sums["count"]]

    assert normalise_role(one, total) + normalise_role(other, total) == together


def test_kl_estimate_by_hand() -> None:
    policy, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    assert estimate_kl(policy, reference).tolist() == pytest.approx(
        [math.exp(-0.5) - 0.5, math.exp(1.0) - 2.0]
    )


def test_the_kl_estimate_has_the_exact_divergence_as_its_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, others = torch.randn(6, generator=generator), torch.randn(6, generator=generator)
    policy = torch.log_softmax(logits, 0)
    reference = torch.log_softmax(logits + 0.1 * others, 0)
    exact = float((policy.exp() * (policy - reference)).sum())
    assert float((policy.exp() * estimate_kl(policy, reference)).sum()) == pytest.approx(exact, rel=1e-3)
