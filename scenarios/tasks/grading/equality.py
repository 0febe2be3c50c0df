r"""Equality of two expressions, in plain notation or LaTeX, decided without evaluating any text.

Rational functions are compared at a random point of a prime field: equal ones agree, different ones agree
with a probability below 2^-150 (Schwartz and Zippel). Prime and point come from a hash of both texts, so that
the test is repeatable and no answer can be built for them. Square roots of rational numbers are those of the
field as far as they have squares and prime factors below 100. In the field pi, e and all other functions are
unknowns: only f(a) = f(b) for a = b is known there. Trees with functions or roots that the field tells apart
are equal if they agree at real points to 60 digits and SymPy proves it (`equality_child.py`, a
process that is bounded in steps, time and memory and gets our tree, never a text).

Unknowns are real; equal means equal wherever both have a value, proven for positive unknowns. log is the
natural logarithm, e is Euler's number. LaTeX is translated by tokens; unknown commands are refused. A LaTeX
function without brackets takes the product that follows it: \sin 2x is sin(2x), and \sin^2 x is (sin(x))^2.
"""

import json
import math
import re
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import mpmath

from scenarios.tasks.grading.arithmetic import (
    FUNCTIONS,
    MAX_CHARS,
    MAX_DEPTH,
    ExpressionError,
    Node,
    parse_expression,
    reduce,
)

MAX_DEGREE = 10_000
MAX_PROVEN_DEGREE = 12  # of unknowns, where there are functions: what a proof expands grows fast with it
HASH_BYTES = 24
_SMALL_PRIMES = tuple(n for n in range(2, 100) if all(n % d for d in range(2, n)))
# a prime of the form k * _STEP - 1 has a square root of every small prime (quadratic reciprocity), and the
# power (prime + 1) / 4 is one
_STEP = 4 * math.prod(_SMALL_PRIMES)
DIGITS = 60
TOLERANCE = mpmath.mpf(10) ** -40  # of a difference, relative to the larger value where that is over 1
LARGEST = mpmath.mpf(10) ** 1000
NUM_POINTS, MAX_TRIES = 6, 40
CONSTANTS = {"pi": mpmath.pi, "e": mpmath.e}

CHILD = Path(__file__).with_name("equality_child.py")
MAX_STEPS = 1_500_000  # calls of functions: two or three seconds
CPU_S, WALL_S = 15, 60  # far beyond the steps: they end what counts no steps
MEMORY_BYTES = 2 << 30

_MPMATH = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "abs": "fabs"}
_SKIPPED = frozenset({"left", "right", ",", ";", "!", ":", " ", "quad", "displaystyle", "mathrm"})
_LATEX_SIGNS = {"cdot": "*", "times": "*", "ast": "*", "div": "/", "%": "%", "lbrace": "(", "rbrace": ")"}
_LETTERS = frozenset(
    {
        *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma"),
        *("tau", "phi", "varphi", "psi", "omega", "pi"),
    }
)
_FRACTIONS = frozenset({"frac", "dfrac", "tfrac"})
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_LATEX_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|[0-9][0-9.,]*|[A-Za-z]+|\s+|.", re.DOTALL)


def are_equal(first: str, second: str) -> bool:
    """Return whether two expressions are equal wherever both have a value.

    Raises:
        ExpressionError: one of them is no expression, is too large, or has a value nowhere.
    """
    one, other = (reduce(parse_expression(read_latex(text), names=True)) for text in (first, second))
    degree = max(_degree(one), _degree(other))
    prime = _choose_prime(first, second)
    if _field_value(one, prime) == _field_value(other, prime):
        return True
    if _is_rational(one) and _is_rational(other):
        return False
    if degree > MAX_PROVEN_DEGREE and _list_unknowns(one) | _list_unknowns(other):
        return False
    return agree_on_samples(one, other, f"{first}={second}") and is_proven_equal(one, other)


def _list_unknowns(node: Node) -> set[str]:
    if node[0] == "name":
        return {node[1]} - set(CONSTANTS)
    return set().union(*(_list_unknowns(part) for part in node[1:] if isinstance(part, tuple)))


def _is_rational(node: Node) -> bool:
    """Return whether a reduced tree is a rational function, which the field decides."""
    if node[0] == "call" or (node[0] == "**" and not _is_whole(node[2])):
        return False
    return all(_is_rational(part) for part in node[1:] if isinstance(part, tuple))


def _is_whole(node: Node) -> bool:
    return bool(node[0] == "number" and node[1].denominator == 1)


def _degree(node: Node) -> int:
    """A bound on numerator and denominator degree."""
    degrees = [_degree(part) for part in node[1:] if isinstance(part, tuple)]
    if node[0] in ("name", "call"):
        degree = 1
    elif node[0] == "**" and _is_whole(node[2]):
        degree = degrees[0] * abs(node[2][1].numerator)
    else:
        degree = sum(degrees)
    if degree > MAX_DEGREE:
        raise ExpressionError(f"a polynomial of degree over {MAX_DEGREE}")
    return degree


