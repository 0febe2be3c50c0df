"""Plain-code judgement of a draft against numbers worked out by hand."""

import pytest

from roles.team import Decision, SpecialistReport
from simulator.conflicts import Conflict
from simulator.governance.resolution import (
    KPI_FLOOR,
    WATCHED_KPI_FLOOR,
    list_conflicts,
    make_parts,
    resolve,
    score_options,
    score_risk,
)

OPTIONS = ("A", "B", "C")


def say(pick: str, flag: int, *veto: str) -> SpecialistReport:
    return SpecialistReport(pick=pick, flag=flag, veto=list(veto))


def decide(option: str) -> Decision:
    return Decision(option=option, escalate=option == "none")


SPLIT = {"cto": say("B", 3, "A"), "coo": say("A", 0), "risk": say("B", 1), "cost": say("C", 2)}
UNANIMOUS = {role: say("B", 1) for role in SPLIT}


def test_scores_are_shares_of_the_pressing() -> None:
    # pressing: cto 4, coo 1, risk 2, cost 3 = 10; A is vetoed
    assert score_options(OPTIONS, SPLIT, {}) == {"A": 0, "B": 60, "C": 30}
    assert score_options(OPTIONS, SPLIT, {"C": "failed"}) == {"A": 0, "B": 60, "C": 0}
    assert score_options(OPTIONS, dict.fromkeys(SPLIT), {}) == {"A": 0, "B": 0, "C": 0}


def test_conflicts_name_both_sides_the_hard_ones_first() -> None:
    reports = {**SPLIT, "cost": say("C", 2, "B")}
    assert list_conflicts(OPTIONS, reports) == [
        Conflict(option="A", wanted_by=["coo"], ruled_out_by=["cto"]),
        Conflict(option="B", wanted_by=["cto", "risk"], ruled_out_by=["cost"]),
        Conflict(option="C", wanted_by=["cost"], ruled_out_by=[]),
    ]
    assert list_conflicts(OPTIONS, UNANIMOUS) == []


@pytest.mark.parametrize(
    ("option", "objectors", "ruled_out", "risk"),
    [
        ("B", [], {}, 2),  # coo flag 0, cost flag 2
        ("B", ["cost"], {}, 4),
        ("B", ["cost"], {"C": "failed"}, 5),
        ("A", [], {}, 4 + 3 + 1 + 2),  # the cto's veto, flags of cto, risk, cost
        ("A", ["cto", "risk"], {}, 12),
    ],
)
def test_risk_by_hand(option: str, objectors: list[str], ruled_out: dict[str, str], risk: int) -> None:
    assert score_risk(SPLIT, option, objectors, ruled_out) == risk


def test_a_seat_without_report_costs_two() -> None:
    assert score_risk({**UNANIMOUS, "cto": None}, "B", [], {}) == 2


def test_decision_types() -> None:
    routine = resolve(OPTIONS, UNANIMOUS, decide("B"))
    assert (routine.decision_type, routine.risk_score, routine.watched) == ("routine", 0, [])
    contested = resolve(OPTIONS, SPLIT, decide("B"))
    assert (contested.decision_type, contested.risk_score, contested.watched) == ("contested", 2, ["cost"])
    critical = resolve(OPTIONS, SPLIT, decide("B"), objectors=["cto", "coo", "risk"])
    assert (critical.decision_type, critical.risk_score) == ("critical", 8)
    assert critical.watched == list(SPLIT)


@pytest.mark.parametrize(
    ("decision", "ruled_out", "why"),
    [
        (None, {}, "no valid decision"),
        (decide("none"), {}, "hands the case on"),
        (decide("Z"), {}, "no option of the case"),
        (decide("A"), {}, "breaks the hard limit of cto"),
        (decide("B"), {"B": "execution broke it"}, "ruled out before"),
    ],
)
def test_what_goes_to_the_reviewer(decision: Decision | None, ruled_out: dict[str, str], why: str) -> None:
    resolution = resolve(OPTIONS, SPLIT, decision, ruled_out=ruled_out)
    assert why in resolution.escalated_because
    assert (resolution.option, resolution.decision_type, resolution.risk_score) == ("none", "escalation", 12)
    assert make_parts(list(SPLIT), resolution) == []
    assert resolution.conditions[-1].startswith("escalated: ")


def test_a_reviewer_may_overrule_a_veto_and_sees_what_it_costs() -> None:
    resolution = resolve(OPTIONS, SPLIT, decide("A"), is_overruling=True)
    assert (resolution.option, resolution.risk_score, resolution.decision_type) == ("A", 10, "critical")
    parts = make_parts(list(SPLIT), resolution)
    assert [part.kpi_floor for part in parts] == [WATCHED_KPI_FLOOR] * 4
    assert "option A" in parts[0].action


def test_watched_seats_get_the_higher_floor() -> None:
    parts = make_parts([*SPLIT, "legal"], resolve(OPTIONS, SPLIT, decide("B")))
    assert {part.role: part.kpi_floor for part in parts} == {
        "cto": KPI_FLOOR,
        "coo": KPI_FLOOR,
        "risk": KPI_FLOOR,
        "cost": WATCHED_KPI_FLOOR,
        "legal": KPI_FLOOR,
    }
    assert parts[-1].action == "carry out its part of option B"
