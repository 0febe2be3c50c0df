"""Every role family by name: adding one is its file and one line here. The team plays `scenarios.team`."""

from collections.abc import Mapping
from typing import assert_never

from scenarios import coo, cost, cto, reconcile, risk
from scenarios.base import Family, Style

FAMILIES: dict[str, Family] = {
    "cto": cto.FAMILY,
    "coo": coo.FAMILY,
    "risk": risk.FAMILY,
    "cost": cost.FAMILY,
    "reconcile": reconcile.FAMILY,
}
SHORT_FAMILIES: dict[str, Family] = {  # the same cases in fewer words; a family without a short form as it is
    **FAMILIES,
    "cto": cto.SHORT_FAMILY,
    "coo": coo.SHORT_FAMILY,
    "risk": risk.SHORT_FAMILY,
    "cost": cost.SHORT_FAMILY,
    "reconcile": reconcile.SHORT_FAMILY,
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
