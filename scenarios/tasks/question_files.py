"""Reads question files row by row: clean rows become tasks, the others are named with file, row and reason.

A file is JSON Lines, or one JSON list, of objects with `question` and `answer`; other keys are ignored.
`qa`: the answer is a word, a number, an expression. `gsm8k`: worked solutions that end in `#### 42`, with
annotations `<<48/2=24>>` that become calculator calls and are checked (arXiv:2110.14168).
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from roles.base import MAX_JSON_DEPTH
from roles.errors import UserError, unknown
from scenarios.base import MAX_DIFFICULTY, Step, ToolCall
from scenarios.tasks.grading.arithmetic import ExpressionError, calculate, format_number
from scenarios.tasks.grading.text_checks import Check, check_definition, parse_quantity
from scenarios.tasks.imported import ImportedTask, normalise_question
from scenarios.tasks.solver import judge_answer

Layout = Literal["qa", "gsm8k"]
CheckChoice = Literal["auto", "exact", "number", "f1", "symbolic"]
LAYOUTS, CHECK_CHOICES = get_args(Layout), get_args(CheckChoice)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_FILE_BYTES = 1 << 30
MAX_ROW_BYTES = 1 << 20
MAX_QUESTION_CHARS = 8_000
MAX_SOLUTION_CHARS = 8_000
# A string that is not closed ends with the text, so every quote starts a match and the scan is linear.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
OPEN, CLOSE, FINAL = "<<", ">>", "####"
MAX_ANNOTATIONS = 30
EXPECTED_ROW = '{"question": "...", "answer": "..."}'
MAX_SHOWN_KEYS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A row that is no task. Example: Rejection(file="sums.jsonl", row=17, reason="answer is missing")"""

    file: str
    row: int  # counted from 1: the line, or the element of a JSON list
    reason: str

    def __str__(self) -> str:
        return f"{self.file} row {self.row}: {self.reason}"


class RowError(Exception):
    """Reason that a row is no task; becomes a Rejection."""


@dataclass(frozen=True, slots=True)
class _Unfit:
    """Stands for a part of a row that strict JSON does not allow."""

    reason: str


class _NotJson(_Unfit):
    """Stands for a row that is no JSON text at all."""


def read_questions(
    paths: Sequence[Path], layout: str, check: str = "auto"
) -> tuple[list[ImportedTask], list[Rejection]]:
    """Tasks and rejected rows of files, both in their order; a question counts once over all files.

    `check` says how answers are compared; `auto` takes numbers as numbers and all else exactly.

    Raises:
        UserError: unknown layout or check; a file that is missing, empty, too large or not JSON at all.
    """
    if layout not in LAYOUTS:
        raise unknown("format", layout, list(LAYOUTS))
    if check not in CHECK_CHOICES:
        raise unknown("check", check, list(CHECK_CHOICES))
    read = _read_gsm8k if layout == "gsm8k" else _read_qa
    tasks, rejections = [], []
    seen: dict[str, ImportedTask] = {}
    for path in paths:
        row, has_json = 0, False
        for row, content in _iterate_rows(path):
            has_json = has_json or not isinstance(content, _NotJson)
            try:
                task = read(content, check, f"{path.name}:{row}")
                _refuse_repetition(task, seen)
                tasks.append(task)
            except RowError as error:
                rejections.append(Rejection(file=str(path), row=row, reason=str(error)))
        if row == 0:
            raise UserError(f"{path} has no rows; give JSON Lines or a JSON list of question and answer")
        if not has_json:
            raise UserError(
                f"{path} holds no row of JSON (CSV or plain text?); write each row as a line {EXPECTED_ROW}"
            )
    return tasks, rejections


def choose_check(layout: str, choice: str, answer: str) -> Check:
    """Return the check of answers against this one: as `choice` says, or by what the answer looks like."""
    kind: Any = choice
    if choice == "auto":
        kind = "number" if layout == "gsm8k" or parse_quantity(answer) is not None else "exact"
    return Check(kind=kind, expected=answer)


def _iterate_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The number and content of every element of a JSON list, or of every line that is not blank."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; split it")
        content = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if content[: 1 << 16].lstrip()[:1] == b"[":
        yield from enumerate(_parse_list(path, content), start=1)
        return
    for row, line in enumerate(content.splitlines(), start=1):  # they end in LF, CRLF or CR
        if len(line) > MAX_ROW_BYTES:
            yield row, _Unfit(f"row of more than {MAX_ROW_BYTES} bytes")
        elif line.strip():
            yield row, _parse_row(line)


class _NestedError(ValueError):
    """A JSON text with more than MAX_JSON_DEPTH brackets open at a time."""


