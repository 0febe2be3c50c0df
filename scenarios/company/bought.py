"""Structures on which something was bought before: "bought" lists those upgrades, in the structure's order.

They stay in effect and are paid for. A choice then names what is bought in addition, and costs what it adds.
"""

from collections.abc import Collection
from dataclasses import replace

from scenarios.company.domain import Choice, Domain, Structure


def list_bought(structure: Structure) -> Choice:
    """The upgrades that were bought before; () on a structure as it was drawn."""
    return tuple(structure.get("bought", ()))


def with_bought(domain: Domain) -> Domain:
    """The domain on structures whose "bought" upgrades are in effect."""

    def list_choices(structure: Structure) -> list[Choice]:
        choices = domain.list_choices(structure)
        if "bought" not in structure:
            return choices
        bought = set(structure["bought"])
        return [
            tuple(name for name in choice if name not in bought)
            for choice in choices
            if bought.issubset(choice)
        ]

    def price(structure: Structure, choice: Choice) -> int:
        if "bought" not in structure:
            return domain.price(structure, choice)
        bought = list_bought(structure)
        added = domain.price(structure, _join(structure, choice)) - domain.price(structure, bought)
        return max(0, added)  # a discount pays nothing back

    def measure_again(structure: Structure, choice: Choice) -> tuple[int, dict[str, int]]:
        bought = list_bought(structure)
        cost, figures = domain.measure_again(structure, _join(structure, choice))
        return (max(0, cost - domain.measure_again(structure, bought)[0]) if bought else cost), figures

    def describe(structure: Structure) -> str:
        text, bought = domain.describe(structure), list_bought(structure)
        if not bought:
            return text
        bundle = (
            " They count towards a bundle, and earn its discount when it is reached."
            if "bundle" in structure
            else ""
        )
        return (
            f"{text}\nAlready bought, paid for and in effect (do not name them): {', '.join(bought)}.{bundle}"
        )

    return replace(
        domain,
        list_choices=list_choices,
        price=price,
        measure=lambda structure, choice: domain.measure(structure, _join(structure, choice)),
        measure_again=measure_again,
        describe=describe,
        write_upgrades=lambda structure: domain.write_upgrades(_leave_out(structure, list_bought(structure))),
    )


def _join(structure: Structure, choice: Choice) -> Choice:
    """The choice and what was bought before, in the structure's order."""
    if "bought" not in structure:
        return choice
    joined = {*structure["bought"], *choice}
    return tuple(name for name in structure["upgrades"] if name in joined)


def _leave_out(structure: Structure, names: Collection[str]) -> Structure:
    if not names:
        return structure
    upgrades = {name: upgrade for name, upgrade in structure["upgrades"].items() if name not in names}
    return {**structure, "upgrades": upgrades}
