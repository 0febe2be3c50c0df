"""Reward of a maths trajectory in four parts: accuracy, format, reasoning, brevity. Each is logged by itself.

Reasoning and brevity are paid for right answers only, so that neither pretty working nor silence earns
anything. Weights are config; the defaults stand in WEIGHTS and add up to 1.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.base import Verdict
from scenarios.rewards import is_parseable, replace_weights
from scenarios.tasks.grading.arithmetic import MAX_CHARS, ExpressionError, calculate
from scenarios.tasks.grading.text_checks import is_rounded, parse_quantity

WEIGHTS: dict[str, float] = {"accuracy": 0.7, "format": 0.1, "reasoning": 0.1, "brevity": 0.1}
FREE_CHARS = 400  # of working that cost no brevity
MAX_WORKING_CHARS = 4_000  # where brevity reaches 0; text beyond is not read
_RUN = re.compile(r"[0-9.,+*/%()^ \t-]+")
_SENTENCE_END = re.compile(r"[.,][ \t]")
_OPERATOR = re.compile(r"[+*/%^-]")


def maths_reward(
    verdict: Verdict,
    *,
    turns: Sequence[str],
    num_calls: int = 0,
    num_valid_calls: int = 0,
    weights: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Every part as it enters the sum, and their "total", in [0, 1] with the default weights.

    accuracy: the verdict's reward. format: the answer parsed. reasoning: share of the equations in the turns
    (`3 * 4 = 12`) and of the calculator calls that are right or valid, 0 without any. brevity: 1 up to
    FREE_CHARS, falling to 0.

    Raises:
        UserError: see `replace_weights`.
        ValueError: impossible counts.
    """
    if not 0 <= num_valid_calls <= num_calls:
        raise ValueError(f"impossible counts: {num_valid_calls} valid of {num_calls} calls")
    weight = replace_weights(WEIGHTS, weights, "weight of the maths reward")
    text = "\n".join(turns)
    right, written = count_equations(text)
    right, written = right + num_valid_calls, written + num_calls
    shares = {
        "accuracy": verdict.reward,
        "format": float(is_parseable(verdict)),
        "reasoning": right / written if written and verdict.exact else 0.0,
        "brevity": _brevity(len(text)) if verdict.exact else 0.0,
    }
    parts = {name: weight[name] * share for name, share in shares.items()}
    return parts | {"total": sum(parts.values())}


def count_equations(text: str) -> tuple[int, int]:
    """Count the different equations `expression = number` that are right, and all of them.

    The expression has an operator; a result with decimals may be rounded to them.
    """
    pieces = text[:MAX_WORKING_CHARS].split("=")
    equations = set()
    for left, right in itertools.pairwise(pieces):
        expression, result = _last_run(left), _first_run(right)
        if _OPERATOR.search(expression.lstrip("-")) and parse_quantity(result) is not None:
            equations.add((expression, result))
    return sum(_is_right(*equation) for equation in equations), len(equations)


def _last_run(text: str) -> str:
    """The arithmetic that a text ends with; nothing where it is longer than an expression may be."""
    tail = text[-MAX_CHARS - 1 :].rstrip(" \t$")
    start = len(tail)
    while start and _RUN.fullmatch(tail[start - 1]):
        start -= 1
    run = _SENTENCE_END.split(tail[start:])[-1]
    return run.strip(" \t,.") if len(tail) - start <= MAX_CHARS else ""


def _first_run(text: str) -> str:
    """The number that a text begins with."""
    found = re.match(r"[ \t]*[$]?(-?[0-9][0-9,]*(?:\.[0-9]+)?)", text[:80])
    return found[1].rstrip(",") if found else ""


def _is_right(expression: str, result: str) -> bool:
    try:
        return is_rounded(calculate(expression), result)
    except ExpressionError:
        return False


def _brevity(num_chars: int) -> float:
    return min(1.0, max(0.0, (MAX_WORKING_CHARS - num_chars) / (MAX_WORKING_CHARS - FREE_CHARS)))
