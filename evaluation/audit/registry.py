"""Every verifier under audit by name: a role's is its file here and one line; the team has four."""

from evaluation.audit.families.coo import SUBJECT as COO
from evaluation.audit.families.cost import SUBJECT as COST
from evaluation.audit.families.cto import SUBJECT as CTO
from evaluation.audit.families.reconcile import SUBJECT as RECONCILE
from evaluation.audit.families.risk import SUBJECT as RISK
from evaluation.audit.families.team import SUBJECTS as TEAM
from evaluation.audit.records import Subject

SUBJECTS: dict[str, Subject] = {
    "cto": CTO,
    "coo": COO,
    "risk": RISK,
    "cost": COST,
    "reconcile": RECONCILE,
    **TEAM,
}
