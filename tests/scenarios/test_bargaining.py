"""Nash, Kalai-Smorodinsky and leximin over finite sets: cases by hand, axioms, second methods."""

import random
from fractions import Fraction
from math import prod

import pytest

from scenarios.world.bargaining import (
    Rows,
    find_ideal,
    lowest_share,
    nash_welfare,
    rank_by_kalai_smorodinsky,
    rank_by_leximin,
    rank_by_nash,
    recheck_leximin,
)
from scenarios.world.fairness import assess_fairness, recheck_fairness

EVEN = [1, 1]
# products 1600, 1500, 1650; ideal 80, 50; lowest shares 20/50, 30/50, 33/80
THREE = {"A": [80, 20], "B": [30, 50], "C": [50, 33]}


def draw_rows(rng: random.Random, num_stakeholders: int = 4) -> dict[str, list[int]]:
    return {option: [rng.randint(10, 99) for _ in range(num_stakeholders)] for option in "ABCDEF"}


def test_three_notions_by_hand() -> None:
    assert find_ideal(THREE) == [80, 50]
    assert rank_by_nash(THREE, EVEN) == ["C", "A", "B"]
    assert rank_by_nash(THREE, [2, 1]) == ["A", "C", "B"]  # 128,000, 82,500, 45,000
    # B has 30/80 and 50/50: 0.375; A 20/50 = 0.4; C 50/80 and 33/50: 0.625
    assert [lowest_share(row, [80, 50]) for row in THREE.values()] == [
        Fraction(2, 5),
        Fraction(3, 8),
        Fraction(5, 8),
    ]
    assert rank_by_kalai_smorodinsky(THREE) == ["C", "A", "B"]
    assert rank_by_leximin(THREE) == ["C", "B", "A"]  # lowest 33, 30, 20


def test_the_three_notions_can_differ() -> None:
    rows = {"A": [99, 40, 11], "B": [50, 20, 22], "C": [24, 24, 24]}
    assert rank_by_nash(rows, [1, 1, 1])[0] == "A"  # 43,560 against 22,000 and 13,824
    # shares of A 99/99, 40/40, 11/24; of B .505, .5, .917; of C .242, .6, 1
    assert rank_by_kalai_smorodinsky(rows)[0] == "B"
    assert rank_by_leximin(rows)[0] == "C"


def test_ties_go_to_the_next_lowest_then_to_the_first() -> None:
    assert rank_by_leximin({"A": [20, 50], "B": [60, 20], "C": [20, 55]}) == ["B", "C", "A"]
    assert rank_by_leximin({"A": [20, 50], "B": [50, 20]}) == ["A", "B"]
    # ideal 80, 80: lowest share .5 twice, then 1 against .75
    assert rank_by_kalai_smorodinsky({"A": [40, 60], "B": [80, 40], "C": [10, 80]})[0] == "B"


def test_nash_welfare_is_the_exact_floor() -> None:
    assert nash_welfare([80, 50, 20, 32], [1, 1, 1, 1]) == 40
    assert nash_welfare([80, 20], [3, 1]) == 56  # 10,240,000 lies between 56**4 and 57**4
    rng = random.Random(0)
    for _ in range(500):
        row, weights = [rng.randint(10, 99) for _ in range(4)], [rng.randint(1, 3) for _ in range(4)]
        product = prod(utility**weight for utility, weight in zip(row, weights, strict=True))
        root = nash_welfare(row, weights)
        assert root ** sum(weights) <= product < (root + 1) ** sum(weights)


def rank_each_way(rows: Rows) -> list[list[str]]:
    even = [1] * len(next(iter(rows.values())))
    return [rank_by_nash(rows, even), rank_by_kalai_smorodinsky(rows), rank_by_leximin(rows)]


def test_pareto_no_choice_is_dominated() -> None:
    rng = random.Random(1)
    for _ in range(200):
        rows = draw_rows(rng)
        rows["G"] = [utility + rng.randint(0, 5) for utility in rows["A"]]
        for ranked in rank_each_way(rows):
            chosen = rows[ranked[0]]
            for other in rows.values():
                at_least = all(a >= b for a, b in zip(other, chosen, strict=True))
                assert not (at_least and other != chosen)


def test_symmetry_who_is_who_does_not_matter() -> None:
    rng = random.Random(2)
    for _ in range(200):
        rows = draw_rows(rng)
        order = rng.sample(range(4), 4)
        shuffled = {option: [row[place] for place in order] for option, row in rows.items()}
        assert rank_each_way(shuffled) == rank_each_way(rows)


def test_scale_invariance_of_nash_and_kalai_smorodinsky_and_not_of_leximin() -> None:
    rng = random.Random(3)
    leximin_moved = 0
    for _ in range(200):
        rows = draw_rows(rng)
        factors = [rng.randint(1, 9) for _ in range(4)]
        scaled = {o: [u * f for u, f in zip(row, factors, strict=True)] for o, row in rows.items()}
        before, after = rank_each_way(rows), rank_each_way(scaled)
        assert after[:2] == before[:2]
        leximin_moved += after[2] != before[2]
    assert leximin_moved > 50


def test_leximin_only_looks_at_ranks() -> None:
    rng = random.Random(4)
    for _ in range(100):
        rows = draw_rows(rng)
        squared = {option: [utility**2 for utility in row] for option, row in rows.items()}
        assert rank_by_leximin(squared) == rank_by_leximin(rows)


def test_elimination_on_integers_finds_the_same_options() -> None:
    rng = random.Random(5)
    for _ in range(300):
        rows = {option: [rng.randint(1, 6) for _ in range(4)] for option in "ABCDE"}  # many ties
        assert recheck_leximin(rows, [1] * 4) == rank_by_leximin(rows)[0]
        assert recheck_leximin(rows, find_ideal(rows)) == rank_by_kalai_smorodinsky(rows)[0]


def test_vetoed_options_count_neither_as_choice_nor_for_the_ideal() -> None:
    facts = {
        "options": ["A", "B", "C"],
        "limits": {"cto": 35, "coo": 10},
        "utilities": {"cto": {"A": 30, "B": 80, "C": 50}, "coo": {"A": 99, "B": 20, "C": 33}},
    }
    found = assess_fairness(facts)
    assert found == {  # ideal 80, 33: B has 20 of 33, C 50 of 80
        "share": {"B": 60, "C": 62},
        "kalai": {"C": 1, "B": 2},
        "leximin": {"C": 1, "B": 2},
    }
    recheck_fairness(facts, found)
    with pytest.raises(RuntimeError, match="by leximin C is first"):
        recheck_fairness(facts, found | {"leximin": {"B": 1, "C": 2}})
    nothing_open = {**facts, "limits": {"cto": 99, "coo": 10}}
    assert assess_fairness(nothing_open) == {"share": {}, "kalai": {}, "leximin": {}}
    recheck_fairness(nothing_open, assess_fairness(nothing_open))
