"""Kappas against published and hand-computed figures."""

import pytest

from evaluation.stats.intervals import cohens_kappa, fleiss_kappa


def test_cohens_kappa_by_hand() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: 0.7 observed; 25/50 * 30/50 + 25/50 * 20/50 = 0.5 expected
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    assert cohens_kappa([("y", "n"), ("n", "y")]) == pytest.approx(-1.0)
    assert cohens_kappa([("y", "y")]) is None
    assert cohens_kappa([]) is None


def test_fleiss_kappa_of_his_own_table() -> None:
    # Fleiss 1971 as commonly reproduced: 10 subjects, 14 raters, 5 categories, kappa 0.210
    table = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    items = [[name for name, count in zip("abcde", row, strict=True) for _ in range(count)] for row in table]
    assert fleiss_kappa(items) == pytest.approx(0.210, abs=0.0005)


def test_fleiss_kappa_leaves_out_what_one_reviewer_judged() -> None:
    judged = [["a", "a"], ["a", "b"], ["b", "b"]]
    assert fleiss_kappa([*judged, ["a"], []]) == fleiss_kappa(judged) == pytest.approx(1 / 3)
    assert fleiss_kappa([["a"], ["b"]]) is None
    assert fleiss_kappa([["a", "a"]]) is None
