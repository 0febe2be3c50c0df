"""Every role by name: adding one is its file and one line here."""

from roles.base import Role
from roles.coo import ROLE as COO
from roles.cost import ROLE as COST
from roles.cto import ROLE as CTO
from roles.reconcile import ROLE as RECONCILE
from roles.risk import ROLE as RISK

ROLES: dict[str, Role] = {
    "cto": CTO,
    "coo": COO,
    "risk": RISK,
    "cost": COST,
    "reconcile": RECONCILE,
}
