"""Reads question files row by row: clean rows become tasks, the others are named with file, row and reason.

A file is JSON Lines, one JSON list, a CSV table or Parquet, of rows with `question` and `answer`; other
keys are ignored. A conversation of a question and its answer (ShareGPT, chat messages) is such a row too.
`qa`: the answer is a word, a number, an expression. `gsm8k`: worked solutions that end in `#### 42`, with
annotations `<<48/2=24>>` that become calculator calls and are checked (arXiv:2110.14168).
"""

import csv
import gzip
import io
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from roles.base import MAX_JSON_DEPTH
from roles.errors import UserError, unknown
from scenarios.base import MAX_DIFFICULTY, Step, ToolCall
from scenarios.tasks.grading.arithmetic import ExpressionError, calculate, format_number
from scenarios.tasks.grading.text_checks import Check, check_definition, is_rounded, parse_quantity
from scenarios.tasks.imported import ImportedTask, normalise_question
from scenarios.tasks.solver import judge_answer

Layout = Literal["qa", "gsm8k"]
CheckChoice = Literal["auto", "exact", "number", "f1", "symbolic"]
LAYOUTS, CHECK_CHOICES = get_args(Layout), get_args(CheckChoice)
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
GZIP, PARQUET = b"\x1f\x8b", b"PAR1"  # first bytes of such files
DELIMITERS = ",;\t"  # of tables
TURNS = {
    "system": "system",
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model"), "assistant"),
}  # names of who speaks in conversations
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
_TOOL_TURNS = ("function_call", "observation", "tool", "function", "ipython", "tool_call", "tool_response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A row that is no task. Example: Rejection(file="sums.jsonl", row=17, reason="answer is missing")"""

    file: str
    row: int  # counted from 1: the line, the element of a JSON list, the row of a table with its header
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
        UserError: unknown layout or check; a file that is missing, empty, too large, damaged or unknown.
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
        for row, content in iterate_rows(path):
            has_json = has_json or not isinstance(content, _NotJson)
            try:
                task = read(content, check, f"{path.name}:{row}")
                _refuse_repetition(task, seen)
                tasks.append(task)
            except RowError as error:
                rejections.append(Rejection(file=str(path), row=row, reason=str(error)))
        if row == 0:
            raise UserError(f"{path} has no rows; write each as a line {EXPECTED_ROW}")
        if not has_json:
            raise UserError(
                f"{path} is neither JSON nor a table with the columns question and answer;"
                f" write each row as a line {EXPECTED_ROW}"
            )
    return tasks, rejections


def choose_check(layout: str, choice: str, answer: str) -> Check:
    """Return the check of answers against this one: as `choice` says, or by what the answer looks like."""
    kind: Any = choice
    if choice == "auto":
        kind = "number" if layout == "gsm8k" or parse_quantity(answer) is not None else "exact"
    return Check(kind=kind, expected=answer)


def iterate_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The number and content of every element of a JSON list, row of a table, or line that is not blank.

    A row that is no strict JSON comes as a mark that says so, never as a dict.

    Raises:
        UserError: a file that is missing, empty, too large or damaged.
    """
    content = _read_file(path)
    if content.startswith(PARQUET):
        yield from enumerate(_read_parquet(path, content), start=1)
        return
    if content[: 1 << 16].lstrip()[:1] == b"[":
        yield from enumerate(_parse_list(path, content), start=1)
        return
    if (delimiter := _find_delimiter(content)) is not None:
        yield from _read_table(path, content, delimiter)
        return
    lines = content.splitlines()  # they end in LF, CRLF or CR
    if lines and isinstance(_parse_row(lines[0]), _NotJson) and isinstance(_parse_row(content), dict):
        raise UserError(
            f"{path} is one JSON object over several lines; write each row as a line {EXPECTED_ROW}"
        )
    for row, line in enumerate(lines, start=1):
        if len(line) > MAX_ROW_BYTES:
            yield row, _Unfit(f"row of more than {MAX_ROW_BYTES} bytes")
        elif line.strip():
            yield row, _parse_row(line)


def _read_file(path: Path) -> bytes:
    """The file's bytes: unpacked, without a byte order mark, UTF-16 as UTF-8."""
    try:
        with path.open("rb") as file:
            is_packed = file.peek(2)[:2] == GZIP
            with gzip.GzipFile(fileobj=file) if is_packed else file as unpacked:
                content = unpacked.read(MAX_FILE_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"cannot unpack {path}: {error}; pack it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise UserError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; split it")
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            content = content[len(mark) :]
            if encoding != "utf-8":
                try:
                    return content.decode(encoding).encode()
                except UnicodeDecodeError as error:
                    raise UserError(f"{path} is not {encoding} at byte {error.start}; convert it") from None
    return content


def _read_parquet(path: Path, content: bytes) -> list[Any]:
    try:
        return list(pq.read_table(pa.BufferReader(content)).to_pylist())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged Parquet ({str(error).splitlines()[0][:200]}); write it again"
        ) from None


