"""The sectors whose cases the families tell: the first word of every brief, and words of the longer forms."""

from dataclasses import dataclass

SECTORS: tuple[str, ...] = ("bank", "retail", "health", "energy", "telecom", "media", "freight", "public")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What a sector calls the things that its cases are about. No digits, no single letters.

    Example: VOCABULARIES["bank"].system == "payments platform"
    """

    company: str
    system: str  # what the CTO builds
    project: str  # what the COO schedules
    estate: str  # what Risk protects
    order: str  # what Cost buys


def _words(company: str, system: str, project: str, estate: str, order: str) -> Vocabulary:
    return Vocabulary(company=company, system=system, project=project, estate=estate, order=order)


VOCABULARIES: dict[str, Vocabulary] = {
    "bank": _words("bank", "payments platform", "branch migration", "trading network", "licence order"),
    "retail": _words("retailer", "web shop", "store opening", "card network", "shelf order"),
    "health": _words("hospital", "patient records", "ward move", "device network", "equipment order"),
    "energy": _words("utility", "metering platform", "grid upgrade", "control network", "turbine order"),
    "telecom": _words("carrier", "billing platform", "mast rollout", "core network", "cable order"),
    "media": _words("publisher", "streaming platform", "channel launch", "studio network", "camera order"),
    "freight": _words("haulier", "tracking platform", "depot move", "fleet network", "vehicle order"),
    "public": _words("city", "citizen portal", "office move", "records network", "service order"),
}
