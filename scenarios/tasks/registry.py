"""Families outside the table by name, and who answers them: the roles' whole jobs, and tasks for a solver.

The families of one seat's part of a plan are in `scenarios.registry`.
"""

from roles.base import Role
from scenarios.base import Family
from scenarios.jobs import allocation, architecture, bill, threats, tradeoff
from scenarios.tasks import lookup, maths, programs

_JOBS = (architecture, allocation, threats, bill, tradeoff)  # CTO, COO, Risk, Cost, ReconcileGPT: whole jobs
_ALL = (*_JOBS, maths, lookup, programs)
JOBS: tuple[str, ...] = tuple(module.NAME for module in _JOBS)
TASK_FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in _ALL}
TASK_ROLES: dict[str, Role] = {module.ROLE.name: module.ROLE for module in _ALL}
