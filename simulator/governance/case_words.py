"""The case in words for a reviewer, and what changed from one proposal to the next."""

from collections.abc import Mapping
from typing import Any

from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.governance.gate.approvals import CaseWords, Proposal

COMPARED = ("option", "decision_type", "risk_score", "cost", "worth", "budget", "accountable")


def describe_case(case: PlayableCase) -> CaseWords:
    """Describe a case in its own words."""
    if isinstance(case, FreeCase):
        return CaseWords(title=case.title, context=case.context, meanings=case.meanings)
    public = case.public
    return CaseWords(
        title=f"{public.sector.capitalize()} case: which option does the company take, and what is funded?",
        context=public.situation,
        meanings={letter: option.name for letter, option in public.options.items()},
    )


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
    actions = {part["role"]: part["action"] for part in before.get("parts", [])}
    changes += [
        f"{part.role}: {actions.get(part.role, 'nothing')} before, {part.action} now"
        for part in now.parts
        if actions.get(part.role) != part.action
    ]
    old, new = list(before.get("conditions", [])), after["conditions"]
    changes += [f"new condition: {one}" for one in new if one not in old]
    changes += [f"condition dropped: {one}" for one in old if one not in new]
    return changes
