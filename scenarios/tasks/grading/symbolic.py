"""Whether two expressions are equal, by their values at random points of a large prime field.

Equal rational functions agree everywhere; different ones agree at a random point with probability at most
degree / prime (Schwartz and Zippel), here below 2^-170. The prime and the points come from a hash of both
texts, so the test is repeatable and no answer can be built for them. Chosen over SymPy: `simplify` has no
time bound and misses equalities, and its text parsers run code. Roots of rational numbers are exact (any
choice of root is a field automorphism); pi and e count as unknowns; sin, log, roots of unknowns and powers
with unknown exponents are functions of which only f(a) = f(b) for a = b is known. So equal is never said of
different expressions, but identities such as sin(x)^2 + cos(x)^2 = 1 are not seen.
"""

import math
from fractions import Fraction
from hashlib import blake2b
from typing import assert_never

from scenarios.tasks.grading.arithmetic import evaluate
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

MAX_DEGREE = 10_000
NUM_POINTS = 2
HASH_BYTES = 24
_SMALL_PRIMES = tuple(n for n in range(2, 100) if all(n % d for d in range(2, n)))
_BASES = (101, 103, 107, 109, 113, 127, 131, 137)
# a prime of the form k * _STEP - 1 has a square root of every small prime (quadratic reciprocity), and
# the power (prime + 1) / 4 is one
_STEP = 4 * math.prod(_SMALL_PRIMES)


def are_equal(first: str, second: str) -> bool:
    """Whether two expressions are equal wherever both have a value.

    Raises:
        ExpressionError: one of them is no expression, is too large, or has a value nowhere.
    """
    trees = [parse_expression(text, names=True) for text in (first, second)]
    for tree in trees:
        _degree(tree)
    prime = _choose_prime(first, second)
    for point in range(NUM_POINTS):
        field = _Field(prime, point)
        if field.value(trees[0]) != field.value(trees[1]):
            return False
    return True


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


def _degree(node: Node) -> int:
    """A bound on numerator and denominator degree."""
    match node:
        case Number():
            degree = 0
        case Name() | Application():
            for child in [node.argument] if isinstance(node, Application) else []:
                _degree(child)
            degree = 1
        case Negation(operand=operand):
            degree = _degree(operand)
        case Operation(symbol="**", left=left, right=right):
            exponent = _exact(right)
            degree = _degree(left) * math.ceil(abs(Fraction(1) if exponent is None else exponent)) + _degree(
                right
            )
        case Operation(left=left, right=right):
            degree = _degree(left) + _degree(right)
        case _:
            assert_never(node)
    if degree > MAX_DEGREE:
        raise ExpressionError(f"a polynomial of degree over {MAX_DEGREE}")
    return degree


def _exact(node: Node) -> Fraction | None:
    """The rational value of a subtree; None where it has unknowns or functions."""
    match node:
        case Number():
            return evaluate(node)
        case Name() | Application():
            return None
        case Negation(operand=operand):
            value = _exact(operand)
            return None if value is None else -value
        case Operation(left=left, right=right):
            if _exact(left) is None or _exact(right) is None:
                return None
            return evaluate(node)
        case _:
            assert_never(node)


class _Field:
    """Arithmetic modulo a prime at one random point."""

    def __init__(self, prime: int, point: int) -> None:
        self._prime, self._point = prime, point

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
            exact = _exact(node)
            if exact is None:
                raise ExpressionError("quotients and remainders are of numbers only")
            return self._embed(exact)
        one, other = self.value(left), self.value(right)
        if symbol == "/":
            return one * self._invert(other) % self._prime
        return {"+": one + other, "-": one - other, "*": one * other}[symbol] % self._prime

    def _power(self, base: Node, exponent: Node) -> int:
        exact = _exact(exponent)
        if exact is None or exact.denominator > 2:
            return self._draw("power", (self.value(base), self.value(exponent)))
        value = self.value(base) if exact.denominator == 1 else self._root(base)
        power: int = pow(value, abs(exact.numerator), self._prime)
        return power if exact >= 0 else self._invert(power)

    def _root(self, argument: Node) -> int:
        exact = _exact(argument)
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
