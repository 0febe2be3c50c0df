"""Company cases: optimum by three methods, hidden profiles, needed seats, V, splits apart by their text."""

import json
from functools import cache

import pytest
from fast_loop import slow_except

from benchmarks.scenarios.company_cases import plan_value, seat_decides, worth_without
from scenarios.base import Split
from scenarios.company import setting
from scenarios.company.case import generate_case
from scenarios.company.coordination import is_hidden_profile
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import combine
from scenarios.company.optimum import (
    Optimum,
    find_optimum,
    plan_parts,
    plan_worth,
    recheck_optimum,
)
from scenarios.company.records import CompanyCase, Part, Plan
from scenarios.company.sectors import NUM_WORDINGS, SECTORS
from scenarios.company.splits import belongs_to

NUM_CASES = 60  # per difficulty; benchmarks/scenarios/company_cases.py does 2,000
LEVELS = (1, 2, 5, 10)


@cache
def draw(difficulty: int, split: Split = "train") -> list[CompanyCase]:
    return [generate_case(split, 0, index, difficulty) for index in range(NUM_CASES)]


def solve(case: CompanyCase) -> Optimum:
    optimum = find_optimum(case)
    assert optimum is not None
    return optimum


def make_part(seat: str, option: str, name: str, cost: int, worth: int, keeps: bool = True) -> Part:
    choice = (name,) if name else ()
    return Part(
        seat=seat, option=option, choice=choice, cost=cost, worth=worth, keeps_limit=keeps, figures={}
    )


def test_combinations_by_hand() -> None:
    cto = [make_part("cto", "A", "", 0, 0), make_part("cto", "A", "spare", 8, 21)]
    coo = [make_part("coo", "A", "crew", 14, 25)]
    risk = [make_part("risk", "A", "", 0, 0), make_part("risk", "A", "vault", 8, 21)]
    found = combine([cto, coo, risk], 25)
    assert [(one.cost, one.worth, one.num_ways) for one in found] == [(14, 25, 1), (22, 46, 2)]
    assert [part.choice for part in found[0].list_parts()] == [(), ("crew",), ()]
    assert combine([cto, coo, risk], 13) == []
    patch = [make_part("risk", "A", "", 0, 0), make_part("risk", "A", "patch", 9, 10)]
    # 23 k$ for crew and patch are worth 35, less than 22 k$ for crew and spare
    assert [(one.cost, one.worth) for one in combine([cto, coo, patch], 25)] == [(14, 25), (22, 46)]


@pytest.mark.parametrize("difficulty", slow_except(LEVELS, 1, 5))
def test_three_methods_agree_on_the_optimum(difficulty: int) -> None:
    for case in draw(difficulty):
        optimum = solve(case)
        assert recheck_optimum(case) == optimum.worth == plan_worth(case, optimum.plan)
        assert sum(part.cost for part in plan_parts(case, optimum.plan)) == optimum.cost <= case.budget
    for case in draw(difficulty)[:4]:
        assert solve_by_cp_sat(case) == solve(case).worth


