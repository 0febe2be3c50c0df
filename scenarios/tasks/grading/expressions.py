"""The arithmetic and algebra that tasks write: text to a tree. Nothing is evaluated, least of all as code.

Loosest to tightest: `+ -`, then `* / // %`, then unary `- +`, then `**` (also `^`; -2**2 is -4).
`20%` is a percentage where no operand follows the sign, a remainder otherwise (`7 % 3`). Thousands may be
grouped (`1,000`). With `names`, letters are unknowns, `f(x)` with f in FUNCTIONS is a call, and a product may
be written without its sign (`2x`, `3(x+1)`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

MAX_CHARS = 400
MAX_DEPTH = 40  # of brackets, signs and powers
MAX_NODES = 200
MAX_DIGITS = 40  # of one number
FUNCTIONS = frozenset(  # log and ln are the natural logarithm
    {
        *("sqrt", "exp", "log", "ln", "abs", "sin", "cos", "tan", "sec", "csc", "cot"),
        *("sinh", "cosh", "tanh", "arcsin", "arccos", "arctan"),
    }
)

Symbol = Literal["+", "-", "*", "/", "//", "%", "**"]
_SUM: dict[str, Symbol] = {"+": "+", "-": "-"}
_PRODUCT: dict[str, Symbol] = {"*": "*", "/": "/", "//": "//", "%": "%"}
_TYPESET = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-"})  # times, division, minus
_TOKEN = re.compile(
    r"[ \t]*(?:(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9,])|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<name>[A-Za-z]+)|(?P<sign>\*\*|//|[-+*/%^()]))"
)


class ExpressionError(ValueError):
    """Reason that a text is no expression, or has no value. Data, not a fault of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Example: Number(value=Fraction(5, 2)) for 2.5"""

    value: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """An unknown or a constant such as pi. Example: Name(name="x")"""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """Example: Negation(operand=Name(name="x")) for -x"""

    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Example: Operation(symbol="+", left=Name(name="x"), right=Number(value=Fraction(1))) for x + 1"""

    symbol: Symbol
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Example: Application(function="sqrt", argument=Name(name="x")) for sqrt(x)"""

    function: str
    argument: "Node"


Node = Number | Name | Negation | Operation | Application


def parse_expression(text: str, *, names: bool = False) -> Node:
    """The tree of a whole text; unknowns and functions only where `names` says so.

    Raises:
        ExpressionError: not an expression, or larger than the limits of this module.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"an expression has at most {MAX_CHARS} characters, this one {len(text)}")
    return _Parser(_split(text), names=names).parse()


def _split(text: str) -> list[tuple[str, str]]:
    """Kind and text of every token."""
    text, tokens, position = text.translate(_TYPESET).strip(), [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ExpressionError(f"unexpected {text[position : position + 10]!r}")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        position = found.end()
    return tokens


class _Parser:
    """Recursive descent, one method per binding strength."""

    def __init__(self, tokens: list[tuple[str, str]], *, names: bool) -> None:
        self._tokens, self._names = tokens, names
        self._position = self._depth = self._num_nodes = 0

    def parse(self) -> Node:
        tree = self._sum()
        if self._position < len(self._tokens):
            raise ExpressionError(f"unexpected {self._tokens[self._position][1][:10]!r}")
        return tree

    def _sum(self) -> Node:
        left = self._product()
        while symbol := _SUM.get(self._peek()):
            self._position += 1
            left = self._count(Operation(symbol=symbol, left=left, right=self._product()))
        return left

    def _product(self) -> Node:
        left = self._signed()
        while True:
            if symbol := _PRODUCT.get(self._peek()):
                self._position += 1
            elif self._names and self._starts_factor():
                symbol = "*"
            else:
                return left
            left = self._count(Operation(symbol=symbol, left=left, right=self._signed()))

    def _signed(self) -> Node:
        sign = self._peek()
        if sign not in ("+", "-"):
            return self._power()
        self._position += 1
        operand = self._nest(self._signed)
        return self._count(Negation(operand=operand)) if sign == "-" else operand

    def _power(self) -> Node:
        base = self._percentage()
        if self._peek() not in ("**", "^"):
            return base
        self._position += 1
        return self._count(Operation(symbol="**", left=base, right=self._nest(self._signed)))

    def _percentage(self) -> Node:
        operand = self._atom()
        while self._peek() == "%" and not self._starts_operand(1):
            self._position += 1
            hundred = self._count(Number(value=Fraction(100)))
            operand = self._count(Operation(symbol="/", left=operand, right=hundred))
        return operand

    def _atom(self) -> Node:
        kind, text = self._take()
        if kind == "number":
            if len(text) > MAX_DIGITS:
                raise ExpressionError(f"a number has at most {MAX_DIGITS} characters, this one {len(text)}")
            return self._count(Number(value=Fraction(text.replace(",", ""))))
        if kind == "name" and self._names:
            if text in FUNCTIONS:
                self._expect("(")
                return self._count(Application(function=text, argument=self._bracketed()))
            return self._count(Name(name=text))
        if text == "(":
            return self._bracketed()
        raise ExpressionError(f"unexpected {text[:10]!r}")

    def _bracketed(self) -> Node:
        inside = self._nest(self._sum)
        self._expect(")")
        return inside

    def _nest(self, parse: Callable[[], Node]) -> Node:
        if self._depth == MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        self._depth += 1
        inside = parse()
        self._depth -= 1
        return inside

    def _count(self, node: Node) -> Node:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise ExpressionError(f"more than {MAX_NODES} terms")
        return node

    def _peek(self) -> str:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._position == len(self._tokens):
            raise ExpressionError("the expression ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise ExpressionError(f"{sign!r} is missing")
        self._position += 1

    def _starts_operand(self, ahead: int) -> bool:
        """Tell whether the token so many places ahead is a number, a name or an opening bracket."""
        place = self._position + ahead
        return place < len(self._tokens) and (
            self._tokens[place][0] != "sign" or self._tokens[place][1] == "("
        )

    def _starts_factor(self) -> bool:
        """Tell whether a product without its sign goes on: a name or a bracket, never a second number."""
        return self._starts_operand(0) and self._tokens[self._position][0] != "number"
