"""The calculator: hand-computed values, refusals, caps, and random expressions against exact fractions."""

import random
import time
from contextlib import suppress
from fractions import Fraction

import pytest

from scenarios.base import ToolError
from scenarios.tasks.grading.arithmetic import (
    MAX_CHARS,
    ExpressionError,
    calculate,
    call_calculator,
    format_number,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 3 - 2", "5"),
        ("100 / 5 / 2", "10"),
        ("-2 ** 2", "-4"),
        ("(-2) ** 2", "4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ^ 10", "1024"),
        ("2 ** -2", "0.25"),
        ("--3", "3"),
        ("+4", "4"),
        ("2 * -3", "-6"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("7.5 % 2", "1.5"),
        ("20%", "0.2"),
        ("20% * 50", "10"),
        ("200 - 5%", "199.95"),
        ("50%%", "0.005"),
        ("7 % (2 + 1)", "1"),
        ("1,250 + 1", "1251"),
        ("1,234,567.5", "1234567.5"),
        (".5 * 4", "2"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "about 0.33333333"),
        ("-2 / 3", "about -0.66666667"),
        ("10 ** 20", "100000000000000000000"),
        ("10 ** -12", "about 1E-12"),
        ("6 \u00d7 7 \u2212 4 \u00f7 2", "40"),
        ("0 ** 0", "1"),
    ],
)
def test_values_by_hand(text: str, value: str) -> None:
    assert call_calculator({"expression": text}) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "+",
            "1 +",
            "(1",
            "1)",
            "()",
            "1 2",
            "2(3)",
            "(2)(3)",
            "1,00",
            "1,0000",
            "5.",
            "1..2",
            ".",
        ),
        *("1/0", "1//0", "1%0", "0 ** -1", "1/(2-2)", "4 ** 0.5", "2 ** 257", "9 ** 9 ** 9", "10 ** 121"),
        *("1e3", "0x10", "1_000", "pi", "x", "abs(1)", "__import__('os')", "1; 2", "1 if 1 else 2", "[1]"),
        *("\uff11 + 1", "1\n+ 1", "1 = 1", "$5", "9" * 41, "1" * (MAX_CHARS + 1), "(" * 200, "-" * 300 + "1"),
        *("1+" * 150 + "1" + "+1" * 50, "\ud800", "\x00", "2 ** " * 60 + "2"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        calculate(text)
    with pytest.raises(ToolError):
        call_calculator({"expression": text})


@pytest.mark.parametrize(
    "arguments", [{}, {"expression": 5}, {"expression": "1", "more": 1}, [], None, "1 + 1"]
)
def test_the_tool_takes_exactly_one_text(arguments: dict[str, object]) -> None:
    with pytest.raises(ToolError):
        call_calculator(arguments)


def draw_expression(rng: random.Random, depth: int) -> tuple[str, Fraction | None]:
    """A fully bracketed random expression and its value, None where a division by zero is in it."""
    if depth == 0 or rng.random() < 0.2:
        number = rng.choice((rng.randint(0, 30), round(rng.uniform(0, 9), 2)))
        return str(number), Fraction(str(number))
    symbol = rng.choice(("+", "-", "*", "/", "//", "%"))
    (left, a), (right, b) = draw_expression(rng, depth - 1), draw_expression(rng, depth - 1)
    text = f"({left}) {symbol} ({right})"
    if a is None or b is None or (b == 0 and symbol in ("/", "//", "%")):
        return text, None
    if symbol == "+":
        return text, a + b
    if symbol == "-":
        return text, a - b
    if symbol == "*":
        return text, a * b
    return text, a / b if symbol == "/" else Fraction(a // b) if symbol == "//" else a % b


def test_random_expressions_have_the_value_of_exact_fractions() -> None:
    rng = random.Random(0)
    num_defined = 0
    for _ in range(2000):
        text, value = draw_expression(rng, rng.randint(1, 3))
        if value is None:
            with pytest.raises(ExpressionError, match="division by zero"):
                calculate(text)
        else:
            num_defined += 1
            assert calculate(text) == value, text
    assert num_defined > 1000


def test_precedence_without_brackets() -> None:
    rng = random.Random(1)
    for _ in range(500):
        a, b, c, d = (rng.randint(1, 20) for _ in range(4))
        assert calculate(f"{a}+{b}*{c}-{d}") == a + b * c - d
        assert calculate(f"{a}-{b}/{c}*{d}") == a - Fraction(b, c) * d
        assert calculate(f"-{a}**2+{b}%{c}") == -(a**2) + b % c


def test_any_text_is_calculated_or_refused_in_time() -> None:
    rng = random.Random(2)
    alphabet = "0123456789.,+-*/%^() e\u00d7x"
    slowest = 0.0
    for _ in range(3000):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, rng.choice((12, MAX_CHARS)))))
        start = time.process_time()
        with suppress(ExpressionError):
            assert format_number(calculate(text))
        slowest = max(slowest, time.process_time() - start)
    assert slowest < 0.5
    for text in ("9**256" + "*9**256" * 30, "1/7" + "+1/7" * 90, "(" * 39 + "1" + ")" * 39, "2**" * 39 + "1"):
        start = time.process_time()
        with suppress(ExpressionError):
            calculate(text)
        assert time.process_time() - start < 0.5, text[:20]


def test_numbers_are_written_exactly_or_marked() -> None:
    assert format_number(Fraction(-5, 2)) == "-2.5"
    assert format_number(Fraction(1200)) == "1200"
    assert format_number(Fraction(1, 10**10)) == "0.0000000001"
    assert format_number(Fraction(22, 7)) == "about 3.1428571"
    rng = random.Random(3)
    for _ in range(500):
        value = Fraction(rng.randint(-(10**9), 10**9), 10 ** rng.randint(0, 10))
        assert Fraction(format_number(value)) == value
