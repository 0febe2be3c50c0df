"""Compares two expressions: at random points of a prime field, then on samples, then by proof.

Equal rational functions agree everywhere; different ones agree at a random point with probability at most
degree / prime (Schwartz and Zippel), here below 2^-170. The prime and the points come from a hash of both
texts, so the test is repeatable and no answer can be built for them. In the field square roots of rational
numbers are those of the field as far as they have squares and prime factors below 100; pi and e count as
unknowns; other functions, roots and powers are functions of which only f(a) = f(b) for a = b is known. So
the field alone decides what has no functions.

Where there are functions and the field says different, values at real points to 60 digits tell most that are
different (`sampling.py`). What agrees there is equal only if SymPy proves it, in a process of its own and
within a number of steps (`proof.py`): SymPy gets our own tree, for its parsers run code. Unknowns are real,
and equal means equal wherever both have a value, proven for positive unknowns. e is Euler's number.
"""

import math
from fractions import Fraction
from hashlib import blake2b
from typing import assert_never

from scenarios.tasks.grading.arithmetic import combine, evaluate
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
from scenarios.tasks.grading.latex import read_latex
from scenarios.tasks.grading.proof import is_proven_equal
from scenarios.tasks.grading.sampling import agree_on_samples

Exact = dict[int, Fraction | None]  # by id of a node: its rational value, None without one

MAX_DEGREE = 10_000
MAX_PROVEN_DEGREE = 12  # where there are functions: what a proof expands grows fast with it
NUM_POINTS = 2
HASH_BYTES = 24
_SMALL_PRIMES = tuple(n for n in range(2, 100) if all(n % d for d in range(2, n)))
_BASES = (101, 103, 107, 109, 113, 127, 131, 137)
# a prime of the form k * _STEP - 1 has a square root of every small prime (quadratic reciprocity), and
# the power (prime + 1) / 4 is one
_STEP = 4 * math.prod(_SMALL_PRIMES)


def are_equal(first: str, second: str) -> bool:
    """Return whether two expressions, in plain notation or LaTeX, are equal wherever both have a value.

    Raises:
        ExpressionError: one of them is no expression, is too large, or has a value nowhere.
    """
    one, other = trees = [parse_expression(read_latex(text), names=True) for text in (first, second)]
    exact: Exact = {}
    for tree in trees:
        _note_exact(tree, exact)
    degree = max(_degree(tree, exact) for tree in trees)
    prime = _choose_prime(first, second)
    fields = [_Field(prime, point, exact) for point in range(NUM_POINTS)]
    if all(field.value(trees[0]) == field.value(trees[1]) for field in fields):
        return True
    if degree > MAX_PROVEN_DEGREE or not any(_has_functions(tree, exact) for tree in trees):
        return False
    return agree_on_samples(one, other, f"{first}={second}") and is_proven_equal(one, other)


def _has_functions(node: Node, exact: Exact) -> bool:
    """Return whether the field knows less of a tree than there is to know."""
    match node:
        case Number() | Name():
            return False
        case Application():
            return True
        case Negation(operand=operand):
            return _has_functions(operand, exact)
        case Operation(symbol=symbol, left=left, right=right):
            power = exact[id(right)] if symbol == "**" else None
            if symbol == "**" and (power is None or power.denominator != 1):
                return True
            return _has_functions(left, exact) or _has_functions(right, exact)
        case _:
            assert_never(node)


def _hash(*parts: object) -> int:
    digest = blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=HASH_BYTES)
    return int.from_bytes(digest.digest())


