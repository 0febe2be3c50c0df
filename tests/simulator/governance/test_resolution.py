"""Plain-code judgement of a draft against numbers worked out by hand."""

import pytest

from roles.team import Decision
from scenarios.company.records import Option
from scenarios.team.offers import CheckedReport, TabledOffer
from scenarios.team.playable import PublicCase
from simulator.conflicts import Conflict
from simulator.governance.precedents import Precedent
from simulator.governance.resolution import (
    KPI_FLOOR,
    assign_duty,
    decide_for,
    list_option_lines,
    make_parts,
    resolve,
    score_risk,
)

SEATS = ("cto", "coo", "risk", "cost")
PUBLIC = PublicCase(
    sector="bank",
    situation="",
    options={
        letter: Option(letter=letter, name=letter, base=base) for letter, base in (("A", 30), ("B", 26))
    },
    budget=40,
    seats=SEATS,
)


def report(
    seat: str, *offers: tuple[str, int, int], needs: str = "", veto: str = "", false: int = 0
) -> CheckedReport:
    return CheckedReport(
        offers=tuple(
            TabledOffer(
                label=seat, seat=seat, option=option, choice=(f"{seat} part",), cost=cost, worth=worth
            )
            for option, cost, worth in offers
        ),
        needs=tuple(needs),
        veto=tuple(veto),
        note="",
        false_claims=("a claim",) * false,
    )


# the worked case: all of A costs 34 and is worth 90, all of B 40 and 100
TABLE = {
    "cto": report("cto", ("A", 9, 14), ("B", 8, 21), needs="A"),
    "coo": report("coo", ("A", 7, 10), ("B", 14, 25), needs="B"),
    "risk": report("risk", ("A", 8, 19), ("B", 13, 20)),
    "cost": report("cost", ("A", 10, 17), ("B", 5, 8)),
}


def fund(option: str, *seats: str) -> Decision:
    return Decision(option=option, fund=list(seats), escalate=False)


def test_the_worked_case_is_a_plan_of_four_parts() -> None:
    resolution = resolve(PUBLIC, TABLE, fund("B", *SEATS))
    assert (resolution.option, resolution.cost, resolution.worth) == ("B", 40, 100)
    assert resolution.risk_score == 2  # the COO's part is needed, and no money is left
    assert resolution.decision_type == "routine"
    assert resolution.conditions == ["coo must deliver coo part: B breaks its limit without it"]
    parts = make_parts(SEATS, resolution)
    assert [(part.role, part.choice, part.cost, part.worth) for part in parts] == [
        ("cto", ["cto part"], 8, 21),
        ("coo", ["coo part"], 14, 25),
        ("risk", ["risk part"], 13, 20),
        ("cost", ["cost part"], 5, 8),
    ]
    assert parts[1].action == "staff coo part on option B for 14 k$"
    assert {(part.kpi_floor, part.most_lost) for part in parts} == {(KPI_FLOOR, 15)}


def test_options_are_shown_with_their_best_plans() -> None:
    lines = {line.option: line for line in list_option_lines(PUBLIC, TABLE, {})}
    assert (lines["A"].worth, lines["A"].cost, lines["A"].fund) == (90, 34, list(SEATS))
    assert (lines["B"].worth, lines["B"].cost) == (100, 40)
    vetoed = {**TABLE, "risk": report("risk", veto="A")}
    (line, other) = list_option_lines(PUBLIC, vetoed, {"B": "the reviewer rejected it"})
    assert (line.worth, line.obstacle) == (None, "A is vetoed by risk")
    assert (other.worth, other.obstacle) == (None, "ruled out")


