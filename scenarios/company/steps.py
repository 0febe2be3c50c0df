"""Steps along efficient parts: what each returns, in figures and a word; codes and a short list of parts."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from scenarios.company.records import Part

CODES = "FGHIJKLMNOPQRSTUVWXYZ"  # of efficient parts; options have the letters before these
# word for the least return of a step, k$ per k$
RETURN_WORDS: Mapping[str, Fraction] = {
    "high": Fraction(2),
    "good": Fraction(3, 2),
    "mid": Fraction(1),
    "low": Fraction(3, 5),
}
POOR = "poor"  # a step that returns less than all of these


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


def name_code(number: int) -> str:
    """The code of the part of this number, from 0."""
    turn, place = divmod(number, len(CODES))
    return CODES[place] + (str(turn) if turn else "")


def rate_steps(frontier: Sequence[Part]) -> dict[tuple[str, ...], str]:
    """Choice of a part on the upper hull -> word for the return of the step that leads to it.

    A first part that must be bought, because the limit breaks without one, has no step: "first".
    """
    hull = concave_steps(frontier)
    words = {
        upper.choice: rate_return(step_return(lower, upper)) for lower, upper in itertools.pairwise(hull)
    }
    return {hull[0].choice: "first", **words} if hull and hull[0].choice else words


def rate_return(value: Fraction) -> str:
    """The word of RETURN_WORDS for this return."""
    return next((word for word, least in RETURN_WORDS.items() if value >= least), POOR)


def count_tenths(cost: int, budget: int) -> int:
    """Return the whole tenths of the budget that a cost takes, 9 at most."""
    return min(9, 10 * cost // max(1, budget))


def write_figures(part: Part) -> str:
    """Write what was measured of a part in short style, e.g. "cost 6 worth 5 ok"."""
    return f"cost {part.cost} worth {part.worth} {'ok' if part.keeps_limit else 'breaks the limit'}"


def write_parts(codes: Mapping[str, Part], words: Mapping[tuple[str, ...], str] | None = None) -> str:
    """Code, cost and worth of every part, after the word for its step where there are words.

    Example: "low F 6 5, poor G 15 10"
    """
    texts = [f"{code} {part.cost} {part.worth}" for code, part in codes.items()]
    if words is not None:
        texts = [f"{words[part.choice]} {text}" for text, part in zip(texts, codes.values(), strict=True)]
    return ", ".join(texts) or "none"
