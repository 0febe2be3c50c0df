"""Judges a program by its results on cases, run in the sandbox; what is expected never enters it.

So no exit code, printed "passed", patched comparison or read test file can win: each value is compared here,
with its JSON type (True is not 1, 1 is not 1.0).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from roles.base import AnswerError, parse_strict_json
from scenarios.tasks.grading.text_checks import Score
from scenarios.tasks.sandbox.sandbox import ProgramRun, run_program

MAX_PROGRAM_CHARS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCase:
    """Example: FunctionCase(arguments=([1, 2, 3],), expected=6)"""

    arguments: Sequence[Any]  # JSON values
    expected: Any  # a JSON value


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """Example: CaseResult(passed=False, seen="error ZeroDivisionError")"""

    passed: bool
    seen: str  # what the program gave, as JSON or text, or how it failed


def judge_function(source: str, function: str, cases: Sequence[FunctionCase]) -> tuple[CaseResult, ...]:
    """The result of every case, all in one run; equal requests are run once.

    Raises:
        UserError, InfrastructureError: see `run_program`; never for what the program does.
    """
    if len(source) > MAX_PROGRAM_CHARS:
        return (CaseResult(passed=False, seen="program too long"),) * len(cases)
    run = _call(source, function, json.dumps([list(case.arguments) for case in cases]))
    lines = run.stdout.splitlines()
    ending = _describe_ending(run)
    return tuple(
        _judge_line(lines[number] if number < len(lines) else None, case.expected, ending)
        for number, case in enumerate(cases)
    )


def score_cases(results: Sequence[CaseResult]) -> Score:
    """The share of cases that passed."""
    share = sum(result.passed for result in results) / len(results)
    first = next((result.seen for result in results if not result.passed), "")
    return Score(
        value=share,
        explanation=f"{share:.0%} of {len(results)} cases passed{f'; {first[:80]}' if first else ''}",
        failure=None if share == 1 else "wrong",
    )


class _ClockError(Exception):
    """A run that time ended: another one may end otherwise, so it is not remembered."""

    def __init__(self, run: ProgramRun) -> None:
        self.run = run


def _call(source: str, function: str, stdin: str) -> ProgramRun:
    try:
        return _call_once(source, function, stdin)
    except _ClockError as error:
        return error.run


@lru_cache(maxsize=512)
def _call_once(source: str, function: str, stdin: str) -> ProgramRun:
    run = run_program(source, function=function, stdin=stdin)
    if run.outcome == "timeout":
        raise _ClockError(run)
    return run


def _judge_line(line: str | None, expected: Any, ending: str) -> CaseResult:
    if line is None:
        return CaseResult(passed=False, seen=ending)
    try:
        report = parse_strict_json(line)
        if len(report) != 1:
            return CaseResult(passed=False, seen="no result")
        seen = (
            json.dumps(report["value"], sort_keys=True) if "value" in report else f"error {report['error']}"
        )
    except (AnswerError, TypeError, KeyError, RecursionError):
        return CaseResult(passed=False, seen="no result")
    return CaseResult(passed=seen == json.dumps(expected, sort_keys=True), seen=seen)


def _describe_ending(run: ProgramRun) -> str:
    if run.outcome != "finished":
        return {"timeout": "took too long", "output_limit": "printed too much"}[run.outcome]
    last = run.stderr.strip().splitlines()
    return f"exit code {run.exit_code}{f': {last[-1][:120]}' if last else ''}"
