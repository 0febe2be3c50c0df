"""Every role family by name: adding one is its file and one line here. The team plays `scenarios.team`.

A seat's family asks for the best part of a plan on one option that an amount pays for: which upgrades, their
cost, their worth. Right is the set of the greatest worth within the amount that keeps the seat's hard limit; of
equal worth the cheaper, certified over all sets by the domain's second method. The rules stand in `roles`, their
arithmetic in `scenarios.company.domains`, how an answer is scored in `scenarios.company.parts`.
"""

from collections.abc import Mapping
from typing import assert_never

from scenarios import reconcile
from scenarios.base import Family, Style
from scenarios.company.domains import DOMAINS
from scenarios.company.parts import build_part_family

FAMILIES: dict[str, Family] = {
    **{seat: build_part_family(domain, "full") for seat, domain in DOMAINS.items()},
    "reconcile": reconcile.FAMILY,
}
SHORT_FAMILIES: dict[str, Family] = {  # the same cases in fewer words; a family without a short form as it is
    **FAMILIES,
    **{seat: build_part_family(domain, "short") for seat, domain in DOMAINS.items()},
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
