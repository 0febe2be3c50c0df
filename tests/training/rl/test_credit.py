"""Credit schemes against numbers worked out by hand."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from spoken import speak

from scenarios.team import generate
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict
from training.rl.credit import SCHEMES, CreditAssigner, Shared, centre, dr_grpo
from training.rl.records import ScoredEpisode, ScoredGroup, ScoredReportSet

UNSPOKEN = Episode(scenario_key="", index_in_group=0, trajectories={}, reports={}, decision="", votes={})


def make_set(
    rewards: Sequence[float], counterfactual: Mapping[str, tuple[float, ...]] | None = None
) -> ScoredReportSet:
    """A report set of these team rewards; schemes read nothing else of it."""
    verdicts = [
        TeamVerdict(reward=reward, value=0, consensus=0, unresolved=0, escalation=0, explanation="")
        for reward in rewards
    ]
    return ScoredReportSet(
        scored=tuple(ScoredEpisode(episode=UNSPOKEN, verdict=verdict) for verdict in verdicts),
        counterfactual_rewards=counterfactual or {},
    )


# Means 0.5, 0.9 and 0.1. The CTO's offers bring 0.2, 0.9 and 0.4, the COO's as much as the result.
REWARDS = ((0.8, 0.2), (1.0, 0.8), (0.0, 0.2))
BROUGHT = ({"cto": (0.2,), "coo": (0.5,)}, {"cto": (0.9,), "coo": (0.9,)}, {"cto": (0.4,), "coo": (0.1,)})
# Row a: the CTO's report of set a among the partners of sets 0, 1 and 2.
SWAPPED = (
    {"cto": (0.5, 0.8, 0.2), "coo": (0.5,) * 3},
    {"cto": (0.6, 0.9, 0.3), "coo": (0.5,) * 3},
    {"cto": (0.4, 0.7, 0.1), "coo": (0.5,) * 3},
)
SETS = [make_set(rewards, brought) for rewards, brought in zip(REWARDS, BROUGHT, strict=True)]
SWAPPED_SETS = [make_set(rewards, swapped) for rewards, swapped in zip(REWARDS, SWAPPED, strict=True)]


def advantages(name: str, role: str, sets: Sequence[ScoredReportSet]) -> list[float]:
    scores = SCHEMES[name]().specialist_scores(role, sets)
    return dr_grpo([scores])[0]


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


def test_shared_gives_the_sets_mean_against_the_other_sets() -> None:
    for role in ("cto", "coo"):
        assert advantages("shared", role, SETS) == pytest.approx([0.0, 0.4, -0.4])


def test_shapley_gives_a_specialist_the_worth_of_its_offers_whatever_was_decided() -> None:
    # 0.2, 0.9 and 0.4, mean 0.5
    assert advantages("shapley", "cto", SETS) == pytest.approx([-0.3, 0.4, -0.1])


def test_cross_valued_averages_over_everybodys_partners() -> None:
    assert SCHEMES["cross_valued"]().specialist_scores("cto", SWAPPED_SETS) == pytest.approx([0.5, 0.6, 0.4])
    # shared credit says +0.4 and -0.4: most of that was the partners' doing
    assert advantages("cross_valued", "cto", SWAPPED_SETS) == pytest.approx([0.0, 0.1, -0.1])
    assert advantages("cross_valued", "coo", SWAPPED_SETS) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", SCHEMES)
def test_equal_sets_carry_no_signal(name: str) -> None:
    one = make_set((0.7, 0.1), {"cto": (0.1, 0.2, 0.3, 0.7)})
    assert advantages(name, "cto", [one] * 4) == [0.0] * 4


def test_equal_rewards_in_another_order_carry_no_signal() -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in floating point."""
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.2, 0.2)]
    sets = [make_set(rewards) for rewards in orders]
    assert len({sum(rewards) for rewards in orders}) > 1
    assert advantages("shared", "cto", sets) == [0.0] * 3


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scenario_with_one_report_set_cannot_be_credited(name: str) -> None:
    one = make_set((0.8, 0.2), {"cto": (0.5,)})
    with pytest.raises(ValueError, match="at least 2"):
        advantages(name, "cto", [one])


@pytest.mark.parametrize("name", SCHEMES)
def test_the_order_of_the_sets_does_not_matter(name: str) -> None:
    rng = random.Random(0)
    table = [[rng.random() for _ in range(6)] for _ in range(6)]
    rewards = [(rng.random(), rng.random(), rng.random()) for _ in range(6)]
    brought = [rng.random() for _ in range(6)]

    def make(order: list[int]) -> list[ScoredReportSet]:
        if name == "shapley":
            return [make_set(rewards[i], {"cto": (brought[i],)}) for i in order]
        return [make_set(rewards[i], {"cto": tuple(table[i][j] for j in order)}) for i in order]

    order = rng.sample(range(6), 6)
    straight = advantages(name, "cto", make(list(range(6))))
    assert advantages(name, "cto", make(order)) == pytest.approx([straight[i] for i in order])
    assert len(set(straight)) == 6


@pytest.mark.parametrize(
    ("price", "of_cto", "of_reconciler"),
    [
        (0.0, [0.0, 0.4, -0.4], [(0.3, -0.3), (0.1, -0.1), (-0.1, 0.1)]),
        # The CTO wrote 10, 20 and 30 tokens, ReconcileGPT 5 in the first decision of a set, 15 in the other
        (0.01, [0.1, 0.4, -0.5], [(0.35, -0.35), (0.15, -0.15), (-0.05, 0.05)]),
    ],
)
def test_words_with_a_price_lower_the_scores_of_who_wrote_them(
    price: float, of_cto: list[float], of_reconciler: list[tuple[float, float]]
) -> None:
    sets = []
    for rewards, count in zip(REWARDS, (10, 20, 30), strict=True):
        scored = [
            replace(
                one,
                episode=replace(
                    UNSPOKEN,
                    trajectories={
                        "cto": speak("cto", ("report", count)),
                        "reconcile": speak("reconcile", ("decision", own)),
                    },
                ),
            )
            for one, own in zip(make_set(rewards).scored, (5, 15), strict=True)
        ]
        sets.append(ScoredReportSet(scored=tuple(scored)))
    credit = CreditAssigner(
        scheme=Shared(),
        estimator=dr_grpo,
        votes="report",
        weights=TeamRewardWeights(),
        token_price=price,
    )
    group = ScoredGroup(scenario=generate("train", 0, 0, 1), report_sets=tuple(sets))
    found = credit.assign(["cto", "reconcile"], [group])
    assert [one.report for one in found["cto"][0]] == pytest.approx(of_cto)
    for one, wanted in zip(found["reconcile"][0], of_reconciler, strict=True):
        assert one.episodes == pytest.approx(wanted)
