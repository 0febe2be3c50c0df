"""Cases and checked reports by hand, as ReconcileGPT reads them."""

from collections.abc import Mapping

from scenarios.company.records import Option
from scenarios.team import PublicCase
from scenarios.team.offers import CheckedReport, TabledOffer

BASES = {"A": 30, "B": 20}


def make_public(
    budget: int, bases: Mapping[str, int] = BASES, seats: tuple[str, ...] = ("cto", "coo")
) -> PublicCase:
    options = {letter: Option(letter=letter, name=letter, base=base) for letter, base in bases.items()}
    return PublicCase(sector="", situation="", options=options, budget=budget, seats=seats)


def tabled(seat: str, *offers: tuple[str, int, int], needs: tuple[str, ...] = ()) -> CheckedReport:
    """A seat's report of (option, cost, worth) each."""
    found = tuple(
        TabledOffer(label=seat, seat=seat, option=option, choice=(f"part {option}",), cost=cost, worth=worth)
        for option, cost, worth in offers
    )
    return CheckedReport(offers=found, needs=needs, veto=(), note="", false_claims=())
