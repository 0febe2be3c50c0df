"""Runs in a process of its own: proves with SymPy that two expressions are equal, within a number of steps.

The expressions arrive on standard input as the JSON of `arithmetic.Node`s; SymPy's parser is never used, no
text is read as an expression. Unknowns are positive. Prints "zero" or "unknown". A step is a call of a
function, so that the same expressions end at the same step on any machine.
"""

import json
import operator
import resource
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

FUNCTIONS = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "abs": "Abs"}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


class OutOfStepsError(Exception):
    """The budget is spent."""


def build(node: Any, sympy: Any) -> Any:
    """SymPy's object of a tree in lists."""
    kind, *rest = node
    if kind == "number":
        value = Fraction(rest[0])
        return sympy.Rational(value.numerator, value.denominator)
    if kind == "name":
        constants = {"pi": sympy.pi, "e": sympy.E}
        return constants.get(rest[0]) or sympy.Symbol(f"unknown_{rest[0]}", positive=True)
    if kind == "negative":
        return -build(rest[0], sympy)
    if kind == "call":
        return getattr(sympy, FUNCTIONS.get(rest[0], rest[0]))(build(rest[1], sympy))
    return OPERATIONS[kind](build(rest[0], sympy), build(rest[1], sympy))


def list_forms(difference: Any, sympy: Any) -> Iterator[Callable[[], Any]]:
    """Ways to write the difference, the cheap ones first; it is zero if any of them is."""
    yield lambda: difference
    yield lambda: sympy.expand(sympy.numer(sympy.together(sympy.expand(difference.rewrite(sympy.exp)))))
    yield lambda: sympy.expand(sympy.expand_log(sympy.expand_trig(difference)))
    yield lambda: sympy.simplify(difference)


def main() -> None:
    """See the module. Arguments: most steps, seconds of CPU, bytes of memory."""
    most, cpu_s, memory_bytes = (int(word) for word in sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first, second = json.loads(sys.stdin.read())
    import sympy

    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    left = most

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        if left < 0:
            sys.setprofile(None)
            raise OutOfStepsError

    found = False
    sys.setprofile(count)
    try:
        difference = build(first, sympy) - build(second, sympy)
        found = any(form() == 0 for form in list_forms(difference, sympy))
    except Exception:  # a proof that fails in any way is none
        found = False
    finally:
        sys.setprofile(None)
    print("zero" if found else "unknown")


if __name__ == "__main__":
    main()
