"""Conflicts between the seats' reports: options that some favour and others do not, or rule out."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from scenarios.team import CheckedReport, PublicCase, Table
from scenarios.team.funding import list_favoured
from scenarios.team.offers import offers_on

Name = Annotated[str, Field(min_length=1, max_length=500)]


class Conflict(BaseModel):
    """One option over which seats pull apart.

    Example: Conflict(option="B", wanted_by=["cto", "cost"], ruled_out_by=["risk"], over_budget=7)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    option: Name
    wanted_by: list[Name]  # seats for which its base and their own best offer are worth most
    ruled_out_by: list[Name]  # seats that veto it, or need a part on it and offer none
    over_budget: int = 0  # k$ by which all seats' offers on it together exceed the budget

    @property
    def is_hard(self) -> bool:
        """Whether a hard limit stands against it."""
        return bool(self.ruled_out_by)


def find_conflicts(public: PublicCase, table: Table) -> list[Conflict]:
    """List the options that seats favour, in order, if there is anything to settle.

    There is where these are several, or where one is ruled out or its offers exceed the budget.
    """
    heard = {seat: report for seat, report in table.items() if report is not None}
    favoured = {seat: list_favoured(public, table, seat) for seat in heard}
    wanted = {option: [seat for seat in heard if option in favoured[seat]] for option in public.options}
    conflicts = [
        Conflict(
            option=option,
            wanted_by=seats,
            ruled_out_by=[seat for seat, report in heard.items() if _rules_out(report, option)],
            over_budget=max(0, _largest_bill(heard, option) - public.budget),
        )
        for option, seats in wanted.items()
        if seats
    ]
    is_settled = len(conflicts) == 1 and not conflicts[0].is_hard and not conflicts[0].over_budget
    return [] if is_settled else conflicts


def _rules_out(report: CheckedReport, option: str) -> bool:
    offers_none = all(offer.option != option for offer in report.offers)
    return option in report.veto or (option in report.needs and offers_none)


def _largest_bill(heard: Mapping[str, CheckedReport], option: str) -> int:
    """Return what the dearest offer of every seat costs together."""
    dearest: dict[str, int] = {}
    for offer in offers_on(heard, option):
        dearest[offer.seat] = max(offer.cost, dearest.get(offer.seat, 0))
    return sum(dearest.values())
