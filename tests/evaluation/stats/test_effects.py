"""Effects, McNemar, seeds, families of tests: against scipy, statsmodels, hand and simulation."""

from itertools import pairwise

import numpy as np
import pytest
from fast_loop import slow_except
from scored_outcomes import team_plays
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from evaluation.stats.intervals import (
    holm,
    mcnemar_p,
    mean_interval,
    paired_interval,
    paired_permutation_p,
    seeded_interval,
    t_factor,
)
from evaluation.summary.comparison import compare_seeds


def test_mcnemar_agrees_with_statsmodels_and_by_hand() -> None:
    # 5 turned right, 1 turned wrong: two-sided binomial 2 (1 + 6) / 64
    before = [False] * 5 + [True] + [True, False] * 3
    after = [True] * 5 + [False] + [True, False] * 3
    assert mcnemar_p(after, before) == pytest.approx(14 / 64)
    assert mcnemar_p([True, False], [True, False]) == 1.0
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, y = rng.random(60) < 0.6, rng.random(60) < 0.45
        table = [[(x & y).sum(), (x & ~y).sum()], [(~x & y).sum(), (~x & ~y).sum()]]
        theirs = mcnemar(table, exact=True).pvalue
        assert mcnemar_p(x.tolist(), y.tolist()) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
def test_holm_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(2)
    for size in (1, 4, 20):
        p_values = rng.random(size) ** 3
        theirs = multipletests(p_values, method="holm")[1]
        ours = holm({str(place): float(p) for place, p in enumerate(p_values)})
        assert list(ours.values()) == pytest.approx(list(theirs))


@pytest.mark.slow
def test_a_paired_interval_of_a_known_effect_covers_it() -> None:
    rng = np.random.default_rng(6)
    hits = 0
    for trial in range(1000):
        before = rng.uniform(0.0, 0.7, 150)
        after = before + rng.choice([0.0, 0.3], 150, p=[2 / 3, 1 / 3])  # mean change 0.1
        interval = paired_interval(after.tolist(), before.tolist(), num_bootstrap=500, seed=trial)
        hits += interval.low <= 0.1 <= interval.high
    assert 935 <= hits <= 965


@pytest.mark.slow
def test_a_family_of_corrected_tests_errs_at_most_5_times_in_100() -> None:
    rng = np.random.default_rng(7)
    errors, raw = 0, 0
    for trial in range(1000):
        p_values = {}
        for role in range(5):
            noise = rng.choice([-0.3, 0.0, 0.3], 80)
            p_values[str(role)] = paired_permutation_p(
                noise.tolist(), [0.0] * 80, num_permutations=199, seed=5 * trial + role
            )
        errors += min(holm(p_values).values()) <= 0.05
        raw += min(p_values.values()) <= 0.05
    assert errors <= 50
    assert raw > 120  # uncorrected, one in five families errs


@pytest.mark.parametrize("same", slow_except([False, True], False))
@pytest.mark.parametrize("spread", slow_except([0.0, 0.2], 0.2))
def test_an_interval_over_seeds_covers_where_seeds_differ(spread: float, same: bool) -> None:
    rng = np.random.default_rng(8)
    hits, alone = 0, 0
    for trial in range(400):
        hard = rng.normal(0.0, 0.3, 60)
        samples = [
            (
                (hard if same else rng.normal(0.0, 0.3, 60))
                + rng.normal(0.0, 0.3, 60)
                + rng.normal(0.0, spread)
            ).tolist()
            for _ in range(4)
        ]
        interval = seeded_interval(samples, same_scenarios=same, num_bootstrap=300, seed=trial)
        hits += interval.low <= 0 <= interval.high
        one = mean_interval(
            [value for of_seed in samples for value in of_seed], num_bootstrap=200, seed=trial
        )
        alone += one.low <= 0 <= one.high
    assert hits >= 367  # 91.75 %: 95 % less three standard errors
    if spread:
        assert hits <= 394
        assert alone < 250  # taking seeds for more scenarios is wrong most of the time


def test_one_seed_is_a_plain_interval_and_the_factor_is_students() -> None:
    values = [0.1, 0.5, 0.9, 0.4]
    assert seeded_interval([values], seed=3) == mean_interval(values, seed=3)
    assert t_factor(3) == pytest.approx(4.302653 / 1.959964, rel=1e-5)
    assert all(one > other for one, other in pairwise(t_factor(n) for n in range(2, 12)))
    with pytest.raises(ValueError, match="two are needed"):
        t_factor(1)
    with pytest.raises(ValueError, match="as many values"):
        seeded_interval([[1.0], [1.0, 2.0]], same_scenarios=True)
    with pytest.raises(ValueError, match="seed 1"):
        seeded_interval([[1.0], [float("nan")]])


def test_equal_seeds_are_as_sure_as_their_scenarios_and_no_surer() -> None:
    values = np.random.default_rng(9).normal(0.5, 0.2, 200).tolist()
    three = seeded_interval([values] * 3, same_scenarios=True)
    one = mean_interval(values)
    assert three.mean == pytest.approx(one.mean)
    assert three.high - three.low == pytest.approx((one.high - one.low) * t_factor(3), rel=0.1)


def test_seeds_are_compared_stage_by_stage() -> None:
    rewards = (0.2, 0.4, 0.6, 0.4)
    runs = {}
    for seed, gain in enumerate((0.1, 0.2, 0.3)):
        later = tuple(value + gain for value in rewards)
        plays = [team_plays("grpo", rewards, rewards), team_plays("marl", later, later)]
        plays.append(team_plays("random", rewards))
        runs[f"run {seed}"] = plays + ([team_plays("sft", (0.0, 0.0, 0.0, 0.1))] if seed else [])
    comparison = compare_seeds(runs, [0, 1, 2], same_scenarios=True)
    section = comparison["owners"]["team"]
    assert set(section["stages"]) == {"grpo", "marl", "random"}  # SFT was not scored in every seed
    assert section["stages"]["marl"]["greedy"] == pytest.approx(0.6)  # 0.4 and the mean gain
    assert section["stages"]["random"]["greedy"] is None
    change = section["paired"]["marl-grpo"]
    assert change["mean"] == pytest.approx(0.2)
    assert change["per_seed"] == pytest.approx([0.1, 0.2, 0.3])
    assert change["p"] == pytest.approx(
        2 / 16 * 2
    )  # four equal changes: 2 of 16 patterns; Holm over two tests
    assert change["low"] < 0.1 < 0.3 < change["high"]  # three seeds leave much open
