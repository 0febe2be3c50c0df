"""Steps along a seat's efficient parts on one option, and the part at which a rule of thumb stops."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

from scenarios.company.records import Part


def concave_steps(frontier: Sequence[Part]) -> list[Part]:
    """The parts on the upper hull of cost and worth: each step returns less per k$ than the one before."""
    hull: list[Part] = []
    for part in frontier:
        while len(hull) >= 2 and step_return(hull[-2], hull[-1]) <= step_return(hull[-2], part):
            hull.pop()
        hull.append(part)
    return hull


def step_return(lower: Part, upper: Part) -> Fraction:
    """Worth gained per k$ from one part to a dearer one."""
    return Fraction(upper.worth - lower.worth, upper.cost - lower.cost)


def take_by_hurdle(frontier: Sequence[Part], hurdle: Fraction) -> Part:
    """The dearest part of the upper hull whose every step returns at least `hurdle` per k$.

    A step up from buying nothing is taken whatever it returns: an offer that is not funded costs nothing.
    """
    hull = concave_steps(frontier)
    taken = hull[0]
    for lower, upper in itertools.pairwise(hull):
        if lower.choice and step_return(lower, upper) < hurdle:
            break
        taken = upper
    return taken
