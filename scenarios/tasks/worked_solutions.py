"""Worked solutions as GSM8K writes them: text with annotations `<<48/2=24>>`, then `#### answer`."""

from dataclasses import dataclass
from fractions import Fraction

from scenarios.base import Step, ToolCall
from scenarios.tasks.grading.arithmetic import ExpressionError, calculate, format_number
from scenarios.tasks.grading.text_checks import parse_quantity

OPEN, CLOSE, FINAL = "<<", ">>", "####"
MAX_ANNOTATIONS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A solution cut at its annotations.

    Example: read_solution("Half is 48/2 = <<48/2=24>>24.\\n#### 24") has one call with text "Half is 48/2 =",
             ending "24." and answer "24"
    """

    calls: tuple[Step, ...]  # each with the words before its annotation and a calculator call
    ending: str  # the words after the last annotation
    answer: str  # the number after ####, as written


def read_solution(text: str) -> Solution:
    """Cut a solution and check every annotation.

    Raises:
        ValueError: no or several `####`, no number after it, a malformed or wrong annotation; says which.
    """
    if text.count(FINAL) != 1:
        raise ValueError(f"{text.count(FINAL)} times #### (exactly one must introduce the final number)")
    body, answer = text.split(FINAL)
    answer = answer.strip()
    if parse_quantity(answer) is None:
        raise ValueError(f"final answer {answer[:40]!r} is not a number")
    calls, rest = [], body
    while OPEN in rest:
        before, rest = rest.split(OPEN, 1)
        if CLOSE in before or CLOSE not in rest:
            raise ValueError("annotation without both << and >>")
        annotation, rest = rest.split(CLOSE, 1)
        call = ToolCall(name="calculator", arguments={"expression": _check_annotation(annotation)})
        calls.append(Step(text=before.strip(), call=call))
        if len(calls) > MAX_ANNOTATIONS:
            raise ValueError(f"more than {MAX_ANNOTATIONS} annotations")
    if CLOSE in rest:
        raise ValueError("annotation without both << and >>")
    return Solution(calls=tuple(calls), ending=rest.strip(), answer=answer)


def _check_annotation(annotation: str) -> str:
    """The expression of `expression=result`, whose value the result must be, or be rounded from."""
    expression, sign, result = annotation.partition("=")
    written = parse_quantity(result)
    if not sign or written is None:
        raise ValueError(f"annotation <<{annotation[:60]}>> is not expression=number")
    try:
        value = calculate(expression)
    except ExpressionError as error:
        raise ValueError(f"annotation <<{annotation[:60]}>>: {error}") from None
    if value != written.value and not _is_rounded(value, written.value, result):
        raise ValueError(f"annotation <<{annotation[:60]}>> is wrong: the value is {format_number(value)}")
    return expression.strip()


def _is_rounded(value: Fraction, written: Fraction, text: str) -> bool:
    """Tell whether a result with decimals is the value rounded to them; whole results must be exact."""
    decimals = len(text.strip().rstrip("%").partition(".")[2])
    return decimals > 0 and abs(value - written) <= Fraction(1, 2 * 10**decimals)
