"""Exact arithmetic on rational numbers, and the calculator tool. Sizes are capped at every step."""

from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, assert_never

from roles.base import Tool
from scenarios.base import ToolError
from scenarios.tasks.grading.expressions import (
    Application,
    ExpressionError,
    Name,
    Negation,
    Node,
    Number,
    Operation,
    parse_expression,
)

MAX_BITS = 400  # of numerator and denominator: about 120 digits
MAX_EXPONENT = 256
MAX_DECIMALS = 10  # that the calculator shows exactly
ROUNDED_DIGITS = 8  # significant digits of a result that has no such short form

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


def calculate(text: str) -> Fraction:
    """The exact value of an arithmetic expression.

    Raises:
        ExpressionError: no arithmetic expression, division by zero, or a number that grows too large.
    """
    return evaluate(parse_expression(text))


def evaluate(node: Node) -> Fraction:
    """The exact value of a tree without unknowns.

    Raises:
        ExpressionError: see `calculate`.
    """
    match node:
        case Number(value=value):
            return _capped(value)
        case Negation(operand=operand):
            return -evaluate(operand)
        case Operation(symbol=symbol, left=left, right=right):
            return combine(symbol, evaluate(left), evaluate(right))
        case Name(name=name) | Application(function=name):
            raise ExpressionError(f"{name[:10]!r} is not a number")
        case _:
            assert_never(node)


def combine(symbol: str, left: Fraction, right: Fraction) -> Fraction:
    """The exact result of one operation.

    Raises:
        ExpressionError: see `calculate`.
    """
    return _capped(_apply(symbol, left, right))


def _apply(symbol: str, left: Fraction, right: Fraction) -> Fraction:
    if symbol == "+":
        return left + right
    if symbol == "-":
        return left - right
    if symbol == "*":
        return left * right
    if symbol == "**":
        return raise_to_power(left, right)
    if right == 0:
        raise ExpressionError("division by zero")
    if symbol == "/":
        return left / right
    return Fraction(left // right) if symbol == "//" else left % right


def raise_to_power(base: Fraction, exponent: Fraction) -> Fraction:
    """Exact power of a whole exponent.

    Raises:
        ExpressionError: a fractional or too large exponent, a result too large, 0 to a negative power.
    """
    if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT:
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
