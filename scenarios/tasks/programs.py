"""Family programs: write a small Python function as specified; hidden cases judge it in the sandbox.

A specification of a function on a list of whole numbers is a cut, steps in order, a way to combine what is
left, and a value for nothing left: said in words, written as a program, computed twice. The score is the
share of hidden cases over what the best constant result would pass. What is expected never enters the
sandbox, so no exit code, printed "passed", patched comparison or read test file can win: each value is
compared here, with its JSON type (True is not 1, 1 is not 1.0). Verifying and running examples need
bubblewrap and raise UserError without it; nothing of a program is ever run outside.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roles.base import AnswerError, Tool, parse_strict_json
from scenarios.base import (
    Family,
    Scenario,
    Split,
    Step,
    ToolCall,
    Verdict,
    check_coordinates,
    scenario_rng,
)
from scenarios.tasks.grading.text_checks import Score
from scenarios.tasks.sandbox import ProgramRun, run_program
from scenarios.tasks.solver import call_one_of, judge, make_solver, read_text_arguments

NUM_STEPS = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6)  # by difficulty 1-10
CUT_FROM = 3  # difficulty from which only the first numbers of a list count
NUM_HIDDEN, NUM_EXAMPLES = 12, 3
MOST_EQUAL = 0.4  # share of hidden cases with the same result
MAX_TRIES = 1000
FUNCTION = "solve"
MAX_PROGRAM_CHARS = 10_000

ROLE = make_solver(
    "programs",
    "You write small Python functions exactly as specified. Run the examples before you answer; the answer "
    "is the whole program text, standard library only.",
    (
        Tool(
            name="run_examples",
            description="Runs a program on the examples of the task and says what each gives.",
            parameters={
                "type": "object",
                "properties": {"program": {"type": "string", "description": "the whole program text"}},
                "required": ["program"],
                "additionalProperties": False,
            },
        ),
    ),
)

Numbers = list[int]
Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ListOperation:
    """One thing to do with a list, k being its number. Example: STEPS["add"].compute([1, 2], 3) == [4, 5]"""

    sentence: str
    line: str  # of the reference program
    compute: Callable[[Numbers, int], Any]
    recompute: Callable[[Array, int], Any]  # the same, written independently


STEPS: Mapping[str, ListOperation] = {
    "even": ListOperation(
        "Keep only the even numbers.", "xs = [x for x in xs if x % 2 == 0]",
        lambda xs, k: [x for x in xs if x % 2 == 0], lambda a, k: a[(a & 1) == 0],
    ),
    "odd": ListOperation(
        "Keep only the odd numbers.", "xs = [x for x in xs if x % 2 == 1]",
        lambda xs, k: [x for x in xs if x % 2 == 1], lambda a, k: a[(a & 1) == 1],
    ),
    "over": ListOperation(
        "Drop every number that is not greater than {k}.", "xs = [x for x in xs if x > {k}]",
        lambda xs, k: [x for x in xs if x > k], lambda a, k: np.delete(a, np.where(a <= k)),
    ),
    "distinct": ListOperation(
        "Of equal numbers keep only the first.", "xs = list(dict.fromkeys(xs))",
        lambda xs, k: list(dict.fromkeys(xs)), lambda a, k: a[np.sort(np.unique(a, return_index=True)[1])],
    ),
    "add": ListOperation(
        "Add {k} to each number.", "xs = [x + {k} for x in xs]",
        lambda xs, k: [x + k for x in xs], lambda a, k: a + k,
    ),
    "times": ListOperation(
        "Multiply each number by {k}.", "xs = [x * {k} for x in xs]",
        lambda xs, k: [x * k for x in xs], lambda a, k: a * k,
    ),
    "absolute": ListOperation(
        "Replace each number by its absolute value.", "xs = [abs(x) for x in xs]",
        lambda xs, k: [abs(x) for x in xs], lambda a, k: np.maximum(a, -a),
    ),
    "running": ListOperation(
        "Replace each number by the sum of all numbers up to and including it.",
        "xs = [sum(xs[: i + 1]) for i in range(len(xs))]",
        lambda xs, k: [sum(xs[: i + 1]) for i in range(len(xs))], lambda a, k: np.cumsum(a),
    ),
    "backwards": ListOperation(
        "Reverse the order.", "xs = xs[::-1]",
        lambda xs, k: xs[::-1], lambda a, k: np.flip(a),
    ),
}  # fmt: skip
COMBINATIONS: Mapping[str, ListOperation] = {
    "sum": ListOperation(
        "Return the sum.", "return sum(xs)",
        lambda xs, k: sum(xs), lambda a, k: int(np.sum(a)),
    ),
    "largest": ListOperation(
        "Return the largest number.", "return max(xs)",
        lambda xs, k: max(xs), lambda a, k: int(np.sort(a)[-1]),
    ),
    "smallest": ListOperation(
        "Return the smallest number.", "return min(xs)",
        lambda xs, k: min(xs), lambda a, k: int(np.sort(a)[0]),
    ),
    "last": ListOperation(
        "Return the last number.", "return xs[-1]",
        lambda xs, k: xs[-1], lambda a, k: int(np.flip(a)[0]),
    ),
    "first": ListOperation(
        "Return the first number.", "return xs[0]",
        lambda xs, k: xs[0], lambda a, k: int(a.take(0)),
    ),
}  # fmt: skip

Specification = Mapping[str, Any]  # cut: int or None; steps: [[name, k], ...]; combine: name; empty: int


def draw_specification(rng: random.Random, *, num_steps: int, with_cut: bool) -> dict[str, Any]:
    """A random specification without the same step twice."""
    return {
        "cut": rng.randint(3, 5) if with_cut else None,
        "steps": [[name, rng.randint(2, 5)] for name in rng.sample(sorted(STEPS), num_steps)],
        "combine": rng.choice(sorted(COMBINATIONS)),
        "empty": rng.choice((-99, -1, 7, 100)),
    }


def describe(specification: Specification) -> str:
    """The specification in words."""
    sentences = [STEPS[name].sentence.format(k=k) for name, k in specification["steps"]]
    if specification["cut"] is not None:
        sentences.insert(0, f"Use only the first {specification['cut']} numbers of the list.")
    sentences += [COMBINATIONS[specification["combine"]].sentence]
    return " ".join([*sentences, f"If no number is left, return {specification['empty']}."])


def write_program(specification: Specification) -> str:
    """The reference program."""
    lines = ["def solve(xs):"]
    if specification["cut"] is not None:
        lines.append(f"    xs = xs[:{specification['cut']}]")
    lines += [f"    {STEPS[name].line.format(k=k)}" for name, k in specification["steps"]]
    lines += ["    if not xs:", f"        return {specification['empty']}"]
    return "\n".join([*lines, f"    {COMBINATIONS[specification['combine']].line}", ""])


def compute(specification: Specification, numbers: Sequence[int]) -> int:
    """Return the function's result for a list."""
    xs = list(numbers)[: specification["cut"]]
    for name, k in specification["steps"]:
        xs = STEPS[name].compute(xs, k)
    return int(COMBINATIONS[specification["combine"]].compute(xs, 0)) if xs else int(specification["empty"])