def _hash(*parts: object) -> int:
    digest = blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=HASH_BYTES)
    return int.from_bytes(digest.digest())


def _choose_prime(first: str, second: str) -> int:
    """A prime of the form k * _STEP - 1, by Fermat's test: no hash meets a pseudoprime of eight bases."""
    factor = _hash(first, second) >> 96 | 1
    bases = (101, 103, 107, 109, 113, 127, 131, 137)
    while any(pow(base, factor * _STEP - 2, factor * _STEP - 1) != 1 for base in bases):
        factor += 2
    return factor * _STEP - 1


def _field_root(value: Fraction, prime: int) -> int:
    rest, smooth = value.numerator * value.denominator, 1
    for small in _SMALL_PRIMES:
        while rest and rest % small == 0:
            rest, smooth = rest // small, smooth * small
    whole = math.isqrt(rest)
    other = whole if whole * whole == rest else _hash(prime, "sqrt", rest)
    return pow(smooth, prime + 1 >> 2, prime) * other * pow(value.denominator, -1, prime) % prime


def _field_value(node: Node, prime: int) -> int:
    """The value modulo the prime at the point that the prime gives every unknown."""
    match node:
        case ("number", value):
            return int(value.numerator * pow(value.denominator, -1, prime) % prime)
        case ("name", name):
            return _hash(prime, "name", name) % prime
        case ("negative", operand):
            return -_field_value(operand, prime) % prime
        case ("call", "sqrt", ("number", value)) if value >= 0:
            return _field_root(value, prime)
        case ("**", ("number", value), ("number", exponent)) if value > 0 and exponent.denominator == 2:
            return pow(_field_root(value, prime), exponent.numerator, prime)
        case ("call", function, argument):
            return _hash(prime, function, _field_value(argument, prime)) % prime
    sign, one, other = node[0], _field_value(node[1], prime), _field_value(node[2], prime)
    if sign == "**" and not _is_whole(node[2]):
        return _hash(prime, "power", one, other) % prime
    exponent = node[2][1].numerator if sign == "**" else -1
    if (one % prime == 0 and sign == "**" and exponent < 0) or (other % prime == 0 and sign == "/"):
        raise ExpressionError("division by zero")
    if sign == "**":
        return pow(one, exponent, prime)
    if sign == "/":
        return one * pow(other, -1, prime) % prime
    return {"+": one + other, "-": one - other, "*": one * other}[sign] % prime


def agree_on_samples(first: Node, second: Node, seed: str) -> bool:
    """Return whether both have a value at some real points and the same one at each of them.

    Points follow from `seed` alone: six where both have values, out of at most 40. A value that is not real,
    not defined or beyond 10^1000 counts as none.
    """
    names = sorted(_list_unknowns(first) | _list_unknowns(second))
    found = 0
    with mpmath.workdps(DIGITS):
        for point in range(MAX_TRIES if names else 1):
            values = {name: _draw(seed, point, name) for name in names}
            try:
                one, other = _real_value(first, values), _real_value(second, values)
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
    drawn = _hash(seed, point, name)
    size = mpmath.mpf(1) / 10 + mpmath.mpf(drawn >> 1) / 2 ** (8 * HASH_BYTES - 1) * 29 / 10
    return -size if point == 1 or (point > 1 and drawn % 2) else size


def _real_value(node: Node, values: Mapping[str, mpmath.mpf]) -> mpmath.mpf:
    match node:
        case ("number", value):
            found = mpmath.mpf(value.numerator) / value.denominator
        case ("name", name):
            found = +CONSTANTS[name] if name in CONSTANTS else values[name]
        case ("negative", operand):
            found = -_real_value(operand, values)
        case ("call", function, argument):
            inner = _real_value(argument, values)
            if function in ("exp", "sinh", "cosh", "tanh") and abs(inner) > 2300:
                raise ExpressionError("a value that is too large")
            found = getattr(mpmath, str(_MPMATH.get(str(function), function)))(inner)
        case (sign, left, right):
            one, other = _real_value(left, values), _real_value(right, values)
            if sign == "**" and one and abs(other * mpmath.log(abs(one))) > 2300:
                raise ExpressionError("a value that is too large")
            found = {
                "+": mpmath.mpf.__add__, "-": mpmath.mpf.__sub__, "*": mpmath.mpf.__mul__,
                "/": mpmath.mpf.__truediv__, "**": mpmath.mpf.__pow__,
            }[sign](one, other)  # fmt: skip
    if not isinstance(found, mpmath.mpf) or not mpmath.isfinite(found) or abs(found) > LARGEST:
        raise ExpressionError("no real value")
    return found


def is_proven_equal(first: Node, second: Node) -> bool:
    """Return whether SymPy proves the expressions equal for positive unknowns within MAX_STEPS."""
    return _prove(json.dumps([first, second], default=str))


