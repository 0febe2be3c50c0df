"""Solves reconcile questions from the user message alone: a second implementation of the rules as stated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

_OPTION = re.compile(r"Option ([A-Z]): .+\. Worth (-?\d+) k\$ before any spending\.")
_OFFER = re.compile(r"- \[(\w+)\] .+: cost (\d+) k\$, worth (-?\d+) k\$\.( Needed)?")
_CLOSED = ("vetoes it", "it cannot be run")


@dataclass(frozen=True, slots=True)
class ReadOffer:
    """An offer as the text states it. Example: ReadOffer(9, 14, False)"""

    cost: int
    worth: int
    is_needed: bool


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan that can be run. Example: ReadPlan("B", ("cto", "risk"), 38, 71)"""

    option: str
    fund: tuple[str, ...]
    cost: int
    worth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportText:
    """Facts that the text states. Example: read_report_text(scenario.brief, SPECIALISTS).best.option"""

    seats: tuple[str, ...]
    values: Mapping[str, int]  # option -> k$ before any spending
    offers: Mapping[str, Mapping[str, ReadOffer]]  # option -> label -> offer
    plans: tuple[ReadPlan, ...]  # all that can be run

    @property
    def best(self) -> ReadPlan | None:
        """The plan of the greatest worth, of equal worth the cheaper; None where none can be run."""
        return max(self.plans, key=lambda plan: (plan.worth, -plan.cost), default=None)

    def list_conflicts(self, option: str) -> list[str]:
        """The seats to whom another option is worth more than this one."""
        conflicts = []
        for seat in self.seats:
            own = {letter: self.offers[letter].get(seat) for letter in self.values}
            totals = {
                letter: value + max(0, offer.worth if (offer := own[letter]) else 0)
                for letter, value in self.values.items()
            }
            if totals[option] < max(totals.values()):
                conflicts.append(seat)
        return conflicts


def read_report_text(brief: str, seats: tuple[str, ...]) -> ReportText:
    """The text as figures; `seats` are the names that labels stand for."""
    found = re.search(r"Budget: (\d+) k\$", brief)
    assert found, brief
    budget = int(found.group(1))
    values: dict[str, int] = {}
    offers: dict[str, dict[str, ReadOffer]] = {}
    closed = set()
    letter = ""
    for line in brief.splitlines():
        if found := _OPTION.fullmatch(line):
            letter = found.group(1)
            values[letter], offers[letter] = int(found.group(2)), {}
        elif found := _OFFER.match(line):
            label, cost, worth, needed = found.groups()
            offers[letter][label] = ReadOffer(int(cost), int(worth), bool(needed))
        elif line.startswith("- ") and any(words in line for words in _CLOSED):
            closed.add(letter)
    plans = [
        plan
        for option, value in values.items()
        if option not in closed
        for plan in _list_plans(option, value, offers[option])
        if plan.cost <= budget
    ]
    return ReportText(seats=seats, values=values, offers=offers, plans=tuple(plans))


def _list_plans(option: str, value: int, offers: Mapping[str, ReadOffer]) -> list[ReadPlan]:
    needed = {label for label, offer in offers.items() if offer.is_needed}
    return [
        ReadPlan(
            option,
            fund,
            sum(offers[label].cost for label in fund),
            value + sum(offers[label].worth for label in fund),
        )
        for count in range(len(offers) + 1)
        for fund in combinations(offers, count)
        if needed <= set(fund)
    ]


def solve_reports_from_text(brief: str, seats: tuple[str, ...]) -> dict[str, Any]:
    """The best decision by the text."""
    text = read_report_text(brief, seats)
    if text.best is None:
        return {"option": "none", "fund": [], "escalate": True, "conflicts": []}
    option, fund = text.best.option, list(text.best.fund)
    return {"option": option, "fund": fund, "escalate": False, "conflicts": text.list_conflicts(option)}
