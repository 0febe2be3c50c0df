"""Every role family by name: adding one is its file and one line here. The team plays `scenarios.team`."""

from scenarios.base import Family
from scenarios.coo import FAMILY as COO
from scenarios.cost import FAMILY as COST
from scenarios.cto import FAMILY as CTO
from scenarios.reconcile import FAMILY as RECONCILE
from scenarios.risk import FAMILY as RISK

FAMILIES: dict[str, Family] = {
    "cto": CTO,
    "coo": COO,
    "risk": RISK,
    "cost": COST,
    "reconcile": RECONCILE,
}
