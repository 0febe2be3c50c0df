"""One small case of every whole job, worked out by hand."""

import json
from fractions import Fraction
from typing import Any

import pytest

from scenarios.base import Scenario
from scenarios.jobs import allocation, architecture, bill, from_words, threats, tradeoff
from scenarios.jobs.job import Facts, NoCaseError, score_named

DESIGN: Facts = {
    "loads": [{"name": "peak", "requests": 100, "cached": 60}],
    "components": {
        "app servers": {"capacity": 60, "availability": 9000, "latency": 10, "price": 5},
        "cache": {"capacity": 100, "availability": 9900, "latency": 1, "price": 2},
        "database": {"capacity": 40, "availability": 9900, "latency": 20, "price": 7},
        "standby region": {"capacity": 100, "availability": 9000, "latency": 90, "price": 4},
    },
    "designs": {
        "A": {"style": "plain", "steps": [["app servers"], ["cache"], ["database"]]},
        "B": {"style": "double", "steps": [["app servers"], ["database", "standby region"]]},
    },
    "latency": 31,
    "target": 9600,
    "budget": 60,
}


def make_case(facts: Facts, truth: dict[str, Any]) -> Scenario:
    return Scenario(
        family="x",
        split="train",
        seed=0,
        index=0,
        difficulty=1,
        role="x",
        brief="",
        facts=facts,
        truth=truth,
        optimal_tool_calls=0,
    )


def test_architecture_counts_load_availability_and_cost() -> None:
    # A: the cache answers 60 of 100, so that the database gets 40. B: both sides carry 100 alone.
    assert architecture.count_least(DESIGN, "A") == {"app servers": 2, "cache": 1, "database": 1}
    assert architecture.count_least(DESIGN, "B") == {"app servers": 2, "database": 3, "standby region": 1}
    assert architecture.find_latency(DESIGN, "A") == 31
    assert architecture.find_latency(DESIGN, "B") == 30  # the side behind "or" does not count
    # A with 2, 1, 1: .99 x .99 x .99 = .970299; B with 2, 3, 1: .99 x (1 - .000001 x .1)
    assert architecture.find_availability(DESIGN, "A", {"app servers": 2, "cache": 1, "database": 1}) == 9702
    assert (
        architecture.find_availability(DESIGN, "B", {"app servers": 2, "database": 3, "standby region": 1})
        == 9899
    )
    assert next(architecture.list_by_cost(DESIGN)) == (19, "A", {"app servers": 2, "cache": 1, "database": 1})


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ({"design": "A", "instances": {"app servers": 2, "cache": 1, "database": 1}}, 1.0),
        # B keeps all limits at 35 k$: another design, and 25 of the 41 k$ between budget and least are saved
        (
            {"design": "B", "instances": {"app servers": 2, "database": 3, "standby region": 1}},
            0.1 + 0.3 * 25 / 41,
        ),
        # one app server: neither load nor availability; latency and budget are kept
        ({"design": "A", "instances": {"app servers": 1, "cache": 1, "database": 1}}, 0.1 * 2 / 4),
        ({"design": "none", "instances": {}}, 0.0),
        ({"design": "A", "instances": {"app servers": 2, "cache": 1}}, 0.0),  # a component is missing
    ],
)
def test_architecture_verdict(answer: dict[str, Any], reward: float) -> None:
    truth = {"design": "A", "instances": {"app servers": 2, "cache": 1, "database": 1}, "cost": 19}
    verdict = architecture.FAMILY.verify(make_case(DESIGN, truth), json.dumps(answer))
    assert verdict.reward == pytest.approx(reward)


PROJECT: Facts = {
    "packages": {
        "survey": {"skill": "building", "days": 2, "after": []},
        "training": {"skill": "training", "days": 3, "after": ["survey"], "deadline": 4, "late": 2},
    },
    "people": {
        "Ann": {"skills": ["building"], "rate": 1, "from": 1},
        "Bob": {"skills": ["building", "training"], "rate": 3, "from": 1},
    },
}


def test_allocation_finds_the_cheapest_plan() -> None:
    # survey by Ann 2 x 1, training by Bob 3 x 3 on days 3 to 5, one day late at 2 k$: 13 k$
    tried, best = allocation.search(PROJECT, 10)
    assert best == 0
    assert tried[0] == (11, ("Ann", "Bob"), (2, {"survey": 1, "training": 3}, False))
    truth = {"plan": allocation.write_plan(PROJECT, ("Ann", "Bob"), {"survey": 1, "training": 3})}
    case = make_case(PROJECT, {**truth, "cost": 13, "starts": 4, "blind": 17})
    brief = allocation.write_brief({**PROJECT, "wording": 0, "situation": "A new line."})
    assert from_words.solve_allocation(brief) == (truth, 1000 * 13 + 4)
    assert allocation.FAMILY.verify(case, json.dumps(truth)).exact


