"""Need for the table in a case: public and seats' favourites, and hidden profiles.

In a hidden profile the optimal option is named neither by the public facts nor by any seat that knows its own
parts alone, whether it reckons with a quarter of the budget or with all of it.
"""

from collections.abc import Mapping, Sequence

from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.optimum import find_optimum
from scenarios.company.records import CompanyCase, Option, Part


def list_public_favourites(options: Mapping[str, Option]) -> set[str]:
    """The letters of the greatest base value."""
    greatest = max(option.base for option in options.values())
    return {letter for letter, option in options.items() if option.base == greatest}


def reckon_worths(parts: Mapping[str, Sequence[Part]], amount: int) -> dict[str, int]:
    """Option letter -> worth of the seat's best part at this amount; options without one are left out."""
    worths = {}
    for letter, own in parts.items():
        part = take_within(list_efficient(own), amount)
        if part is not None:
            worths[letter] = part.worth
    return worths


def list_seat_favourites(
    options: Mapping[str, Option], parts: Mapping[str, Sequence[Part]], amount: int
) -> set[str]:
    """The letters of the greatest base plus own best worth at this amount."""
    totals = {letter: options[letter].base + worth for letter, worth in reckon_worths(parts, amount).items()}
    return {letter for letter, total in totals.items() if total == max(totals.values())}


def is_hidden_profile(case: CompanyCase) -> bool:
    """Return whether neither the public facts nor any single seat names the optimal option."""
    named = list_public_favourites(case.options)
    for own in case.parts.values():
        for amount in (case.budget, case.budget // len(case.parts)):
            named |= list_seat_favourites(case.options, own, amount)
    optimum = find_optimum(case)
    return optimum is not None and optimum.plan.option not in named
