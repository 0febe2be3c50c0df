"""Every role family by name: adding one is its file and one line here. The team plays `scenarios.team`."""

from collections.abc import Mapping
from typing import assert_never

from scenarios.base import Family, Style
from scenarios.coo import FAMILY as COO
from scenarios.coo import SHORT_FAMILY as SHORT_COO
from scenarios.cost import FAMILY as COST
from scenarios.cost import SHORT_FAMILY as SHORT_COST
from scenarios.cto import FAMILY as CTO
from scenarios.cto import SHORT_FAMILY as SHORT_CTO
from scenarios.reconcile import FAMILY as RECONCILE
from scenarios.reconcile import SHORT_FAMILY as SHORT_RECONCILE
from scenarios.risk import FAMILY as RISK
from scenarios.risk import SHORT_FAMILY as SHORT_RISK

FAMILIES: dict[str, Family] = {
    "cto": CTO,
    "coo": COO,
    "risk": RISK,
    "cost": COST,
    "reconcile": RECONCILE,
}
SHORT_FAMILIES: dict[str, Family] = {  # the same cases in fewer words; a family without a short form as it is
    **FAMILIES,
    "cto": SHORT_CTO,
    "coo": SHORT_COO,
    "risk": SHORT_RISK,
    "cost": SHORT_COST,
    "reconcile": SHORT_RECONCILE,
}


def families(style: Style) -> Mapping[str, Family]:
    """The role families with their texts in one style.

    Example: families("short")["cto"].generate("train", seed=0, index=7, difficulty=2).brief
    """
    if style == "full":
        return FAMILIES
    if style == "short":
        return SHORT_FAMILIES
    assert_never(style)