def test_project_with_two_best_orders_of_work_is_no_case() -> None:
    packages = {"survey": PROJECT["packages"]["survey"], "fitting": {**PROJECT["packages"]["survey"]}}
    alone: Facts = {"packages": packages, "people": {"Ann": PROJECT["people"]["Ann"]}}
    with pytest.raises(NoCaseError):  # either first: 4 k$, starts 1 + 3
        allocation.search(alone, 10)
    packages["fitting"]["after"] = ["survey"]
    assert allocation.search(alone, 10)[1] == 0


@pytest.mark.parametrize(
    ("survey", "training", "reward", "broken"),
    [
        (("Bob", 1), ("Bob", 3), 0.1 + 0.5 * 0, None),  # 6 + 9 + 2 = 17 k$, what the dearest people cost
        (("Ann", 1), ("Bob", 4), 0.1 + 0.5 * 2 / 4, None),  # a day later: 15 k$
        (("Ann", 1), ("Bob", 2), 0.1 * 4 / 5, "order"),
        (("Ann", 1), ("Ann", 3), 0.1 * 4 / 5, "skills"),
        (("Bob", 2), ("Bob", 3), 0.1 * 3 / 5, "capacity"),  # and the order: the survey is finished on day 3
    ],
)
def test_allocation_verdict(
    survey: tuple[str, int], training: tuple[str, int], reward: float, broken: str | None
) -> None:
    plan = [
        {"package": "survey", "who": survey[0], "start": survey[1]},
        {"package": "training", "who": training[0], "start": training[1]},
    ]
    best = allocation.write_plan(PROJECT, ("Ann", "Bob"), {"survey": 1, "training": 3})
    case = make_case(PROJECT, {"plan": best, "cost": 13, "starts": 4, "blind": 17})
    verdict = allocation.FAMILY.verify(case, json.dumps({"plan": plan}))
    assert verdict.reward == pytest.approx(reward)
    assert broken is None or verdict.parts[broken] == 0


def test_allocation_skips_absence_and_travels() -> None:
    person = {"absent": [4, 5]}
    assert allocation.skip_absence(person, 2, 2) == 2  # days 2 and 3
    assert allocation.skip_absence(person, 2, 3) == 6  # would fill day 4
    packages = {
        "a": {"skill": "data", "days": 2, "after": [], "site": "north"},
        "b": {"skill": "data", "days": 1, "after": [], "site": "south"},
    }
    facts: Facts = {"packages": packages, "people": {"Ann": {"skills": ["data"], "rate": 1, "from": 2}}}
    assert allocation.start_early(facts, {"Ann": ("a", "b")}) == {"a": 2, "b": 5}  # day 4 is for the road
    assert allocation.start_early(facts, {"Ann": ("b", "a")}) == {"b": 2, "a": 4}


REGISTER: Facts = {
    "assets": {
        "shop": {"value": 500, "exposed": True, "password": True, "months": 7, "incidents": 1},
        "ledger": {"value": 1000, "exposed": False, "password": True, "months": 6, "incidents": 0},
    },
    "threats": {"known hole": {"when": ["old", "exposed"]}, "stolen password": {"when": ["password"]}},
    "controls": {
        "patch service": {"cost": 10, "steps": {"known hole": 2}},
        "second factor": {"cost": 8, "steps": {"stolen password": 1}},
        "traffic filter": {"cost": 4, "steps": {"known hole": 1}},
    },
    "budget": 12,
    "appetite": 9,
}


def test_threats_are_found_rated_and_lowered() -> None:
    risks = threats.find_risks(REGISTER)
    # shop: 1 + exposed + incident = 3, impact 3; ledger: patched 6 months ago is not more than 6; impact 4
    assert risks == {
        ("known hole", "shop"): (3, 3),
        ("stolen password", "shop"): (3, 3),
        ("stolen password", "ledger"): (1, 4),
    }
    # second factor and filter for 12: 2 x 3 + 2 x 3 + 0 x 4 = 12; patch service alone leaves 3 + 9 + 4 = 16
    assert threats.apply_controls(REGISTER, risks, ["second factor", "traffic filter"]) == (12, 12, 6)
    ranked = threats.rank_kept(REGISTER, threats.list_affordable(REGISTER, risks))
    assert ranked[0] == (12, 12, ("second factor", "traffic filter"))


def test_covered_control_counts_for_nothing_and_threats_spread() -> None:
    facts: Facts = {**REGISTER, "covers": ["patch service", "traffic filter"]}
    assert threats.count_steps(facts, ["patch service", "traffic filter"])["known hole"] == 2
    assert threats.count_steps(facts, ["traffic filter"])["known hole"] == 1
    spread = {"known hole": {"when": ["old", "exposed"], "spreads": True}}
    facts = {**REGISTER, "threats": spread, "links": [["ledger", "shop"]]}
    assert threats.find_risks(facts)["known hole", "ledger"] == (1, 4)


