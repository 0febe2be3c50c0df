"""A company case worked out by hand: Northbank replaces its card-payment switch. Two options, four seats.

By hand: B with all four first offers costs 40 and is worth 100, the optimum. A with all four costs 34 and is
worth 90; with the CTO's dearer part it costs 40 and is worth 98.
"""

import itertools
import json
from dataclasses import replace

from scenarios.company.records import CompanyCase, Option, Part
from scenarios.team import Seat, TeamScenario, seat_team
from scenarios.team.experts import best_report

# seat -> option -> (choice, cost, worth, keeps limit); buying nothing stands first
PARTS = {
    "cto": {
        "A": [
            ((), 0, 0, False),
            (("spare gateway",), 9, 14, True),
            (("spare gateway", "cache"), 15, 22, True),
        ],
        "B": [((), 0, 0, True), (("spare ledger node",), 8, 21, True)],
    },
    "coo": {
        "A": [((), 0, 0, True), (("weekend overtime",), 7, 10, True)],
        "B": [((), 0, 0, False), (("contractor crew",), 14, 25, True)],
    },
    "risk": {
        "A": [((), 0, 0, True), (("tokenisation",), 8, 19, True)],
        "B": [
            ((), 0, 0, True),
            (("fraud scoring",), 6, 9, True),
            (("fraud scoring", "key vault"), 13, 20, True),
        ],
    },
    "cost": {
        "A": [((), 0, 0, True), (("committed volume",), 10, 17, True)],
        "B": [((), 0, 0, True), (("reserved capacity",), 5, 8, True)],
    },
}


def make_northbank(budget: int = 40) -> CompanyCase:
    """The case; its structures are left empty, its parts are those of the table above."""
    parts = {
        seat: {
            option: tuple(
                Part(
                    seat=seat,
                    option=option,
                    choice=choice,
                    cost=cost,
                    worth=worth,
                    keeps_limit=keeps,
                    figures={},
                )
                for choice, cost, worth, keeps in rows
            )
            for option, rows in options.items()
        }
        for seat, options in PARTS.items()
    }
    return CompanyCase(
        split="train",
        seed=0,
        index=0,
        difficulty=1,
        sector="bank",
        situation="Northbank's vendor ends support for the card-payment switch in 14 months.",
        options={
            "A": Option(letter="A", name="the hosted switch of the card network", base=30),
            "B": Option(letter="B", name="a switch on our own platform", base=26),
        },
        budget=budget,
        rates={seat: {} for seat in PARTS},
        limits={seat: {} for seat in PARTS},
        structures={seat: {"A": {}, "B": {}} for seat in PARTS},
        parts=parts,
    )


def seat_northbank(budget: int = 40) -> TeamScenario:
    """The case at the table; its seats know lists of upgrades in place of structures."""
    scenario = seat_team(make_northbank(budget))
    seats = {seat: Seat(role=seat, facts=_list_upgrades(seat)) for seat in scenario.seats}
    return replace(scenario, seats=seats)


def _list_upgrades(seat: str) -> dict[str, object]:
    """Every upgrade by itself: the parts above are sums of these, but some cannot be bought alone."""
    upgrades: dict[str, dict[str, dict[str, int]]] = {}
    needs = {}
    for option, rows in PARTS[seat].items():
        upgrades[option] = {}
        for before, row in itertools.pairwise(rows):
            choice, cost, worth, _ = row
            known = before if set(before[0]) < set(choice) else rows[0]
            name = next(name for name in choice if name not in known[0])
            upgrades[option][name] = {"cost": cost - known[1], "worth": worth - known[2]}
        if not rows[0][3]:
            needs[option] = list(rows[1][0])
    return {"upgrades": upgrades, "needs": needs}


def write_report(seat: str, habit: str = "full", budget: int = 40) -> str:
    """An expert's report on the case, as JSON."""
    return json.dumps(best_report(seat_team(make_northbank(budget)), seat, habit).model_dump())
