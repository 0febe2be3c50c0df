"""Shocks, traits, what is left for a re-plan: by hand on small structures, by other methods on drawn ones."""

import itertools
from dataclasses import replace
from functools import cache

import pytest

from scenarios.base import Split
from scenarios.company.case import generate_case
from scenarios.company.domains import DOMAINS
from scenarios.company.optimum import find_optimum, plan_worth, recheck_optimum
from scenarios.company.records import CompanyCase, Plan
from scenarios.execution import (
    KINDS,
    Shock,
    Trait,
    apply_traits,
    carry_out,
    draw_world,
    find_company,
    list_changed_seats,
    look_back,
    measure_lost,
    open_situation,
    read_terms,
    strike,
    strike_all,
    strike_structure,
    value_situation,
    weaken,
)

NUM_CASES = 60  # drawn, per test
SPLIT: Split = "test"


@cache
def draw_case(index: int) -> CompanyCase:
    return generate_case(SPLIT, 3, index, 1 + index % 10)


def draw_cases(num: int = NUM_CASES) -> list[CompanyCase]:
    return [draw_case(index) for index in range(num)]


def best_plan(case: CompanyCase) -> Plan:
    optimum = find_optimum(case)
    assert optimum is not None
    return optimum.plan


WORK = {
    "packages": {
        "design": {"owner": "Anna", "days": 10, "after": []},
        "transfer": {"owner": "Anna", "days": 21, "after": []},
        "trial": {"owner": "Ben", "days": 9, "after": ["design", "transfer"]},
    },
    "upgrades": {
        "overtime Anna": {"cost": 6, "person": "Anna"},
        "contractor transfer": {"cost": 9, "package": "transfer", "takes": 13},
        "extra shift trial": {"cost": 4, "package": "trial", "saves": 3},
    },
}
THREATS = {
    "assets": {"cards": {"loss": 80, "from": "outside", "routes": [["phishing", "password"]]}},
    "steps": {"phishing": 80, "password": 50},
    "upgrades": {"mail filter": {"cost": 7, "step": "phishing", "to": 40}},
}
PRICES = {
    "items": {"storage": {"price": 40, "quality": 3}, "support": {"price": 35, "quality": 4}},
    "bundle": {"count": 2, "off": 2},
    "upgrades": {
        "committed storage": {"cost": 6, "item": "storage", "percent": 25},
        "premium storage": {"cost": 5, "item": "storage", "points": 2},
        "committed support": {"cost": 7, "item": "support", "percent": 30},
    },
}


def test_illness_prolongs_what_the_person_does_and_no_contractors_work() -> None:
    struck = strike_structure(WORK, Shock(kind="illness", seat="coo", option="A", target="Anna", amount=50))
    coo = DOMAINS["coo"]
    assert coo.measure(WORK, ()) == {"finish": 40}
    assert coo.measure(struck, ()) == {"finish": 15 + 32 + 9}  # 10 -> 15, 21 -> 31.5, rounded up
    assert coo.measure(struck, ("contractor transfer",)) == {"finish": 15 + 9}


def test_a_threat_stops_at_95_percent_and_at_a_control() -> None:
    struck = strike_structure(
        THREATS, Shock(kind="threat", seat="risk", option="A", target="phishing", amount=50)
    )
    assert struck["steps"] == {"phishing": 95, "password": 50}
    risk = DOMAINS["risk"]
    assert risk.measure(struck, ("mail filter",)) == risk.measure(THREATS, ("mail filter",))


def test_what_was_bought_is_in_effect_and_costs_nothing_again() -> None:
    cost = DOMAINS["cost"]
    structure = {**PRICES, "bought": ["committed storage"]}
    assert cost.measure(structure, ()) == {"saving": 10, "quality": 7}
    # of storage no other tier; both tiers committed earn the bundle: 6 + 7 - 2 * 2 = 9, of which 6 are paid
    assert cost.list_choices(structure) == [(), ("committed support",)]
    assert cost.price(structure, ("committed support",)) == 3
    assert cost.measure_again(structure, ("committed support",)) == (3, {"saving": 20, "quality": 7})
    assert "committed storage" not in cost.write_upgrades(structure)
    assert cost.describe(structure).endswith(
        "Already bought, paid for and in effect (do not name them): committed storage. "
        "They count towards a bundle, and earn its discount when it is reached."
    )


