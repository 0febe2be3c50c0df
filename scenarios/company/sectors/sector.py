"""The words of one sector: all that a case calls by name. Names hold no digit, comma, colon or slash."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sector:
    """Names that the cases of one sector are told with.

    Example: SECTORS["bank"].controls["stolen password"] == "security keys"
    """

    name: str
    companies: tuple[str, ...]
    situation: str  # what has to be decided; holds "{company}"
    options: tuple[str, ...]  # ways that the company can go
    components: tuple[str, ...]  # of an architecture
    people: tuple[str, ...]
    packages: tuple[str, ...]  # of a work plan
    assets: tuple[str, ...]  # that threats reach
    controls: dict[str, str]  # step of an attack or failure -> the control against it
    items: tuple[str, ...]  # on a price list


def _split(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


def build_sector(
    name: str,
    companies: str,
    situation: str,
    *,
    options: str,
    components: str,
    people: str,
    packages: str,
    assets: str,
    controls: str,
    items: str,
) -> Sector:
    """A sector from lists written with commas; controls are "step: control" pairs."""
    pairs = [pair.split(":") for pair in _split(controls)]
    return Sector(
        name=name,
        companies=_split(companies),
        situation=" ".join(situation.split()),
        options=_split(options),
        components=_split(components),
        people=_split(people),
        packages=_split(packages),
        assets=_split(assets),
        controls={step.strip(): control.strip() for step, control in pairs},
        items=_split(items),
    )