def _find_delimiter(content: bytes) -> str | None:
    """Return the character between the columns of a table with question and answer; None: no table."""
    header = content[:MAX_ROW_BYTES].lstrip().splitlines()[:1]
    for delimiter in DELIMITERS:
        try:
            names = _read_names(next(csv.reader([line.decode() for line in header], delimiter=delimiter), []))
        except (csv.Error, UnicodeDecodeError):
            return None
        if names.count("question") == 1 == names.count("answer"):
            return delimiter
    return None


def _read_names(header: list[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _read_table(path: Path, content: bytes, delimiter: str) -> Iterator[tuple[int, Any]]:
    """Rows below the header, which is row 1 as in spreadsheets."""
    try:
        text = content.lstrip().decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at byte {error.start}; convert it") from None
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = _read_names(next(table))
    try:
        for row, cells in enumerate(table, start=2):
            if len(cells) == len(names):
                yield row, dict(zip(names, cells, strict=True))
            elif any(cells):
                reason = f"{len(cells)} cells under a header of {len(names)}"
                yield row, _Unfit(f"{reason}; quote cells that hold {delimiter!r}")
    except csv.Error as error:
        raise UserError(f"{path} line {table.line_num}: {error}; mend the quotes of the table") from None


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
    for key in ("conversations", "messages"):
        if key in content and "question" not in content:
            content = _read_conversation(key, content)
    question = _read_text(content, "question", MAX_QUESTION_CHARS)
    if not isinstance(content["question"], str):
        raise RowError("question is not text")
    answer = _read_text(content, "answer", MAX_SOLUTION_CHARS)
    if "tool_call>" in answer:
        raise RowError("answer holds a tool-call marker")
    return question, answer


def _read_text(content: dict[str, Any], name: str, most: int) -> str:
    value = content.get(name)
    if isinstance(value, float):  # of Parquet
        value = Decimal(repr(value)) if math.isfinite(value) else None
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


def _read_conversation(key: str, content: dict[str, Any]) -> dict[str, Any]:
    """The row of a conversation: its one question, a system text before it, and its one answer.

    Raises:
        RowError: several questions, tools, or turns of another form.
    """
    turns = content[key]
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise RowError(f"{key} is not a list of turns; write the row as {EXPECTED_ROW}")
    said: list[tuple[str, str]] = []
    for turn in turns:
        name = turn.get("from", turn.get("role"))
        if turn.get("tool_calls") or turn.get("function_call") or name in _TOOL_TURNS or content.get("tools"):
            raise RowError(
                f"the conversation calls tools, which the solver does not have; write it as {EXPECTED_ROW}"
            )
        if not isinstance(name, str) or name not in TURNS:
            raise RowError(f"a turn is from {ascii(name)[:40]}; known: {', '.join(TURNS)}")
        said.append((TURNS[name], _read_turn(turn)))
    system = said.pop(0)[1] if said and said[0][0] == "system" else ""
    if [name for name, _ in said] != ["user", "assistant"]:
        shown = ", ".join(name for name, _ in said[:MAX_SHOWN_KEYS]) or "empty"
        raise RowError(f"the conversation is {shown}; write one question and its answer as {EXPECTED_ROW}")
    question, answer = (text for _, text in said)
    if "<think>" in answer:
        raise RowError("the answer begins with thoughts; leave the answer alone")
    return {"question": f"{system}\n\n{question}".lstrip(), "answer": answer}


def _read_turn(turn: dict[str, Any]) -> str:
    value = turn.get("value", turn.get("content"))
    parts = value if isinstance(value, list) else [{"type": "text", "text": value}]
    found = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    texts = [text for text in found if isinstance(text, str)]
    if len(texts) != len(parts):
        raise RowError("a turn holds something else than text")
    return "".join(texts)


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
    if not sign or parse_quantity(result) is None:
        raise ValueError(f"annotation <<{annotation[:60]}>> is not expression=number")
    try:
        value = calculate(expression)
    except ExpressionError as error:
        raise ValueError(f"annotation <<{annotation[:60]}>>: {error}") from None
    if not is_rounded(value, result):
        raise ValueError(f"annotation <<{annotation[:60]}>> is wrong: the value is {format_number(value)}")
    return expression.strip()
