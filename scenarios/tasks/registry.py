"""Families outside the table by name, and who answers them: the roles' whole jobs, and tasks for a solver.

The families of one seat's part of a plan are in `scenarios.registry`.
"""

from roles.base import Role
from scenarios.base import Family
from scenarios.jobs import allocation, architecture, bill, threats, tradeoff
from scenarios.tasks import lookup, maths, programs, search_calculate

JOBS: tuple[str, ...] = ("architecture", "allocation", "threats", "bill", "tradeoff")  # CTO, COO, Risk, Cost,
# ReconcileGPT: each role's whole job
TASK_FAMILIES: dict[str, Family] = {
    "architecture": architecture.FAMILY,
    "allocation": allocation.FAMILY,
    "threats": threats.FAMILY,
    "bill": bill.FAMILY,
    "tradeoff": tradeoff.FAMILY,
    "maths": maths.FAMILY,
    "lookup": lookup.FAMILY,
    "search_calculate": search_calculate.FAMILY,
    "programs": programs.FAMILY,
}
TASK_ROLES: dict[str, Role] = {
    "architecture": architecture.ROLE,
    "allocation": allocation.ROLE,
    "threats": threats.ROLE,
    "bill": bill.ROLE,
    "tradeoff": tradeoff.ROLE,
    "maths": maths.ROLE,
    "lookup": lookup.ROLE,
    "search_calculate": search_calculate.ROLE,
    "programs": programs.ROLE,
}
