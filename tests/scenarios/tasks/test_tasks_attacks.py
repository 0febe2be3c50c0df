"""A second list of attacks on the strict parser, the general checks and the sandbox."""

import json
import time

import pytest
from sandboxes import run_or_be_refused

from roles.base import AnswerError, parse_answer
from roles.team import Vote
from scenarios.registry import FAMILIES
from scenarios.tasks.grading.text_checks import Check, CheckKind, score_answer
from scenarios.tasks.programs import FunctionCase, _judge_line, judge_function
from scenarios.tasks.sandbox import SandboxLimits, run_program

ACCEPT = '{"vote": "accept"}'
# each looks like a right answer to somebody; none may be read as one
DISGUISED = {
    "full-width braces": "\uff5b\u0022vote\u0022: \u0022accept\u0022\uff5d",
    "typographic quotes": "{\u201cvote\u201d: \u201caccept\u201d}",
    "key repeated in escapes": r'{"vote": "object", "\u0076ote": "accept"}',
    "null byte after it": ACCEPT + "\x00",
    "no-break space after it": ACCEPT + "\u00a0",
    "zero-width space after it": ACCEPT + "\u200b",
    "line separator after it": ACCEPT + "\u2028",
    "comment after it": ACCEPT + " // sure",
    "trailing comma": '{"vote": "accept",}',
    "single quotes": "{'vote': 'accept'}",
    "value in other case": '{"vote": "Accept"}',
    "value with a space": '{"vote": "accept "}',
    "list around it": f"[{ACCEPT}]",
    "object around it": f'{{"answer": {ACCEPT}}}',
    "string that holds it": json.dumps(ACCEPT),
    "two fences": f"```json\n{ACCEPT}\n```\n```",
    "fence of another language": f"```python\n{ACCEPT}\n```",
    "inside reasoning that is closed after it": f"<think>{ACCEPT}</think>",
    "before reasoning": f"{ACCEPT}<think>no, wait</think>",
    "reasoning opened again": f"<think>a</think><think>{ACCEPT}",
    "boolean": '{"vote": true}',
    "extra key": '{"vote": "accept", "weight": 9}',
    "half a surrogate pair": '{"vote": "accept", "reason": "\\ud800"}',
}


@pytest.mark.parametrize("name", DISGUISED)
def test_what_looks_like_an_answer_is_none(name: str) -> None:
    with pytest.raises(AnswerError):
        parse_answer(DISGUISED[name], Vote)
    assert parse_answer(ACCEPT, Vote).vote == "accept"


@pytest.mark.parametrize("role", list(FAMILIES))
def test_gold_with_a_number_in_another_type_or_spelling_is_not_paid(role: str) -> None:
    """12 as 12.0, "12", 1.2e1 or true: figures are whole numbers, exactly."""
    scenario = FAMILIES[role].generate("validation", 0, 4, 3)
    gold = FAMILIES[role].solve(scenario)
    numbers = [key for key, value in gold.items() if type(value) is int]
    for key in numbers:
        for spelt in (f"{gold[key]}.0", f'"{gold[key]}"', f"{gold[key]}e0", "true"):
            text = json.dumps({**gold, key: "MARK"}).replace('"MARK"', spelt)
            assert FAMILIES[role].verify(scenario, text).reward == 0


