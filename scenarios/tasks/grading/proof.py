"""Asks a process of its own to prove that two expressions are equal; bounded in steps, time and memory."""

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, assert_never

from scenarios.tasks.grading.expressions import Application, Name, Negation, Node, Number, Operation

CHILD = Path(__file__).with_name("proof_child.py")
MAX_STEPS = 1_500_000  # calls of functions: two or three seconds
CPU_S, WALL_S = 15, 60  # far beyond the steps: they end what counts no steps
MEMORY_BYTES = 2 << 30


def is_proven_equal(first: Node, second: Node) -> bool:
    """Return whether SymPy proves the expressions equal for positive unknowns within MAX_STEPS."""
    return _prove(json.dumps([_as_lists(first), _as_lists(second)]))


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


def _as_lists(node: Node) -> list[Any]:
    match node:
        case Number(value=value):
            return ["number", str(value.numerator), str(value.denominator)]
        case Name(name=name):
            return ["name", name]
        case Negation(operand=operand):
            return ["negation", _as_lists(operand)]
        case Application(function=function, argument=argument):
            return ["call", function, _as_lists(argument)]
        case Operation(symbol=symbol, left=left, right=right):
            return ["operation", symbol, _as_lists(left), _as_lists(right)]
        case _:
            assert_never(node)