@lru_cache(maxsize=1024)
def _prove(request: str) -> bool:
    command = [sys.executable, "-I", "-B", str(CHILD), str(MAX_STEPS), str(CPU_S), str(MEMORY_BYTES)]
    try:
        child = subprocess.run(
            command, input=request.encode(), capture_output=True, timeout=WALL_S, env={"PYTHONHASHSEED": "0"}
        )
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == 0 and child.stdout.strip() == b"zero"


def read_latex(text: str) -> str:
    r"""The text in the plain notation of `arithmetic.py`; a text without LaTeX as it is.

    Example: read_latex(r"\frac{1}{2}\sqrt{x}") == "((1)/(2))sqrt(x)"

    Raises:
        ExpressionError: an unknown command, braces that do not match, nested too deep.
    """
    stripped = text.strip()
    for opening, closing in _WRAPPERS:
        inside = stripped[len(opening) : len(stripped) - len(closing)]
        if len(stripped) > len(opening + closing) and stripped == f"{opening}{inside}{closing}":
            stripped = inside.strip()
            break
    if len(stripped) > MAX_CHARS:
        raise ExpressionError(f"an expression has at most {MAX_CHARS} characters, this one {len(stripped)}")
    if not any(sign in stripped for sign in "\\{}"):
        return stripped
    return _read_until("", deque(_LATEX_TOKEN.findall(stripped)), 0)


def _read_until(closing: str, tokens: deque[str], depth: int) -> str:
    """Everything up to the closing sign, which is taken too; "" for the end of the text."""
    if depth > MAX_DEPTH:
        raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
    pieces: list[str] = []
    while tokens and tokens[0] not in (closing, "}"):
        pieces.append(_read_piece(tokens, depth))
    if (tokens[0] if tokens else "") != closing:
        raise ExpressionError(
            f"{closing!r} is missing" if closing else "a closing brace without its opening one"
        )
    if closing:
        tokens.popleft()
    return "".join(pieces)


def _read_piece(tokens: deque[str], depth: int) -> str:
    token = tokens.popleft()
    name = token[1:]
    if token in ("{", "("):
        return f"({_read_until({'{': '}', '(': ')'}[token], tokens, depth + 1)})"
    if token in ("_", "&", "|"):
        raise ExpressionError(f"unexpected {token!r}")
    if not token.startswith("\\"):
        return token
    if name in _SKIPPED:
        return " "
    if name in _LATEX_SIGNS:
        return _LATEX_SIGNS[name]
    if name in _LETTERS:
        return f" {name} "
    if name in _FRACTIONS:
        return f"(({_read_group(tokens, depth)})/({_read_group(tokens, depth)}))"
    if name == "sqrt" and tokens and tokens[0] == "[":
        tokens.popleft()
        degree = _read_until("]", tokens, depth + 1)
        return f"(({_read_group(tokens, depth)})^(1/({degree})))"
    if name == "sqrt":
        return f"sqrt({_read_group(tokens, depth)})"
    if name in FUNCTIONS:
        return _read_function(name, tokens, depth)
    raise ExpressionError(f"unknown command {token[:20]!r}")


def _read_function(name: str, tokens: deque[str], depth: int) -> str:
    """A function with its power and its argument: a group or bracket, else the product that follows."""
    power = ""
    _skip_spaces(tokens)
    if tokens and tokens[0] == "^":
        tokens.popleft()
        power = _read_group(tokens, depth)
        if power.strip().startswith("-"):
            raise ExpressionError(f"{name}^{power} may be an inverse: write arc{name} or a fraction")
        _skip_spaces(tokens)
    pieces: list[str] = []
    if tokens and tokens[0] in ("{", "("):
        pieces.append(_read_piece(tokens, depth)[1:-1])
    else:
        while tokens and _is_factor(tokens[0]):
            pieces.append(_read_piece(tokens, depth))
    if not pieces:
        raise ExpressionError("a function without its argument")
    applied = f"{name}({''.join(pieces)})"
    return f"({applied})^({power})" if power else applied


def _is_factor(token: str) -> bool:
    if token.startswith("\\"):
        return token[1:] in _LETTERS or token[1:] in _FRACTIONS or token == "\\sqrt"
    return token.isascii() and token[:1].isalnum()


def _read_group(tokens: deque[str], depth: int) -> str:
    """A group in braces, or the one digit, letter or command that LaTeX takes without them."""
    _skip_spaces(tokens)
    if not tokens or tokens[0] in ("}", ")", "]"):
        raise ExpressionError("a command without its argument")
    if tokens[0] == "{":
        return _read_piece(tokens, depth)[1:-1]
    if not tokens[0].startswith("\\") and len(tokens[0]) > 1:
        raise ExpressionError(f"put braces around {tokens[0][:10]!r}")
    return _read_piece(tokens, depth + 1)


def _skip_spaces(tokens: deque[str]) -> None:
    while tokens and (tokens[0] in ("\\left", "\\right", "\\,", "\\ ") or tokens[0].isspace()):
        tokens.popleft()