def test_naming_every_threat_finds_nothing() -> None:
    real = {("a", "x"), ("b", "x")}
    everything = {(threat, asset) for threat in "ab" for asset in "xyz"}
    assert score_named(everything, real, 6) == 0.0
    assert score_named(real, real, 6) == 1.0
    # one of two, nothing false: F1 2/3 against 1/2 for naming all six
    assert score_named({("a", "x")}, real, 6) == pytest.approx((2 / 3 - 1 / 2) / (1 / 2))


def test_bill_adds_commitment_step_fee_and_rebate() -> None:
    service = {
        "units": [10],
        "floor": 40,
        "weight": 1,
        "tiers": {
            "basic": {"price": 3, "quality": 50, "vendor": "Norda"},
            "premium": {"price": 5, "quality": 70, "vendor": "Velis"},
        },
        "commit": {"units": 12, "less": 1},
        "step": {"beyond": 8, "less": 1},
        "present": {"tier": "basic", "fee": 4},
    }
    assert bill.price_service(service, "basic", commits=False) == ([28], 0)  # 30 - 2 units beyond 8
    assert bill.price_service(service, "basic", commits=True) == ([20], 0)  # 12 x 3 - 12 - 4
    assert bill.price_service(service, "premium", commits=False) == ([48], 4)
    facts: Facts = {
        "years": 1, "services": {"storage": service}, "average": 45, "budget": 30,
        "rebates": {"Norda": {"from": 28, "off": 9}},
    }  # fmt: skip
    assert bill.find_bill(facts, (("basic", False),)) == (28, 9)  # 19 k$: less than 20 with the commitment
    tried, (cost, choice) = bill.search(facts, 10)
    assert (cost, choice) == (19, (("basic", False),))
    assert [before for before, _, _ in tried] == [20, 28]


SEATS: Facts = {
    "CTO": {"points": {"A": 30, "B": 25}, "leaves_below": 20},
    "COO": {"points": {"A": 40, "B": 35}, "leaves_below": 30},
    "Risk": {"points": {"A": 11, "B": 13}, "leaves_below": 10},
}


@pytest.mark.parametrize(("rule", "fair"), [("nash", "A"), ("leximin", "B"), ("equal shares", "B")])
def test_tradeoff_follows_the_rule_of_the_case(rule: str, fair: str) -> None:
    # gains A 10 10 1 (product 100, least 1, shares 1 1 1/3), B 5 5 3 (product 75, least 3, shares 1/2 1/2 1)
    facts: Facts = {
        "packages": {"A": {"cost": 5}, "B": {"cost": 5}},
        "seats": SEATS,
        "rule": rule,
        "budget": 5,
    }
    ranked = tradeoff.rank(facts, tradeoff.list_open(facts))
    assert ranked[0][1] == (fair, ())
    if rule == "equal shares":
        assert ranked[1][0][0] == Fraction(1, 3)


def test_tradeoff_weight_two_counts_twice() -> None:
    seats = {**SEATS, "Risk": {**SEATS["Risk"], "weight": 2}}
    facts: Facts = {
        "packages": {"A": {"cost": 5}, "B": {"cost": 5}},
        "seats": seats,
        "rule": "nash",
        "budget": 5,
    }
    # 10 x 10 x 1 x 1 = 100 against 5 x 5 x 3 x 3 = 225
    assert tradeoff.rank(facts, tradeoff.list_open(facts))[0] == ((225,), ("B", ()))


def test_tradeoff_veto_needs_claim_and_figure() -> None:
    def open_outcomes(figure_of_a: int) -> list[tuple[str, tuple[str, ...]]]:
        veto = {"limit": 10, "figures": {"A": figure_of_a, "B": 11}, "vetoes": ["A"]}
        seats = {**SEATS, "CTO": {**SEATS["CTO"], **veto}}
        packages = {"A": {"cost": 5}, "B": {"cost": 6}}
        return tradeoff.list_open({"packages": packages, "seats": seats, "rule": "nash", "budget": 6})

    assert open_outcomes(11) == [("B", ())]  # over the limit on both, claimed on A alone
    assert open_outcomes(10) == [("A", ()), ("B", ())]


def test_tradeoff_conflict_needs_a_loss_on_both_sides() -> None:
    seats = {
        "CTO": {"points": {"A": 50, "B": 30}, "leaves_below": 0},
        "COO": {"points": {"A": 30, "B": 40}, "leaves_below": 0},
        "Risk": {"points": {"A": 30, "B": 35}, "leaves_below": 0},
    }
    facts: Facts = {
        "packages": {"A": {"cost": 5}, "B": {"cost": 5}},
        "seats": seats,
        "rule": "nash",
        "budget": 5,
    }
    favourites = tradeoff.find_favourites(facts)
    assert favourites == {"CTO": "A", "COO": "B", "Risk": "B"}
    assert tradeoff.find_conflicts(facts, favourites) == [["CTO", "COO"]]  # Risk loses 5 only