@pytest.mark.parametrize(
    ("decision", "changed", "ruled_out", "reason"),
    [
        (None, {}, {}, "ReconcileGPT wrote no valid decision"),
        (Decision(option="none", fund=[], escalate=True), {}, {}, "ReconcileGPT hands the case on"),
        (fund("C"), {}, {}, "the draft names no option of the case"),
        (fund("A", "cto"), {}, {"A": "the reviewer rejected it"}, "A was ruled out before"),
        (fund("A", "cto", "nobody"), {}, {}, "the draft funds what was not offered"),
        (fund("B", "cto"), {}, {}, "B needs coo"),
        (fund("B", "coo"), {"risk": report("risk", veto="B")}, {}, "B is vetoed by risk"),
        (
            fund("B", *SEATS),
            {"cost": report("cost", ("B", 6, 8))},
            {},
            "cost 41 is 1 over the budget",
        ),
    ],
)
def test_what_cannot_be_run_goes_to_the_reviewer(
    decision: Decision | None, changed: dict[str, CheckedReport], ruled_out: dict[str, str], reason: str
) -> None:
    resolution = resolve(PUBLIC, {**TABLE, **changed}, decision, ruled_out=ruled_out)
    assert (resolution.option, resolution.decision_type, resolution.worth) == ("none", "escalation", 0)
    assert resolution.risk_score == 12
    assert resolution.conditions[-1] == f"escalated: {reason}"
    assert make_parts(SEATS, resolution) == []


@pytest.mark.parametrize(
    ("changed", "funded", "objectors", "failures", "score"),
    [
        ({}, ("risk",), (), 0, 0),
        ({}, ("cto",), (), 0, 1),  # A hangs on it
        ({}, ("cto", "coo", "risk", "cost"), (), 0, 1),  # 34 of 40 k$ leave room
        ({"risk": None}, ("cto",), ("cost",), 0, 5),
        ({"risk": report("risk", false=3)}, ("cto",), (), 2, 4),
        (dict.fromkeys(SEATS), (), SEATS, 3, 12),
    ],
)
def test_risk_by_hand(
    changed: dict[str, CheckedReport | None],
    funded: tuple[str, ...],
    objectors: tuple[str, ...],
    failures: int,
    score: int,
) -> None:
    table = {**TABLE, **changed}
    offers = [
        offer
        for one in table.values()
        if one is not None
        for offer in one.offers
        if offer.option == "A" and offer.seat in funded
    ]
    assert score_risk(PUBLIC, table, offers, objectors, failures) == score


def test_a_seat_that_objects_is_watched_more_closely() -> None:
    resolution = resolve(PUBLIC, TABLE, fund("A", "cto", "risk"), objectors=["cost"])
    assert resolution.decision_type == "contested"
    assert {part.role: part.most_lost for part in make_parts(SEATS, resolution)} == {
        "cto": 9,  # 15 percent of 63
        "coo": 9,
        "risk": 9,
        "cost": 3,
    }
    assert resolution.conditions[-1] == (
        "cost objected and is watched: an alert from 5 percent of the worth lost"
    )


def test_a_reviewers_option_is_its_best_plan_and_no_broken_limit() -> None:
    assert decide_for(PUBLIC, TABLE, "A", {}) == fund("A", *SEATS)
    assert decide_for(PUBLIC, {**TABLE, "risk": report("risk", veto="A")}, "A", {}) is None
    handed = decide_for(PUBLIC, TABLE, "none", {})
    assert handed is not None
    assert handed.escalate


def test_conflicts_over_hard_limits_come_first() -> None:
    table = {**TABLE, "risk": report("risk", ("A", 8, 19), veto="B"), "cost": report("cost", ("A", 40, 50))}
    conflicts = resolve(PUBLIC, table, fund("A")).conflicts
    assert [conflict.is_hard for conflict in conflicts] == sorted(
        (conflict.is_hard for conflict in conflicts), reverse=True
    )
    assert Conflict(option="A", wanted_by=["risk", "cost"], ruled_out_by=[], over_budget=24) in conflicts


def test_duties_follow_from_what_is_funded_and_from_who_fell_before() -> None:
    parts = make_parts(SEATS, resolve(PUBLIC, TABLE, fund("A", "cto", "cost")))
    assert assign_duty(SEATS, parts, []) == (["cto", "cost"], "cost")  # who has the dearest part
    fallen = Precedent(
        case="c", company="", option="A", status="s", alerts=["cto", "coo"], worth=1, promised=2, actuals=[]
    )
    assert assign_duty(SEATS, parts, [fallen])[1] == "cto"
    nothing = make_parts(SEATS, resolve(PUBLIC, {**TABLE, "cto": report("cto")}, fund("A")))
    assert assign_duty(SEATS, nothing, [])[0] == list(SEATS)