def solve_by_cp_sat(case: CompanyCase) -> int:
    """The greatest worth, by CP-SAT over one variable per part."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = {letter: model.new_bool_var(letter) for letter in case.options}
    model.add_exactly_one(chosen.values())
    cost, worth = [], [chosen[letter] * option.base for letter, option in case.options.items()]
    for seat, own in case.parts.items():
        for letter, parts in own.items():
            taken = {
                part.choice: model.new_bool_var(f"{seat} {part.choice}") for part in parts if part.keeps_limit
            }
            model.add(sum(taken.values()) == chosen[letter])
            cost += [taken[part.choice] * part.cost for part in parts if part.choice in taken]
            worth += [taken[part.choice] * part.worth for part in parts if part.choice in taken]
    model.add(sum(cost) <= case.budget)
    model.maximize(sum(worth))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


@pytest.mark.parametrize("difficulty", slow_except(LEVELS, 1, 5))
def test_the_optimum_is_the_only_plan_of_its_worth_and_cost(difficulty: int) -> None:
    for case in draw(difficulty)[:10]:
        plans: dict[int, dict[int, int]] = {}  # cost -> worth -> number of plans
        for letter, option in case.options.items():
            sums = {(0, option.base): 1}
            for own in case.parts.values():
                grown: dict[tuple[int, int], int] = {}
                for part in own[letter]:
                    for (cost, worth), num in sums.items() if part.keeps_limit else ():
                        if cost + part.cost <= case.budget:
                            key = (cost + part.cost, worth + part.worth)
                            grown[key] = grown.get(key, 0) + num
                sums = grown
            for (cost, worth), num in sums.items():
                plans.setdefault(cost, {}).setdefault(worth, 0)
                plans[cost][worth] += num
        optimum = solve(case)
        assert plans[optimum.cost][optimum.worth] == 1


@pytest.mark.parametrize("difficulty", slow_except(LEVELS, 1, 5))
def test_v_stands_between_a_blind_plan_and_the_optimum(difficulty: int) -> None:
    for case in draw(difficulty):
        best = solve(case).plan
        assert plan_value(case, best) == 1.0
        everything = {seat: own[best.option][-1].choice for seat, own in case.parts.items()}
        assert plan_value(case, Plan(option=best.option, funded=everything)) == 0.0  # over the budget
        for letter in case.options:
            nothing = Plan(option=letter, funded={})
            assert 0.0 <= plan_value(case, nothing) < 1.0
            if not all(own[letter][0].keeps_limit for own in case.parts.values()):
                assert plan_value(case, nothing) == 0.0


@pytest.mark.parametrize("difficulty", slow_except(range(2, 11), 2, 5))
def test_hidden_profiles_are_common_and_every_seat_is_needed(difficulty: int) -> None:
    cases = draw(difficulty)[:40]
    assert sum(map(is_hidden_profile, cases)) >= 0.3 * len(cases)
    for seat in DOMAINS:
        assert sum(worth_without(case, seat) < solve(case).worth for case in cases) >= 0.6 * len(cases)
        assert sum(seat_decides(case, seat) for case in cases) >= 0.15 * len(cases)


def test_a_case_is_a_pure_function_of_its_coordinates() -> None:
    assert generate_case("train", 0, 3, 4) == generate_case("train", 0, 3, 4)
    splits: tuple[Split, ...] = ("train", "validation", "test")
    texts = {repr(generate_case(split, seed, 3, 4)) for split in splits for seed in (0, 1)}
    assert len(texts) == 6


def test_splits_share_no_public_text() -> None:
    splits: tuple[Split, ...] = ("train", "validation", "test")
    for split in splits:
        for case in draw(1, split):
            bases = [option.base for option in case.options.values()]
            shown = [SECTORS[case.sector].like or case.sector, case.budget, bases]
            assert [other for other in splits if belongs_to(other, shown)] == [split]


def test_new_sectors_and_their_wording_occur_in_no_other_split() -> None:
    new = draw(1, "test-new-sectors")
    assert all(SECTORS[case.sector].held_out and case.wording == NUM_WORDINGS for case in new)
    known = [case for split in ("train", "test") for case in draw(1, split)]
    assert not any(SECTORS[case.sector].held_out or case.wording == NUM_WORDINGS for case in known)


def test_figures_do_not_depend_on_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts, which tell no words, stay the same whatever is added to the sectors."""

    def list_figures(index: int) -> list[list[tuple[int, int]]]:
        case = generate_case("train", 0, index, 5)
        return [
            [(part.cost, part.worth) for part in parts]
            for own in case.parts.values()
            for parts in own.values()
        ]

    before = [list_figures(index) for index in range(10)]
    monkeypatch.setattr(setting, "draw_sector", lambda words, split, slot: SECTORS["mining"])
    assert [list_figures(index) for index in range(10)] == before


def test_structures_and_situation_are_json_and_text() -> None:
    for case in draw(5):
        assert json.loads(json.dumps(case.structures)) == case.structures
        assert "{" not in case.situation
        assert len({option.name for option in case.options.values()}) == len(case.options)
        assert 20 <= case.budget <= 99