@pytest.mark.parametrize("seat", DOMAINS)
def test_parts_after_buying_agree_with_buying_all_at_once(seat: str) -> None:
    domain = DOMAINS[seat]
    for case in draw_cases(8):
        structure = case.structures[seat]["A"]
        choices = domain.list_choices(structure)
        for bought in choices[1:6]:
            later = {**structure, "bought": list(bought)}
            for added in domain.list_choices(later):
                both = tuple(name for name in structure["upgrades"] if name in {*bought, *added})
                assert both in choices
                assert domain.measure(later, added) == domain.measure(structure, both)
                assert domain.price(later, added) == max(
                    0, domain.price(structure, both) - domain.price(structure, bought)
                )
                assert domain.measure_again(later, added)[0] == domain.price(later, added)


def test_a_price_rise_lowers_the_base_and_a_commitment_saves_its_share() -> None:
    (case,) = draw_cases(1)
    item = next(iter(case.structures["cost"]["A"]["items"]))
    price = case.structures["cost"]["A"]["items"][item]["price"]
    shock = Shock(kind="price", seat="cost", option="A", target=item, amount=50)
    struck = strike(case, shock)
    assert struck.options["A"].base == case.options["A"].base - price // 2
    assert struck.options["B"] == case.options["B"]
    for before, after in zip(case.parts["cost"]["A"], struck.parts["cost"]["A"], strict=True):
        committed = f"committed {item}" in before.choice
        assert after.cost == before.cost
        assert (after.worth > before.worth) is committed


def test_a_struck_plan_is_worth_what_its_figures_are_worth() -> None:
    """Worth is base and figures against the case before any shock: nothing is counted twice or lost."""
    kinds = set()
    for case in draw_cases():
        world = draw_world(case, seed=1, shock_share=1.0)
        for option, shocks in world.shocks.items():
            kinds |= {shock.kind for shock in shocks}
            struck = case
            for shock in shocks:
                struck = strike(struck, shock)
            plan = Plan(
                option=option, funded={seat: own[option][-1].choice for seat, own in case.parts.items()}
            )
            total = case.options[option].base
            for seat, domain in DOMAINS.items():
                terms = read_terms(case, seat)
                now = domain.measure_again(struck.structures[seat][option], plan.funded[seat])[1]
                total += domain.value(terms, now)
                total -= domain.value(terms, domain.measure(case.structures[seat][option], ()))
            for shock in shocks:
                if shock.kind == "price":
                    before = case.structures["cost"][option]["items"][shock.target]["price"]
                    total -= struck.structures["cost"][option]["items"][shock.target]["price"] - before
            assert plan_worth(struck, plan) == total
    assert kinds == set(KINDS)


def test_money_spent_is_spent_and_the_reserve_is_set_free_once() -> None:
    for case in draw_cases():
        world = draw_world(case, seed=2, shock_share=0.0)
        plan = best_plan(case)
        first, outcome = carry_out(world, open_situation(world), plan)
        assert outcome.cost == first.spent
        assert first.known.budget == case.budget - first.spent + world.reserve
        assert (outcome.worth, outcome.shocks) == (outcome.promised, ())
        assert all(kpi.limit >= 100 and kpi.lost == 0 for kpi in outcome.kpis.values())
        nothing = Plan(option=plan.option, funded={})
        second, outcome = carry_out(world, first, nothing)
        assert (second.spent, second.known.budget, outcome.worth) == (
            first.spent,
            first.known.budget,
            first.known.options[plan.option].base,
        )
        with pytest.raises(KeyError, match="cannot buy"):
            carry_out(world, first, plan)


def test_kpis_add_up_and_tell_broken_limits() -> None:
    num_broken = 0
    for case in draw_cases():
        world = draw_world(case, seed=1, shock_share=1.0, with_traits=True)
        plan = best_plan(case)
        after, outcome = carry_out(world, open_situation(world), plan)
        assert sum(kpi.lost for kpi in outcome.kpis.values()) == outcome.promised - outcome.worth
        for seat, kpi in outcome.kpis.items():
            assert (kpi.limit >= 100) is after.known.parts[seat][plan.option][0].keeps_limit
            num_broken += kpi.limit < 100
        struck = {shock.seat for shock in outcome.shocks} - {""}
        assert struck <= set(list_changed_seats(outcome, plan))
    assert num_broken > NUM_CASES // 10