@pytest.mark.parametrize(
    ("kind", "expected", "answer"),
    [
        ("number", "42", "\u0664\u0662"),  # Arabic digits
        ("number", "42", "4\u200b2"),
        ("number", "42", "0x2a"),
        ("number", "42", "42 or 43"),
        ("number", "42", "--42"),
        ("number", "0.5", "1/2/1"),
        ("number", "100", "1e2e0"),
        ("exact", "Oslo", "Oslo\x00"),
        ("exact", "Oslo", "Oslo or Bergen"),
        ("regex", "[A-D]", "A\nB"),
        ("regex", "[A-D]", "A "),
        ("f1", "-15", "15"),
        ("f1", "3.5", "35"),
        ("symbolic", "x + 1", "x + 1 + 0*y/0"),
        ("symbolic", "x + 1", "__import__('os')"),
        ("symbolic", "x + 1", "x + 1 if x else 0"),
        ("symbolic", "sqrt(x^2)", "x"),
        ("symbolic", "2", "2 + x - y"),
        ("symbolic", "262537412640768744", "e^(pi*sqrt(163))"),  # apart by 7.5e-13
        ("symbolic", "1", "0.9999999999999999999999"),
        ("symbolic", "1", "cos(10^-9)"),
        ("symbolic", "pi", "3.14159265358979323846"),
        ("symbolic", "10^20", "10^20+1"),
        ("symbolic", "0", "sqrt(10^20+1)-10^10"),
        ("symbolic", "e^x", "e^x+10^-12"),
        ("symbolic", "1/3", "0.333333333333333333333333"),
        ("symbolic", "2^(10^9)", "2^(10^9)"),
        ("symbolic", "42", "\u0664\u0662"),
        ("symbolic", "4", "3 or 4"),
        ("symbolic", "4", "3, 4"),
        ("symbolic", "4", r"\boxed{3} \boxed{4}"),
        ("symbolic", "4", "4 apples"),
        ("symbolic", "4", "x = 4"),
        ("symbolic", "4", r"\{3, 4\}"),
        ("symbolic", "-1", "i^2"),
        ("symbolic", "x", "nan"),
        ("symbolic", "1", "factorial(9^9)/factorial(9^9)"),
        ("symbolic", "1", "(9!)!/(9!)!"),
        ("number", "4", "4 apples"),
        ("number", "4", "nan"),
        ("number", "4", "4+0j"),
        ("regex", "(a+)+b", "a" * 19_999),  # exponential where a matcher tracks back
        ("regex", "(a|a)*b", "a" * 19_999),
    ],
)
def test_an_answer_beside_the_right_one_earns_nothing(kind: CheckKind, expected: str, answer: str) -> None:
    assert score_answer(Check(kind=kind, expected=expected), answer).value == 0


BUSY = (
    "(" * 40,
    "((((x+1)^9)^9)^9)",
    "sqrt(" * 12 + "x" + ")" * 12,
    "x^(x^(x^(x^x)))",
    "sin(" * 9 + "x" + ")" * 9,
    "(x+y+z+w)^12-(w+z+y+x)^12+sin(x)-sin(x)",
    "9^9^9^9",
    r"\frac{" * 8 + "1}{x}" + "}{2}" * 7,
    "1/(x-x)",
)


@pytest.mark.parametrize("answer", BUSY)
def test_a_short_expression_cannot_keep_a_verifier_busy(answer: str) -> None:
    start = time.process_time()
    assert 0 <= score_answer(Check(kind="symbolic", expected="sin(x) + (x+1)^2"), answer).value < 1
    assert time.process_time() - start < 1


CASES = [FunctionCase(arguments=[number], expected=number * 7) for number in range(3)]
# programs that try to be paid without computing number * 7
CHEATS = {
    "prints results ahead": "import os\nfor _ in range(3): os.write(1, b'{\"value\": 0}\\n')\n"
    "def f(n): return n",
    "reads the caller's frames": "import sys\ndef f(n):\n  frame = sys._getframe()\n  while frame:\n"
    "    for value in frame.f_locals.values():\n      if value == n * 7 and value != n: return value\n"
    "    frame = frame.f_back\n  return n",
    "returns what equals everything": "class E(int):\n  def __eq__(self, other): return True\n"
    "def f(n): return E(5)",
    "returns what writes itself differently": "class E(dict): pass\ndef f(n): return E(a=1)",
    "patches json": "import json\njson.dumps = lambda *a, **k: '{\"value\": 0}'\ndef f(n): return 5",
    "gives two values": "import os\ndef f(n):\n  os.write(1, b'{\"value\": 7, \"value\": 14}\\n')\n"
    "  return 1",
    "ends the process well": "import os\nos._exit(0)\ndef f(n): return n",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\ndef f(n): return n",
    "huge number": "def f(n): return 10 ** 5000",
    "not a number": "def f(n): return float('nan')",
    "deep list": "def f(n):\n  x = []\n  for _ in range(900): x = [x]\n  return x",
    "closes the output": "import os\nos.close(1)\nos.close(2)\ndef f(n): return n * 8",
    "writes the runner": "open('/runner.py', 'w').write('x')\ndef f(n): return n * 7",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_a_program_wins_by_its_results_alone(name: str) -> None:
    results = run_or_be_refused(lambda: judge_function(CHEATS[name], "f", CASES))
    # 0 * 7 is 0: who prints zeros passes one case of three
    assert results is None or sum(one.passed for one in results) <= 1


def test_a_line_with_two_values_is_no_result() -> None:
    assert not _judge_line('{"value": 7, "value": 14}', 14, "").passed
    assert not _judge_line('{"value": 7, "error": "x"}', 7, "").passed
    assert _judge_line('{"value": 7}', 7, "").passed


@pytest.mark.slow
def test_a_program_that_stops_itself_ends_with_its_time() -> None:
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"
    run = run_or_be_refused(lambda: run_program(source, limits=SandboxLimits(wall_s=1.0)))
    assert run is None or run.outcome in ("timeout", "finished")
