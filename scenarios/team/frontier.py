"""A seat's efficient parts and their codes, the part where a rule of thumb stops, reach of the budget."""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from scenarios.company.knapsack import Same, list_efficient
from scenarios.company.records import Part
from scenarios.company.steps import concave_steps, name_code, step_return
from scenarios.team.playable import PlayableCase

Band = Literal["tight", "middle", "ample"]
TIGHT_BELOW, AMPLE_FROM = Fraction(21, 50), Fraction(29, 50)  # share of what seats like this one would spend


def take_steps(frontier: Sequence[Part], takes: Callable[[Part, Part], bool]) -> Part:
    """The dearest part of the upper hull up to which `takes(lower, upper)` holds for every step.

    A step up from buying nothing is taken whatever it returns: an offer that is not funded costs nothing.
    """
    hull = concave_steps(frontier)
    taken = hull[0]
    for lower, upper in itertools.pairwise(hull):
        if lower.choice and not takes(lower, upper):
            break
        taken = upper
    return taken


def take_by_hurdle(frontier: Sequence[Part], hurdle: Fraction) -> Part:
    """The dearest part of the upper hull whose every step returns at least `hurdle` per k$."""
    return take_steps(frontier, lambda lower, upper: step_return(lower, upper) >= hurdle)


def list_steps(case: PlayableCase, seat: str, option: str) -> list[Part]:
    """The seat's parts on the option that buy something and lie on the upper hull, by rising cost."""
    return list(_steps(Same(case.parts_of(seat, option) or ())))


@lru_cache(maxsize=2048)  # a case's reports are read again and again: when played, scored and measured
def _steps(same: Same[tuple[Part, ...]]) -> tuple[Part, ...]:
    return tuple(part for part in concave_steps(list_efficient(same.value)) if part.choice)


def code_parts(case: PlayableCase, seat: str) -> dict[str, Part]:
    """Code -> part of `list_steps`, over all options in order; no two parts share a code.

    Example: {"F": Part(option="A", choice=("spare gateway",), ...), "G": ...}; after "Z" comes "F1".
    """
    parts = [part for option in case.options for part in list_steps(case, seat, option)]
    return {name_code(number): part for number, part in enumerate(parts)}


def budget_band(case: PlayableCase, seat: str) -> Band:
    """Return how far the budget would reach if every seat wanted as much as this one does.

    The seat's want is the cost of its dearest efficient part, mean over the options. A seat knows the budget
    and its own parts, nothing else.
    """
    wants = [list_efficient(case.parts_of(seat, option) or ()) for option in case.options]
    want = sum(frontier[-1].cost for frontier in wants if frontier)
    reach = Fraction(case.public.budget * len(wants), max(1, want * len(case.seats)))
    if reach < TIGHT_BELOW:
        return "tight"
    return "ample" if reach >= AMPLE_FROM else "middle"
