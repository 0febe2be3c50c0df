"""The part families by seat, in each style."""

from scenarios.base import Family
from scenarios.company.domains import DOMAINS
from scenarios.company.parts.part_family import build_part_family

PART_FAMILIES: dict[str, Family] = {
    "cto": build_part_family(DOMAINS["cto"], "full"),
    "coo": build_part_family(DOMAINS["coo"], "full"),
    "risk": build_part_family(DOMAINS["risk"], "full"),
    "cost": build_part_family(DOMAINS["cost"], "full"),
}
SHORT_PART_FAMILIES: dict[str, Family] = {
    "cto": build_part_family(DOMAINS["cto"], "short"),
    "coo": build_part_family(DOMAINS["coo"], "short"),
    "risk": build_part_family(DOMAINS["risk"], "short"),
    "cost": build_part_family(DOMAINS["cost"], "short"),
}
