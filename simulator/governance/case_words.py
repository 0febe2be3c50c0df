"""The case in words for a reviewer, and what changed from one proposal to the next."""

from collections.abc import Mapping
from typing import Any

from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.governance.gate.approvals import CaseWords, Proposal

COMPARED = ("option", "decision_type", "risk_score", "accountable")


def describe_case(case: PlayableCase) -> CaseWords:
    """Describe a written case in its own words, a generated one by each option's worth to every seat."""
    if isinstance(case, FreeCase):
        return CaseWords(title=case.title, context=case.context, meanings=dict(case.meanings))
    sector = case.sector.capitalize() if isinstance(case, TeamScenario) else "Company"
    return CaseWords(
        title=f"{sector} case: which option does the company take?",
        context="",
        meanings={option: _say_worth(case, option) for option in case.options},
    )


def _say_worth(case: PlayableCase, option: str) -> str:
    worths = [
        f"{role} {seat.facts['utilities'][option]} (limit {seat.facts['limit']})"
        for role, seat in case.seats.items()
        if seat.facts
    ]
    return f"worth to {', '.join(worths)}" if worths else ""


def list_changes(before: Mapping[str, Any] | None, now: Proposal) -> list[str]:
    """List in words what differs from the proposal before; nothing for the first."""
    if before is None:
        return []
    after = now.model_dump()
    changes = [
        f"{name.replace('_', ' ')}: {before.get(name)} before, {after[name]} now"
        for name in COMPARED
        if before.get(name) != after[name]
    ]
    old, new = list(before.get("conditions", [])), after["conditions"]
    changes += [f"new condition: {one}" for one in new if one not in old]
    changes += [f"condition dropped: {one}" for one in old if one not in new]
    floors = {part["role"]: part["kpi_floor"] for part in before.get("parts", [])}
    changes += [
        f"alert floor of {part.role}: {floors[part.role]} before, {part.kpi_floor} now"
        for part in now.parts
        if floors.get(part.role, part.kpi_floor) != part.kpi_floor
    ]
    return changes