def _check_depth(text: str) -> None:
    """Count open brackets outside strings: the depth at which a parser gives up differs between Pythons."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_JSON_DEPTH:
            raise _NestedError


def _load(text: str) -> Any:
    """The JSON value; parts that strict JSON refuses are marked, so that only their row is lost."""
    _check_depth(text)
    return json.loads(
        text,
        object_pairs_hook=_keep_or_mark,
        parse_constant=lambda name: _Unfit(f"{name} is not JSON"),
        parse_float=Decimal,
    )


def _keep_or_mark(pairs: list[tuple[str, Any]]) -> Any:
    row = dict(pairs)
    return row if len(row) == len(pairs) else _Unfit("the object repeats a key")


def _parse_row(line: bytes) -> Any:
    try:
        return _load(line.decode())
    except UnicodeDecodeError:
        return _NotJson("text is not UTF-8")
    except (ValueError, ArithmeticError) as error:
        return _NotJson(f"not JSON ({_explain(error)})")


def _parse_list(path: Path, content: bytes) -> list[Any]:
    try:
        rows = _load(content.decode())
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at byte {error.start}; convert it") from None
    except (ValueError, ArithmeticError) as error:
        reason = f"{path} is no JSON list ({_explain(error)}); repair it or write one row per line"
        raise UserError(reason) from None
    return list(rows)


def _explain(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    return "nested too deep" if isinstance(error, _NestedError) else "a number too large"


def _read_qa(content: Any, choice: str, source: str) -> ImportedTask:
    question, answer = _read_pair(content)
    return _make_task(question, answer, choose_check("qa", choice, answer), (), "", source)


def _read_gsm8k(content: Any, choice: str, source: str) -> ImportedTask:
    question, text = _read_pair(content)
    try:
        solution = read_solution(text)
    except ValueError as error:
        raise RowError(str(error)) from None
    check = choose_check("gsm8k", choice, solution.answer)
    return _make_task(question, solution.answer, check, solution.calls, solution.ending, source)


def _make_task(
    question: str, answer: str, check: Check, calls: tuple[Step, ...], ending: str, source: str
) -> ImportedTask:
    try:
        check_definition(check)
    except UserError as error:
        raise RowError(str(error)) from None
    final = f"{ending}\n{json.dumps({'answer': answer}, ensure_ascii=False)}".lstrip()
    if judge_answer(final, check).reward != 1:
        raise RowError("its own solution does not read as an answer (braces in its text?)")
    return ImportedTask(
        question=question,
        answer=answer,
        check=check,
        steps=(*calls, Step(text=final)),
        difficulty=min(max(len(calls), 1), MAX_DIFFICULTY),
        source=source,
    )


def _read_pair(content: Any) -> tuple[str, str]:
    if isinstance(content, _Unfit):
        raise RowError(content.reason)
    if not isinstance(content, dict):
        raise RowError("not an object with question and answer")
    question = _read_text(content, "question", MAX_QUESTION_CHARS)
    if not isinstance(content["question"], str):
        raise RowError("question is not text")
    answer = _read_text(content, "answer", MAX_SOLUTION_CHARS)
    if "tool_call>" in answer:
        raise RowError("answer holds a tool-call marker")
    return question, answer


def _read_text(content: dict[str, Any], name: str, most: int) -> str:
    value = content.get(name)
    if value is None:
        raise RowError(f"{name} is missing{_describe_other_keys(content)}")
    if isinstance(value, _Unfit):
        raise RowError(f"{name}: {value.reason}")
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise RowError(f"{name} is neither text nor a number")
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    if not text.strip():
        raise RowError(f"{name} is empty")
    if len(text) > most:
        raise RowError(f"{name} of {len(text)} characters (at most {most})")
    if any(_is_unfit(character) for character in text):
        raise RowError(f"{name} holds control characters or half a character")
    return text.strip()


def _describe_other_keys(content: dict[str, Any]) -> str:
    """The keys of a row in another layout (ShareGPT, Alpaca) and the expected row; "" without such keys."""
    others = [key for key in content if key not in ("question", "answer")]
    if not others:
        return ""
    shown = ", ".join(ascii(key[:30]) for key in others[:MAX_SHOWN_KEYS])
    return f"; the row has {shown}: write it as {EXPECTED_ROW}"


def _is_unfit(character: str) -> bool:
    """A control character (other than line ends and tabs) or half of a surrogate pair."""
    return unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\r\t"


def _refuse_repetition(task: ImportedTask, seen: dict[str, ImportedTask]) -> None:
    first = seen.setdefault(normalise_question(task.question), task)
    if first is not task:
        other = "" if first.answer == task.answer else " with another answer"
        raise RowError(f"repeats the question of {first.source}{other}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedSolution:
    """A solution cut at its annotations.

    Example: read_solution("Half is 48/2 = <<48/2=24>>24.\\n#### 24") has one call with text "Half is 48/2 =",
             ending "24." and answer "24"
    """

    calls: tuple[Step, ...]  # each with the words before its annotation and a calculator call
    ending: str  # the words after the last annotation
    answer: str  # the number after ####, as written


def read_solution(text: str) -> WorkedSolution:
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
    return WorkedSolution(calls=tuple(calls), ending=rest.strip(), answer=answer)


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
