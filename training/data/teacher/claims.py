"""Claims of a text in numbers, and whether each number was known or worked out in the text itself.

Known is what the brief or a tool said before. A number may be worked out by an equation that is right and
whose own numbers are known ("66 + 53 = 119"); from there on it is known. Counts up to ten are free. What
states a comparison or an equation that is false is a false chain, whatever the answer after it. A bound that
the text sets itself ("for at most 12") is a choice, no claim.
"""

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

from scenarios.tasks.grading.arithmetic import calculate
from scenarios.tasks.grading.expressions import MAX_CHARS, ExpressionError

FREE = 10  # whole numbers up to here count, order and number things
NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.]){NUMBER}(?![A-Za-z0-9_]*[A-Za-z_])|(?<![A-Za-z0-9_.]){NUMBER}(?=%)")
_UNIT = re.compile(r"(?<=[0-9])[ \t]*(?:k\$|[A-Za-z$]+)(?=[ \t]*[-+*/=<>)])")
_RELATION = re.compile(r"<=|>=|=<|[=<>]")
_TYPESET = str.maketrans({"\u2264": "<=", "\u2265": ">=", "\u00d7": "*", "\u00f7": "/", "\u2212": "-"})
_LEFT = re.compile(r"[0-9.,+*/%()^ \t-]*$")
_RIGHT = re.compile(r"[ \t]*[$]?[ \t]*([-+(]*[0-9][0-9.,+*/%()^ \t-]*)")
_BOUND = re.compile(r"\bfor at most $")  # what stands before a number that is chosen
_OPERATOR = re.compile(r"[0-9)%][ \t]*[-+*/^]|//")


class FalseChainError(Exception):
    """A number that nobody gave, or a relation that does not hold; the message quotes it."""


class KnownNumbers:
    """Numbers that may be stated, and the check of what is.

    Example: KnownNumbers(["latency 53, cost 66"]).check("66 + 53 = 119, so 119") passes
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._known: set[Fraction] = set()
        for text in texts:
            self.learn(text)

    def learn(self, text: str) -> None:
        """Every number of a text is known from now on."""
        self._known.update(value for _, value, _ in find_numbers(text))

    def check(self, text: str) -> None:
        """Check a text from its beginning; what its right equations work out becomes known.

        Raises:
            FalseChainError: the first number or relation that does not stand.
        """
        text = text.translate(_TYPESET)
        relations = {end: statement for statement, end in find_relations(text)}
        waiting = sorted(relations)
        for place, value, shown in find_numbers(text):
            self._work_out(relations, [end for end in waiting if end <= place])
            waiting = [end for end in waiting if end > place]
            if any(self._is_result(relations[end], place) for end in waiting):
                continue
            if _BOUND.search(text[:place]):
                self._known.add(value)
            elif not self._is_known(value, shown):
                raise FalseChainError(f"{shown}, which nobody gave and no sum worked out")
        self._work_out(relations, waiting)

    def _work_out(self, relations: dict[int, "Relation"], ends: Iterable[int]) -> None:
        for end in ends:
            relation = relations[end]
            if not relation.holds():
                raise FalseChainError(f"{relation.text!r}, which is false")
            if relation.sign == "=":
                self._known.add(relation.values[1])

    def _is_result(self, relation: "Relation", place: int) -> bool:
        """Return whether a number is what an equation works out: it stands after the sign, alone."""
        return relation.sign == "=" and relation.is_worked_out and place >= relation.sign_place

    def _is_known(self, value: Fraction, shown: str) -> bool:
        if value in self._known or (value.denominator == 1 and value <= FREE):
            return True
        decimals = len(shown.partition(".")[2])
        return decimals > 0 and any(_is_rounded(one, value, decimals) for one in self._known)


class Relation:
    """Two sides of a sign, as found in a text. Example: "2 + 2 = 4" holds, "3 > 5" does not."""

    def __init__(self, left: str, sign: str, right: str, sign_place: int) -> None:
        self.text, self.sign, self.sign_place = f"{left} {sign} {right}", sign, sign_place
        self.values = (calculate(left), calculate(right))
        self.is_worked_out = bool(_OPERATOR.search(left)) and not _OPERATOR.search(right.lstrip("-+"))
        self._decimals = len(right.partition(".")[2]) if self.is_worked_out else 0

    def holds(self) -> bool:
        """Return whether it is true; a result with decimals may be rounded to them."""
        one, other = self.values
        if self.sign == "=":
            return one == other or (self._decimals > 0 and _is_rounded(one, other, self._decimals))
        return {"<": one < other, ">": one > other, "<=": one <= other, "=<": one <= other}.get(
            self.sign, one >= other
        )


def find_numbers(text: str) -> Iterator[tuple[int, Fraction, str]]:
    """Place, value and spelling of every number that is no part of a name (P1, K12)."""
    for found in _NUMBER.finditer(text.translate(_TYPESET)):
        yield found.start(), Fraction(found[0].replace(",", "")), found[0]


def find_relations(text: str) -> Iterator[tuple[Relation, int]]:
    """Relations between two arithmetic expressions, with the place where each ends; units are left out."""
    for found in _RELATION.finditer(text):
        before = _blank_units(text[max(0, found.start() - MAX_CHARS) : found.start()])
        left = _LEFT.search(before)
        right = _RIGHT.match(_blank_units(text[found.end() : found.end() + MAX_CHARS]))
        if left is None or right is None:
            continue
        sides = (_trim(re.split(r"[.,][ \t]", left[0])[-1]), _trim(re.split(r"[.,](?:[ \t]|$)", right[1])[0]))
        try:
            yield Relation(sides[0], found[0], sides[1], found.start()), found.end() + right.end()
        except ExpressionError:
            continue


def _blank_units(text: str) -> str:
    """Units between a number and a sign become spaces: "53 ms - 40 ms" is 53 - 40."""
    return _UNIT.sub(lambda found: " " * len(found[0]), text + "=")[:-1]


def _trim(side: str) -> str:
    side = side.strip(" \t.,+*/-") if not side.strip().startswith("-") else side.strip(" \t.,")
    while side.count(")") > side.count("("):
        if not side.endswith(")"):
            break
        side = side[:-1].rstrip()
    while side.count("(") > side.count(")") and side.startswith("("):
        side = side[1:].lstrip()
    return side


def _is_rounded(exact: Fraction, shown: Fraction, decimals: int) -> bool:
    return abs(exact - shown) <= Fraction(1, 2 * 10**decimals)