def _choose_prime(first: str, second: str) -> int:
    factor = _hash(first, second) >> 96 | 1
    while not _is_prime(candidate := factor * _STEP - 1):
        factor += 2
    return candidate


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test of a number that is 3 modulo 4; numbers come from a hash, so fixed bases do."""
    return all(pow(base, number >> 1, number) in (1, number - 1) for base in _BASES)


def _degree(node: Node, exact: Exact) -> int:
    """A bound on numerator and denominator degree."""
    match node:
        case Number():
            degree = 0
        case Name() | Application():
            for child in [node.argument] if isinstance(node, Application) else []:
                _degree(child, exact)
            degree = 1
        case Negation(operand=operand):
            degree = _degree(operand, exact)
        case Operation(symbol="**", left=left, right=right):
            power = exact[id(right)]
            times = math.ceil(abs(Fraction(1) if power is None else power))
            degree = _degree(left, exact) * times + _degree(right, exact)
        case Operation(left=left, right=right):
            degree = _degree(left, exact) + _degree(right, exact)
        case _:
            assert_never(node)
    if degree > MAX_DEGREE:
        raise ExpressionError(f"a polynomial of degree over {MAX_DEGREE}")
    return degree


def _note_exact(node: Node, exact: Exact) -> Fraction | None:
    """Note the rational value of every subtree, None where it has unknowns or functions; each once."""
    value: Fraction | None
    match node:
        case Number():
            value = evaluate(node)
        case Name():
            value = None
        case Application(argument=argument):
            _note_exact(argument, exact)
            value = None
        case Negation(operand=operand):
            inner = _note_exact(operand, exact)
            value = None if inner is None else -inner
        case Operation(symbol=symbol, left=left, right=right):
            one, other = _note_exact(left, exact), _note_exact(right, exact)
            if one is None or other is None or (symbol == "**" and other.denominator != 1):
                value = None  # a root of a number may be no rational number: the field has it
            else:
                value = combine(symbol, one, other)
        case _:
            assert_never(node)
    exact[id(node)] = value
    return value


class _Field:
    """Arithmetic modulo a prime at one random point."""

    def __init__(self, prime: int, point: int, exact: Exact) -> None:
        self._prime, self._point, self._exact = prime, point, exact

    def value(self, node: Node) -> int:
        match node:
            case Number(value=value):
                return self._embed(value)
            case Name(name=name):
                return self._draw("name", name)
            case Negation(operand=operand):
                return -self.value(operand) % self._prime
            case Application(function="sqrt", argument=argument):
                return self._root(argument)
            case Application(function=function, argument=argument):
                return self._draw(function, self.value(argument))
            case Operation(symbol="**", left=left, right=right):
                return self._power(left, right)
            case Operation(symbol=symbol, left=left, right=right):
                return self._combine(symbol, node, left, right)
            case _:
                assert_never(node)

    def _combine(self, symbol: str, node: Node, left: Node, right: Node) -> int:
        if symbol in ("//", "%"):
            exact = self._exact[id(node)]
            if exact is None:
                raise ExpressionError("quotients and remainders are of numbers only")
            return self._embed(exact)
        one, other = self.value(left), self.value(right)
        if symbol == "/":
            return one * self._invert(other) % self._prime
        return {"+": one + other, "-": one - other, "*": one * other}[symbol] % self._prime

    def _power(self, base: Node, exponent: Node) -> int:
        exact = self._exact[id(exponent)]
        if exact is None or exact.denominator > 2:
            return self._draw("power", (self.value(base), self.value(exponent)))
        value = self.value(base) if exact.denominator == 1 else self._root(base)
        power: int = pow(value, abs(exact.numerator), self._prime)
        return power if exact >= 0 else self._invert(power)

    def _root(self, argument: Node) -> int:
        exact = self._exact[id(argument)]
        if exact is None or exact < 0:
            return self._draw("sqrt", self.value(argument))
        root, rest = self._embed(Fraction(1, exact.denominator)), exact.numerator * exact.denominator
        for prime in _SMALL_PRIMES:
            times = 0
            while rest and rest % prime == 0:
                rest, times = rest // prime, times + 1
            single = pow(prime, self._prime + 1 >> 2, self._prime) if times else 1
            root = root * pow(single, times, self._prime) % self._prime
        whole = math.isqrt(rest)
        return root * (whole if whole * whole == rest else self._draw("sqrt", rest)) % self._prime

    def _embed(self, value: Fraction) -> int:
        return value.numerator * self._invert(value.denominator) % self._prime

    def _invert(self, value: int) -> int:
        if value % self._prime == 0:
            raise ExpressionError("division by zero")
        return pow(value, -1, self._prime)

    def _draw(self, kind: str, of: object) -> int:
        """A value that depends on nothing but the function, its argument, the point and the prime."""
        return _hash(self._prime, self._point, kind, of) % self._prime
