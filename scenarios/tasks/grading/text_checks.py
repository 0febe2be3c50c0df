"""General verifiers of one answer's text: exact, number, regex, token F1, symbolic. Total, bounded, strict.

Each judges any text without raising. All but f1, which pays for shared words, pay nothing for an answer that
holds more than the right one; a regex pays for what its author's pattern matches as a whole.
Programs are judged in `program_cases.py`, soft criteria in `judge.py`.
"""

import re
import string
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal, assert_never

import re2
from pydantic import BaseModel, ConfigDict, Field

from roles.errors import UserError
from scenarios.tasks.grading.arithmetic import ExpressionError
from scenarios.tasks.grading.equality import are_equal

MAX_ANSWER_CHARS = 20_000
MAX_NUMBER_CHARS = 60
MAX_PATTERN_CHARS = 500
PATTERN_MEMORY_BYTES = 1 << 20

CheckKind = Literal["exact", "number", "regex", "f1", "symbolic"]
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Check(BaseModel):
    """Comparison of an answer with what is expected.

    Example: Check(kind="number", expected="1,250", absolute=0.5)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: CheckKind
    expected: str  # the answer; the pattern of a regex
    absolute: Tolerance = 0.0  # largest difference of a number
    relative: Tolerance = 0.0  # the same as a share of the expected number; the larger of the two counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Result of a verifier for one answer.

    Example: Score(value=0.0, explanation="41 instead of 42", failure="wrong")
    """

    value: float  # in [0, 1]
    explanation: str
    failure: str | None  # None where the value is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as written, with its currency or percent sign ("" without one).

    Example: parse_quantity("-$1,250.50") == Quantity(value=Fraction(-2501, 2), unit="$")
    """

    value: Fraction
    unit: str


_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<currency>[$\u20ac\u00a3\u00a5]?)"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2})|/(?P<below>0*[1-9][0-9]*))?(?P<percent>%?)"
)
_ARTICLES = frozenset({"a", "an", "the"})
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def check_definition(check: Check) -> None:
    """Refuse a check that no answer could pass, where a task is made.

    Raises:
        UserError: an expected answer that is not of its kind, or a pattern that RE2 refuses.
    """
    if not check.expected.strip():
        raise UserError(f"{check.kind} check expects nothing; give the expected answer")
    if check.kind == "number" and parse_quantity(check.expected) is None:
        raise UserError(f"number check expects {check.expected[:40]!r}, which is no number; use exact")
    if check.kind == "regex":
        _compile(check.expected)
    elif score_answer(check, check.expected).value != 1:
        raise UserError(f"{check.kind} check refuses its own answer {check.expected[:40]!r}; use exact")


def score_answer(check: Check, answer: str) -> Score:
    """The score of any text."""
    if len(answer) > MAX_ANSWER_CHARS:
        return _wrong(f"answer of {len(answer)} characters (at most {MAX_ANSWER_CHARS})", "too_long")
    match check.kind:
        case "exact":
            return _all_or_nothing(match_exactly(check.expected, answer), answer)
        case "number":
            return _score_number(check, answer)
        case "regex":
            return _all_or_nothing(match_pattern(check.expected, answer), answer)
        case "f1":
            return _graded(token_f1(check.expected, answer))
        case "symbolic":
            return _score_expression(check.expected, answer)
        case _:
            assert_never(check.kind)


def match_exactly(expected: str, answer: str) -> bool:
    """Equal up to case and spacing."""
    return answer.casefold().split() == expected.casefold().split()


def parse_quantity(text: str) -> Quantity | None:
    """A number: sign, currency sign, well-formed thousands, exponent of two digits, percent sign; or `1/2`.

    Both parts of a fraction are whole. None for anything else: other digits than 0-9, spaces or words inside,
    `1,00`, `5.`, `1/0`, `.5/2`, both $ and %.
    """
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= MAX_NUMBER_CHARS else None
    if found is None or (found["currency"] and found["percent"]):
        return None
    if found["below"] and "." in found["digits"]:
        return None
    digits = Fraction(found["digits"].replace(",", "")) / int(found["below"] or 1)
    scaled = digits * Fraction(10) ** int(found["exponent"] or 0)
    value = -scaled if found["sign"] == "-" else scaled
    return Quantity(value=value, unit=found["currency"] or found["percent"])


def is_rounded(value: Fraction, text: str) -> bool:
    """Tell whether a number as written is this value, or the value rounded to its decimals if it has some."""
    written = parse_quantity(text)
    if written is None:
        return False
    decimals = len(text.strip().rstrip("%").partition(".")[2])
    slack = Fraction(1, 2 * 10**decimals) if decimals else Fraction(0)
    return abs(value - written.value) <= slack


def match_number(expected: str, answer: str, *, absolute: float = 0.0, relative: float = 0.0) -> bool:
    """Tell whether two numbers differ by at most the larger tolerance, as it is written (0.1 is 1/10).

    A currency or percent sign may be missing on either side; where both have one, they must be the same.
    It changes no value: 15% is 15, never 0.15.
    """
    wanted, given = parse_quantity(expected), parse_quantity(answer)
    if wanted is None or given is None or (wanted.unit and given.unit and wanted.unit != given.unit):
        return False
    tolerance = max(Fraction(repr(absolute)), Fraction(repr(relative)) * abs(wanted.value))
    return abs(given.value - wanted.value) <= tolerance


def match_pattern(pattern: str, answer: str) -> bool:
    """Tell whether the whole answer matches, in time linear in its length: RE2 has no backtracking.

    Raises:
        UserError: a pattern that RE2 refuses (look-around, back-references, over its memory).
    """
    compiled = _compile(pattern)
    try:
        return compiled.fullmatch(answer) is not None
    except UnicodeEncodeError:
        return False


def token_f1(expected: str, answer: str) -> float:
    """Harmonic mean of precision and recall of words, in [0, 1].

    Lower case, without punctuation, articles and extra spaces. Source: SQuAD's evaluate-v1.1.py,
    arXiv:1606.05250. Two deviations: words that are numbers count by their value, sign and decimal point
    included ("15" shares nothing with "1.5" or "-15"), and where nothing but articles and punctuation is
    left of a text, both must be equal as they are written.
    """
    wanted, given = _squad_tokens(expected), _squad_tokens(answer)
    if not wanted or not given:
        return float(match_exactly(expected, answer))
    shared = sum((Counter(wanted) & Counter(given)).values())
    return 2 * shared / (len(wanted) + len(given))


def _squad_tokens(text: str) -> list[str | Quantity]:
    words = (_read_word(word) for word in text.lower().split())
    return [word for word in words if word not in _ARTICLES and word != ""]


def _read_word(word: str) -> str | Quantity:
    """A number by its value, any other word without punctuation."""
    number = parse_quantity(word.rstrip(",.;:!?)").lstrip("("))
    return word.translate(_WITHOUT_PUNCTUATION) if number is None else number


@lru_cache(maxsize=128)
def _compile(pattern: str) -> "re2._Regexp":
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UserError(
            f"pattern of {len(pattern)} characters; shorten it to {MAX_PATTERN_CHARS} or use another check"
        )
    options = re2.Options()
    options.max_mem, options.log_errors = PATTERN_MEMORY_BYTES, False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "not UTF-8"
        raise UserError(
            f"pattern {pattern[:60]!r} is refused: {reason}; patterns have RE2's syntax"
            " (no look-around, no back-references)"
        ) from None


def _score_number(check: Check, answer: str) -> Score:
    if parse_quantity(answer) is None:
        return _wrong(f"{answer[:40]!r} is not one number", "not_a_number")
    right = match_number(check.expected, answer, absolute=check.absolute, relative=check.relative)
    return _all_or_nothing(right, answer)


def _score_expression(expected: str, answer: str) -> Score:
    try:
        return _all_or_nothing(are_equal(expected, answer), answer)
    except ExpressionError as error:
        return _wrong(str(error), "not_an_expression")


def _all_or_nothing(right: bool, answer: str) -> Score:
    return Score(value=1.0, explanation="right", failure=None) if right else _wrong(f"not {answer[:40]!r}")


def _graded(value: float) -> Score:
    failure = None if value == 1 else "wrong"
    return Score(value=value, explanation=f"token F1 {value:.3f}", failure=failure)


def _wrong(explanation: str, failure: str = "wrong") -> Score:
    return Score(value=0.0, explanation=explanation, failure=failure)
