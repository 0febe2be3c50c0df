"""Audit of the families cto, coo, risk and cost: parts are measured again from the texts alone."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from evaluation.audit.families.independent_parser import combine_score, weigh_smaller
from evaluation.audit.records import Answer, Field, Subject
from evaluation.audit.text_solvers import PricedPart, list_parts_from_text
from scenarios.base import Family, Scenario, ToolCall

Choose = Callable[[Sequence[PricedPart], int], PricedPart]


def _list_upgrades(scenario: Scenario) -> list[str]:
    return list(scenario.facts["structure"]["upgrades"])


def _spend_most(parts: Sequence[PricedPart], amount: int) -> PricedPart:
    return max((part for part in parts if part.cost <= amount), key=lambda part: part.cost)


def _buy_most(parts: Sequence[PricedPart], amount: int) -> PricedPart:
    return max(
        (part for part in parts if part.cost <= amount), key=lambda part: (len(part.names), -part.cost)
    )


def _buy_all(parts: Sequence[PricedPart], amount: int) -> PricedPart:
    return max(parts, key=lambda part: (len(part.names), part.worth))


def _buy_cheapest(parts: Sequence[PricedPart], amount: int) -> PricedPart:
    return min((part for part in parts if part.names), key=lambda part: part.cost)


def _overspend(parts: Sequence[PricedPart], amount: int) -> PricedPart:
    return max(parts, key=lambda part: part.worth)


SHORTCUTS: dict[str, Choose] = {
    "as much money as allowed": _spend_most,
    "as many upgrades as allowed": _buy_most,
    "all upgrades, amount ignored": _buy_all,
    "the cheapest upgrade": _buy_cheapest,
    "the best part, amount and limit ignored": _overspend,
}


def audit_parts(family: Family) -> Subject:
    """The subject of one seat's family.

    Example: audit_parts(FAMILIES["risk"]).hacks["the cheapest upgrade"](scenario)["cost"]
    """

    @lru_cache(maxsize=512)
    def price(brief: str, description: str) -> tuple[int, list[PricedPart]]:
        return list_parts_from_text(family.role, brief, description)

    def read(scenario: Scenario) -> tuple[int, list[PricedPart]]:
        call = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
        return price(scenario.brief, family.call_tool(scenario, call))

    def score(scenario: Scenario, answer: Answer) -> float:
        amount, parts = read(scenario)
        chosen = next((part for part in parts if sorted(part.names) == sorted(answer["part"])), None)
        open_parts = [part for part in parts if part.keeps_limit and part.cost <= amount]
        if chosen not in open_parts or chosen is None:
            return 0.0
        best = max(open_parts, key=lambda part: (part.worth, -part.cost))
        stated = [answer["cost"] == chosen.cost, answer["worth"] == chosen.worth]
        if chosen == best:
            return combine_score(1.0, stated)
        worths = [-part.worth for part in open_parts]
        return combine_score(min(0.9, weigh_smaller(-chosen.worth, worths)), stated)

    def take(choose: Choose) -> Callable[[Scenario], Answer]:
        def answer(scenario: Scenario) -> Answer:
            amount, parts = read(scenario)
            part = choose(parts, amount)
            return {"part": list(part.names), "cost": part.cost, "worth": part.worth}

        return answer

    return Subject(
        family=family,
        fields={
            "part": Field(kind="set", names=_list_upgrades),
            "cost": Field(kind="number", largest=60),
            "worth": Field(kind="number", most_flattering=99),
        },
        score=score,
        hacks={name: take(choose) for name, choose in SHORTCUTS.items()},
    )