def test_the_replan_optimum_by_three_methods() -> None:
    """Knapsack and DP on the situation's case; and every plan bought on top of the first, from the start."""
    for case in draw_cases(30):
        if case.difficulty > 4:
            continue
        world = draw_world(case, seed=1, shock_share=1.0)
        plan = best_plan(case)
        after, _ = carry_out(world, open_situation(world), plan)
        optimum = find_optimum(after.known)
        assert (None if optimum is None else optimum.worth) == recheck_optimum(after.known)
        struck = replace(case, budget=after.known.budget)
        for shock in world.shocks[plan.option]:
            struck = strike(struck, shock)
        assert (None if optimum is None else optimum.worth) == search_replan(struck, plan)


def search_replan(struck: CompanyCase, plan: Plan) -> int | None:
    """The best worth with the first plan's parts paid for, by going through all plans."""
    worths = []
    for option, facts in struck.options.items():
        choices = []
        for seat, domain in DOMAINS.items():
            structure, terms = struck.structures[seat][option], read_terms(struck, seat)
            had = plan.funded.get(seat, ()) if option == plan.option else ()
            paid, nothing = domain.price(structure, had), domain.measure(structure, ())
            choices.append(
                [
                    (max(0, domain.price(structure, both) - paid), domain.value(terms, figures))
                    for both in domain.list_choices(structure)
                    if set(had) <= set(both)
                    and domain.keeps_limit(terms, figures := domain.measure(structure, both))
                ]
            )
            facts = replace(facts, base=facts.base - domain.value(terms, nothing))
        worths += [
            facts.base + sum(worth for _, worth in picked)
            for picked in itertools.product(*choices)
            if sum(cost for cost, _ in picked) <= struck.budget
        ]
    return max(worths, default=None)


def test_hindsight_is_reached_by_its_own_plan_and_beaten_by_none() -> None:
    num_perfect = 0
    for case in draw_cases(30):
        world = draw_world(case, seed=4)
        back = look_back(world)
        if back.plan is None or back.best is None:
            continue  # every option was struck beyond what money can mend
        assert plan_worth(strike_all(world), back.plan) == back.best
        situation, _ = carry_out(world, open_situation(world), best_plan(case))
        replanned = find_optimum(situation.known)
        if replanned is not None:
            situation, _ = carry_out(world, situation, replanned.plan)
        value = value_situation(world, situation)
        assert 0.0 <= value <= 1.0
        assert situation.known.options[situation.option].base <= back.best
        num_perfect += value == 1.0
    assert 0 < num_perfect < 30


def test_a_trait_takes_its_share_of_an_effect_and_shows_when_bought() -> None:
    assert weaken(WORK, "contractor transfer", 75)["takes"] == 19
    assert weaken(THREATS, "mail filter", 100)["to"] == 80
    assert weaken(PRICES, "committed storage", 60)["percent"] == 10
    assert weaken(WORK, "overtime Anna", 100) == WORK["upgrades"]["overtime Anna"]
    worse = {"cost": 9, "package": "transfer", "takes": 19}
    assert measure_lost(WORK, "contractor transfer", worse) == 75
    for case in draw_cases():
        actual = apply_traits(case, [Trait(seat="coo", group="contractor", loss=100)])
        for option, parts in case.parts["coo"].items():
            for stated, real in zip(parts, actual.parts["coo"][option], strict=True):
                assert real.worth <= stated.worth
                if not any(name.startswith("contractor") for name in stated.choice):
                    assert real == stated


def test_a_company_has_the_same_traits_in_all_of_its_cases() -> None:
    seen: dict[str, set[object]] = {}
    for case in draw_cases():
        world = draw_world(case, seed=5, with_traits=True)
        assert find_company(case)
        seen.setdefault(find_company(case), set()).add(world.traits)
    assert all(len(traits) == 1 for traits in seen.values())
    assert len({next(iter(traits)) for traits in seen.values()}) > 10
