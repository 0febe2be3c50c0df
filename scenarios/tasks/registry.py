"""The generated task families and their solvers by name; role families are in `scenarios.registry`."""

from roles.base import Role
from scenarios.base import Family
from scenarios.tasks.lookup import FAMILY as LOOKUP
from scenarios.tasks.lookup import ROLE as LOOKUP_ROLE
from scenarios.tasks.maths import FAMILY as MATHS
from scenarios.tasks.maths import ROLE as MATHS_ROLE
from scenarios.tasks.programs import FAMILY as PROGRAMS
from scenarios.tasks.programs import ROLE as PROGRAMS_ROLE
from scenarios.tasks.search_calculate import FAMILY as SEARCH_CALCULATE
from scenarios.tasks.search_calculate import ROLE as SEARCH_CALCULATE_ROLE

TASK_FAMILIES: dict[str, Family] = {
    "maths": MATHS,
    "lookup": LOOKUP,
    "search_calculate": SEARCH_CALCULATE,
    "programs": PROGRAMS,
}
TASK_ROLES: dict[str, Role] = {
    "maths": MATHS_ROLE,
    "lookup": LOOKUP_ROLE,
    "search_calculate": SEARCH_CALCULATE_ROLE,
    "programs": PROGRAMS_ROLE,
}