def recompute(specification: Specification, numbers: Sequence[int]) -> int:
    """The same on arrays, written independently."""
    array = np.array(numbers, dtype=np.int64)
    if specification["cut"] is not None:
        array = np.delete(array, np.arange(specification["cut"], max(array.size, specification["cut"])))
    for name, k in specification["steps"]:
        array = STEPS[name].recompute(array, k)
    if array.size == 0:
        return int(specification["empty"])
    return int(COMBINATIONS[specification["combine"]].recompute(array, 0))


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


def _draw_lists(rng: random.Random) -> list[list[int]]:
    drawn = {tuple(rng.randint(-20, 30) for _ in range(rng.choice((0, 1, 2, 4, 6, 7, 8)))) for _ in range(60)}
    lists = sorted(list(numbers) for numbers in drawn)
    rng.shuffle(lists)
    return lists[: NUM_HIDDEN + NUM_EXAMPLES]


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One specification with its cases; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("programs", split, seed, index, difficulty)
    for _ in range(MAX_TRIES):
        specification = draw_specification(
            rng, num_steps=NUM_STEPS[difficulty - 1], with_cut=difficulty >= CUT_FROM
        )
        cases = [[numbers, compute(specification, numbers)] for numbers in _draw_lists(rng)]
        examples, hidden = cases[:NUM_EXAMPLES], cases[NUM_EXAMPLES:]
        most_equal = Counter(result for _, result in hidden).most_common(1)[0][1] / len(hidden)
        empties = sum(result == specification["empty"] for _, result in hidden)
        if most_equal <= MOST_EQUAL and empties and not _is_blind_to_rules(specification, hidden):
            break
    else:
        raise RuntimeError(f"no programs scenario in {MAX_TRIES} tries")
    shown = " ".join(f"{FUNCTION}({numbers}) == {result}." for numbers, result in examples)
    return Scenario(
        family="programs",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=ROLE.name,
        brief=f"Write a Python function {FUNCTION}(xs) of a list of whole numbers. "
        f"{describe(specification)} Examples: {shown}",
        facts={"examples": examples},
        truth={"specification": specification, "hidden": hidden, "blind": most_equal},
        optimal_tool_calls=1,
    )


