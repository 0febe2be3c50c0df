"""Values of expressions at random real points, to 60 digits: what tells most unequal expressions apart.

A value that is not real, not defined or beyond 10^1000 counts as none. Numbers are mpmath's; no text is
read.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import assert_never

import mpmath

from scenarios.tasks.grading.expressions import (
    Application,
    ExpressionError,
    Name,
    Negation,
    Node,
    Number,
    Operation,
)

DIGITS = 60
TOLERANCE = mpmath.mpf(10) ** -40  # of a difference, relative to the larger value where that is over 1
LARGEST = mpmath.mpf(10) ** 1000
NUM_POINTS, MAX_TRIES = 6, 40
CONSTANTS = {"pi": mpmath.pi, "e": mpmath.e}
_FUNCTIONS = {
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "exp", "sec", "csc", "cot")},
    **{name: getattr(mpmath, name) for name in ("sinh", "cosh", "tanh", "sqrt", "log")},
    **{"ln": mpmath.log, "abs": abs, "arcsin": mpmath.asin, "arccos": mpmath.acos, "arctan": mpmath.atan},
}


def agree_on_samples(first: Node, second: Node, seed: str) -> bool:
    """Return whether both have a value at some points and the same one at each of them.

    Points follow from `seed` alone: six where both have values, out of at most 40.
    """
    names = sorted({*_list_names(first), *_list_names(second)} - set(CONSTANTS))
    found = 0
    with mpmath.workdps(DIGITS):
        for point in range(MAX_TRIES if names else 1):
            values = {name: _draw(seed, point, name) for name in names}
            try:
                one, other = _value(first, values), _value(second, values)
            except (ExpressionError, ArithmeticError, ValueError):
                continue
            if abs(one - other) > TOLERANCE * max(1, abs(one), abs(other)):
                return False
            found += 1
            if found == NUM_POINTS:
                break
    return found == NUM_POINTS or (found == 1 and not names)


def _draw(seed: str, point: int, name: str) -> mpmath.mpf:
    """A number between 0.1 and 3 in size: all are positive at the first point, negative at the second."""
    digest = blake2b(repr((seed, point, name)).encode("utf-8", "backslashreplace"), digest_size=20).digest()
    share = mpmath.mpf(int.from_bytes(digest)) / mpmath.mpf(2) ** 160
    size = mpmath.mpf(1) / 10 + share * 29 / 10
    return -size if point == 1 or (point > 1 and digest[0] % 2) else size


def _list_names(node: Node) -> set[str]:
    match node:
        case Number():
            return set()
        case Name(name=name):
            return {name}
        case Negation(operand=inner) | Application(argument=inner):
            return _list_names(inner)
        case Operation(left=left, right=right):
            return _list_names(left) | _list_names(right)
        case _:
            assert_never(node)


def _value(node: Node, values: Mapping[str, mpmath.mpf]) -> mpmath.mpf:
    match node:
        case Number(value=value):
            return _check(mpmath.mpf(value.numerator) / value.denominator)
        case Name(name=name):
            return +CONSTANTS[name] if name in CONSTANTS else values[name]
        case Negation(operand=operand):
            return -_value(operand, values)
        case Application(function=function, argument=argument):
            return _apply(function, _value(argument, values))
        case Operation(symbol=symbol, left=left, right=right):
            return _combine(symbol, _value(left, values), _value(right, values))
        case _:
            assert_never(node)


def _apply(function: str, argument: mpmath.mpf) -> mpmath.mpf:
    if function in ("exp", "sinh", "cosh", "tanh") and abs(argument) > 2300:
        raise ExpressionError("a value that is too large")
    return _check(_FUNCTIONS[function](argument))


def _combine(symbol: str, one: mpmath.mpf, other: mpmath.mpf) -> mpmath.mpf:
    if symbol == "+":
        return _check(one + other)
    if symbol == "-":
        return _check(one - other)
    if symbol == "*":
        return _check(one * other)
    if symbol == "/":
        return _check(one / other)
    if symbol == "**":
        if one and abs(other * mpmath.log(abs(one))) > 2300:
            raise ExpressionError("a value that is too large")
        return _check(one**other)
    raise ExpressionError("quotients and remainders have no samples")


def _check(value: object) -> mpmath.mpf:
    """A real, finite number that is not too large."""
    if not isinstance(value, mpmath.mpf) or not mpmath.isfinite(value) or abs(value) > LARGEST:
        raise ExpressionError("no real value")
    return value
