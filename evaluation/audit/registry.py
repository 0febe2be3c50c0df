"""Every verifier under audit by name: a role's is its file here and one line; the team has four.

A family without a file here is audited as far as the family itself allows: see `derive_subject`.
"""

from typing import Any

from evaluation.audit.families.parts import audit_parts
from evaluation.audit.families.reports import SUBJECT as RECONCILE
from evaluation.audit.families.team import SUBJECTS as TEAM
from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES

SUBJECTS: dict[str, Subject] = {
    "cto": audit_parts(FAMILIES["cto"]),
    "coo": audit_parts(FAMILIES["coo"]),
    "risk": audit_parts(FAMILIES["risk"]),
    "cost": audit_parts(FAMILIES["cost"]),
    "reconcile": RECONCILE,
    **TEAM,
}


def derive_subject(family: Family) -> Subject:
    """Return what an audit can know of a family from its oracle: the answer's fields and the best answer.

    Probes that need a score by another route or shortcuts of the family (V2, V3, V5, V6) need a file here.
    """
    gold: dict[str, Any] = family.solve(family.generate("validation", 0, 0, 1))
    fields = {name: Field(kind="number" if type(value) is int else "id") for name, value in gold.items()}

    def score(scenario: Scenario, answer: Answer) -> float:
        return float(answer == family.solve(scenario))

    return Subject(family=family, fields=fields, score=score, hacks={}, bounded_from=None)


def list_subjects() -> dict[str, Subject]:
    """Return every subject by name, those that are derived from a family last."""
    derived = {name: derive_subject(family) for name, family in FAMILIES.items() if name not in SUBJECTS}
    return SUBJECTS | derived
