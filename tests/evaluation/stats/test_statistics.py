"""Statistics against hand-computed numbers, scipy, and simulated data with known effects."""

import numpy as np
import pytest
from scipy import stats

from evaluation.stats.intervals import Interval, holm, mean_interval, paired_interval, paired_permutation_p


def test_interval_covers_the_true_mean_about_95_times_in_100() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(1000):
        interval = mean_interval(rng.beta(2.0, 1.0, 150).tolist(), num_bootstrap=600, seed=trial)
        hits += interval.low <= 2 / 3 <= interval.high
    assert 935 <= hits <= 965


def test_interval_is_written_in_the_asked_form() -> None:
    interval = Interval(mean=0.125, low=-0.0625, high=0.3125, n=8)
    assert f"{interval:.4f}" == "0.1250 [-0.0625, 0.3125]"
    assert f"{interval:+.1f} of 8" == "+0.1 [-0.1, +0.3] of 8"
    assert f"{interval}" == str(interval)


def test_interval_agrees_with_scipy_bootstrap() -> None:
    values = np.random.default_rng(5).gamma(2.0, 1.0, 120)
    ours = mean_interval(values.tolist(), num_bootstrap=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.mean == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_interval_width_shrinks_with_the_square_root_of_n() -> None:
    values = np.random.default_rng(6).normal(size=2500)
    wide, narrow = mean_interval(values[:100].tolist()), mean_interval(values.tolist())
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(5.0, rel=0.25)


def test_interval_of_two_values_by_hand() -> None:
    # resampled means are 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the 2.5 % and 97.5 % points are the ends
    assert mean_interval([0.0, 1.0]) == Interval(mean=0.5, low=0.0, high=1.0, n=2)


def test_equal_values_give_an_exact_interval_of_no_width() -> None:
    assert mean_interval([0.1] * 999) == Interval(mean=0.1, low=0.1, high=0.1, n=999)


def test_interval_is_reproducible_and_depends_on_the_seed() -> None:
    values = np.random.default_rng(7).normal(size=80).tolist()
    assert mean_interval(values, seed=4) == mean_interval(values, seed=4)
    assert mean_interval(values, seed=4) != mean_interval(values, seed=5)


def test_large_samples_are_resampled_in_chunks() -> None:
    values = np.random.default_rng(8).normal(size=30_000)
    interval = mean_interval(values.tolist(), num_bootstrap=300)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / np.sqrt(30_000), rel=0.2)


def test_pairing_removes_the_spread_between_scenarios() -> None:
    rng = np.random.default_rng(9)
    before = rng.normal(0.0, 10.0, 400)
    after = before + rng.normal(0.5, 1.0, 400)
    paired = paired_interval(after.tolist(), before.tolist())
    assert paired.mean == pytest.approx((after - before).mean())
    assert 0.3 < paired.low < paired.mean < paired.high < 0.7
    alone = mean_interval(after.tolist())
    assert alone.high - alone.low > 8 * (paired.high - paired.low)


def test_permutation_p_by_hand() -> None:
    # differences 1, 2, 3: of 8 sign patterns only +++ and --- reach |sum| 6
    assert paired_permutation_p([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == 2 / 8
    # differences 1, 2, -3: sum 0, every pattern reaches it
    assert paired_permutation_p([1.0, 2.0, 0.0], [0.0, 0.0, 3.0]) == 1.0
    assert paired_permutation_p([0.3, 0.4], [0.3, 0.4]) == 1.0
    # one difference: + and - both reach its size
    assert paired_permutation_p([0.3, 0.9], [0.3, 0.4]) == 1.0


def test_permutation_p_agrees_with_scipy() -> None:
    rng = np.random.default_rng(11)
    for size, shift in ((9, 0.6), (40, 0.3)):
        after, before = rng.normal(shift, 1.0, size), rng.normal(0.0, 1.0, size)
        theirs = stats.permutation_test(
            (after, before),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20_000,
            rng=np.random.default_rng(2),
        ).pvalue
        ours = paired_permutation_p(after.tolist(), before.tolist(), num_permutations=20_000)
        assert ours == pytest.approx(theirs, abs=1e-12 if size == 9 else 0.012)


def test_permutation_false_positive_rate_and_power() -> None:
    rng = np.random.default_rng(12)
    null, effect = 0, 0
    for trial in range(400):
        before, noise = rng.normal(size=60), rng.standard_t(3, size=60)
        for shift in (0.0, 1.0):
            after = (before + noise + shift).tolist()
            significant = (
                paired_permutation_p(after, before.tolist(), num_permutations=400, seed=trial) < 0.05
            )
            null, effect = null + (significant and shift == 0), effect + (significant and shift > 0)
    assert 8 <= null <= 32  # 5 % of 400, four standard errors either way at most
    assert effect > 380


def test_permutation_p_is_never_zero_when_sampled() -> None:
    after = np.arange(1.0, 200.0).tolist()
    assert paired_permutation_p(after, [0.0] * 199, num_permutations=999) == 1 / 1000


def test_holm_by_hand() -> None:
    adjusted = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.005})
    # sorted .005 x 4 = .02, .01 x 3 = .03, .03 x 2 = .06, .04 x 1 = .04 -> raised to .06
    assert adjusted == pytest.approx({"a": 0.06, "b": 0.03, "c": 0.06, "d": 0.02})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({"a": 0.7, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_holm_keeps_the_family_wise_error_rate() -> None:
    rng = np.random.default_rng(13)
    families = [holm({str(i): float(p) for i, p in enumerate(rng.uniform(size=5))}) for _ in range(2000)]
    errors = sum(min(family.values()) < 0.05 for family in families)
    assert 60 <= errors <= 140


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0, 2.0]]])
def test_bad_values_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"non-empty|non-finite"):
        mean_interval(values)


def test_bad_pairs_and_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="2 after and 1 before"):
        paired_interval([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="2 after and 3 before"):
        paired_permutation_p([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="empty"):
        paired_permutation_p([], [])
    with pytest.raises(ValueError, match="num_bootstrap"):
        mean_interval([1.0], num_bootstrap=0)
    with pytest.raises(ValueError, match="num_permutations"):
        paired_permutation_p([1.0], [0.0], num_permutations=0)
    with pytest.raises(ValueError, match="'a'"):
        holm({"a": 1.5})
