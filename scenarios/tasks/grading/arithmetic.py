"""Arithmetic and algebra that tasks write: text to a tree, exact rational values, and the calculator tool.

Python's parser builds the tree of a text in which numbers and names are placeholders; no text is evaluated.
Precedence is Python's (`^` is `**`, -2**2 is -4). `20%` is a percentage where no operand follows the sign, a
remainder otherwise (`7 % 3`). Thousands may be grouped (`1,000`). With `names`, letters are unknowns, `f(x)`
with f in FUNCTIONS is a call, and a product may be written without its sign (`2x`, `3(x+1)`).
"""

import ast
import itertools
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from roles.base import Tool
from scenarios.base import ToolError

MAX_CHARS = 400
MAX_DEPTH = 40  # of brackets; of signs, powers and calls
MAX_NODES = 200
MAX_DIGITS = 40  # of one number
MAX_BITS = 400  # of numerator and denominator: about 120 digits
MAX_EXPONENT = 256
MAX_DECIMALS = 10  # that the calculator shows exactly
ROUNDED_DIGITS = 8  # significant digits of a result that has no such short form
FUNCTIONS = frozenset(  # log and ln are the natural logarithm
    {
        *("sqrt", "exp", "log", "ln", "abs", "sin", "cos", "tan", "sec", "csc", "cot"),
        *("sinh", "cosh", "tanh", "arcsin", "arccos", "arctan"),
    }
)
CALCULATOR = Tool(
    name="calculator",
    description="Exact value of an arithmetic expression: + - * / // % **, brackets, decimals, percentages.",
    parameters={
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "for example (240 - 12) * 1.5"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
)

# ("number", Fraction), ("name", text), ("negative", node), ("call", function, node) or (sign, node, node),
# the sign one of + - * / // % **
Node = tuple[Any, ...]

_TYPESET = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-"})  # times, division, minus
_TOKEN = re.compile(
    r"[ \t]*(?:(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9,])|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<name>[A-Za-z]+)|(?P<sign>\*\*|//|[-+*/%^()]))"
)
_SIGNS: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip


class ExpressionError(ValueError):
    """Reason that a text is no expression, or has no value. Data, not a fault of the program."""


def parse_expression(text: str, *, names: bool = False) -> Node:
    """The tree of a whole text; unknowns and functions only where `names` says so.

    Example: parse_expression("2x", names=True) == ("*", ("number", Fraction(2)), ("name", "x"))

    Raises:
        ExpressionError: not an expression, or larger than the limits of this module.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"an expression has at most {MAX_CHARS} characters, this one {len(text)}")
    atoms: list[Node] = []
    try:
        tree = ast.parse(_write_placeholders(_split(text), atoms, names), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ExpressionError(f"{text[:40]!r} is no expression") from None
    if sum(isinstance(node, ast.expr) for node in ast.walk(tree)) > MAX_NODES:
        raise ExpressionError(f"more than {MAX_NODES} terms")
    return _convert(tree, atoms, 0)


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


def _write_placeholders(tokens: list[tuple[str, str]], atoms: list[Node], names: bool) -> str:
    """Python text with the n-th number or name as `_n` (put into `atoms`) and a percentage as `[0]`."""
    pieces, depth = [], 0
    for (kind, token), (next_kind, following) in itertools.pairwise([*tokens, ("", "")]):
        is_before_operand = next_kind in ("number", "name") or following == "("
        is_percentage = token == "%" and not is_before_operand
        depth += (token == "(") - (token == ")")
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        if kind == "name" and not (names and (token not in FUNCTIONS or following == "(")):
            raise ExpressionError(f"unexpected {token[:10]!r}")
        if kind == "sign" or token in FUNCTIONS:
            pieces.append("[0]" if is_percentage else {"^": "**"}.get(token, token))
        else:
            if len(token) > MAX_DIGITS:
                raise ExpressionError(f"a number has at most {MAX_DIGITS} characters, this one {len(token)}")
            pieces.append(f"_{len(atoms)}")
            atoms.append((kind, Fraction(token.replace(",", "")) if kind == "number" else token))
        is_operand = token == ")" or is_percentage or pieces[-1].startswith("_")
        if names and is_operand and is_before_operand and next_kind != "number":
            pieces.append("*")
    return " ".join(pieces)


def _convert(node: ast.expr, atoms: list[Node], depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Name(id=name) if name.startswith("_"):
            return atoms[int(name[1:])]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _convert(operand, atoms, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return "negative", _convert(operand, atoms, depth + 1)
        case ast.Subscript(value=operand):
            return "/", _convert(operand, atoms, depth), ("number", Fraction(100))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return "call", name, _convert(argument, atoms, depth + 1)
        case ast.BinOp(left=left, op=op, right=right):
            inner = depth + isinstance(op, ast.Pow)
            return _SIGNS[type(op)], _convert(left, atoms, depth), _convert(right, atoms, inner)
        case _:
            raise ExpressionError("two operands without a sign between them, or brackets without content")


def calculate(text: str) -> Fraction:
    """The exact value of an arithmetic expression.

    Raises:
        ExpressionError: no arithmetic expression, division by zero, or a number that grows too large.
    """
    node = reduce(parse_expression(text))
    if node[0] != "number":
        raise ExpressionError("a fractional power has no exact value")
    value: Fraction = node[1]
    return value


def reduce(node: Node) -> Node:
    """The tree with every subtree that has a rational value as that number.

    Raises:
        ExpressionError: division by zero, a number that grows too large, `//` or `%` of unknowns.
    """
    match node:
        case ("number", value):
            return "number", _capped(value)
        case ("name", _):
            return node
        case ("negative", operand):
            inner = reduce(operand)
            return ("number", -inner[1]) if inner[0] == "number" else ("negative", inner)
        case ("call", function, argument):
            return "call", function, reduce(argument)
    sign, left, right = node[0], reduce(node[1]), reduce(node[2])
    if left[0] == right[0] == "number" and (sign != "**" or right[1].denominator == 1):
        return "number", _capped(_combine(sign, left[1], right[1]))
    if sign in ("//", "%"):
        raise ExpressionError("quotients and remainders are of numbers only")
    return sign, left, right


def _combine(sign: str, left: Fraction, right: Fraction) -> Fraction:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0 and sign != "**":
        raise ExpressionError("division by zero")
    if sign == "/":
        return left / right
    if sign == "**":
        return _raise_to_power(left, right)
    return Fraction(left // right) if sign == "//" else left % right


def _raise_to_power(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > MAX_EXPONENT:
        raise ExpressionError(f"an exponent is a whole number from -{MAX_EXPONENT} to {MAX_EXPONENT}")
    if base == 0 and exponent < 0:
        raise ExpressionError("division by zero")
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 2 * MAX_BITS:
        raise ExpressionError("the result is too large")
    return Fraction(base ** int(exponent))


def _capped(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("the result is too large")
    return value


def format_number(value: Fraction) -> str:
    """A decimal number: exact up to MAX_DECIMALS decimals, else rounded and marked "about".

    Example: format_number(Fraction(5, 2)) == "2.5"; format_number(Fraction(1, 3)) == "about 0.33333333"
    """
    scaled = value * 10**MAX_DECIMALS
    if scaled.denominator != 1:
        rounded = Context(prec=ROUNDED_DIGITS).divide(Decimal(value.numerator), Decimal(value.denominator))
        return f"about {rounded}"
    whole, decimals = divmod(abs(scaled.numerator), 10**MAX_DECIMALS)
    tail = f".{decimals:0{MAX_DECIMALS}d}".rstrip("0").rstrip(".")
    return f"{'-' if value < 0 else ''}{whole}{tail}"


def call_calculator(arguments: Mapping[str, Any]) -> str:
    """The calculator tool: the value of {"expression": text}.

    Raises:
        ToolError: other arguments, or an expression without a value.
    """
    if not isinstance(arguments, Mapping) or set(arguments) != {"expression"}:
        raise ToolError("arguments must be exactly: expression")
    expression = arguments["expression"]
    if not isinstance(expression, str):
        raise ToolError("expression must be text")
    try:
        return format_number(calculate(expression))
    except ExpressionError as error:
        raise ToolError(str(error)) from None