def _without_rules(specification: Mapping[str, Any]) -> dict[str, Any]:
    """The specification read carelessly: the whole list, 0 for nothing."""
    return {**specification, "cut": None, "empty": 0}


def _is_blind_to_rules(specification: Mapping[str, Any], hidden: Sequence[Any]) -> bool:
    """Tell whether the careless reading passes every hidden case."""
    careless = _without_rules(specification)
    return all(compute(careless, numbers) == result for numbers, result in hidden)


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer: the reference program."""
    return {"answer": write_program(scenario.truth["specification"])}


def verify(scenario: Scenario, text: str) -> Verdict:
    """The share of hidden cases over that of the best constant result; 1 for all of them.

    Raises:
        UserError: no sandbox here.
    """
    return judge(text, lambda program: _score(scenario, program))


def _score(scenario: Scenario, program: str) -> Score:
    cases = _as_cases(scenario.truth["hidden"])
    score, blind = score_cases(judge_function(program, FUNCTION, cases)), scenario.truth["blind"]
    return replace(score, value=max(0.0, (score.value - blind) / (1 - blind)))


def _as_cases(cases: Sequence[Any]) -> list[FunctionCase]:
    return [FunctionCase(arguments=[numbers], expected=result) for numbers, result in cases]


def certify(scenario: Scenario) -> tuple[float, float]:
    """1, and the share of cases on which a second implementation on arrays agrees with the first."""
    specification = scenario.truth["specification"]
    cases = [*scenario.facts["examples"], *scenario.truth["hidden"]]
    agreeing = sum(recompute(specification, numbers) == result for numbers, result in cases)
    return 1.0, agreeing / len(cases)


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """run_examples(program).

    Raises:
        ToolError: another tool, other arguments.
        UserError: no sandbox here.
    """

    def run_examples(arguments: Mapping[str, Any]) -> str:
        (program,) = read_text_arguments(arguments, ("program",))
        cases = _as_cases(scenario.facts["examples"])
        results = judge_function(program, FUNCTION, cases)
        return "\n".join(
            f"example {number} {'passes' if result.passed else f'gives {result.seen[:200]}'}"
            for number, result in enumerate(results, start=1)
        )

    return call_one_of({"run_examples": run_examples}, call)


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Run the reference program on the examples, then answer with it."""
    answer = solve(scenario)
    said = rng.choice(("", "The examples pass."))
    call = ToolCall(name="run_examples", arguments={"program": answer["answer"]})
    return Step(text="", call=call), Step(text=f"{said}\n{json.dumps(answer)}".lstrip())


def random_answer(scenario: Scenario, rng: random.Random) -> str:
    """A function with a random result."""
    return json.dumps({"answer": f"def {FUNCTION}(xs):\n    return {rng.randint(-20, 100)}\n"})


def constant_answer(_scenario: Scenario, _rng: random.Random) -> str:
    """A function that ignores the specification."""
    return json.dumps({"answer": f"def {FUNCTION}(xs):\n    return sum(xs)\n"})


def greedy_answer(scenario: Scenario, _rng: random.Random) -> str:
    """The steps without the cut and without the rule for nothing left."""
    return json.dumps({"answer": write_program(_without_rules(scenario.truth["specification"]))})


FAMILY = Family(
    name="programs",
    role=ROLE.name,
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    baselines={"random": random_answer, "constant": constant_answer, "greedy": greedy_answer},
)
