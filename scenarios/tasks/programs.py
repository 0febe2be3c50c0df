"""Family programs: write a small Python function as specified; hidden cases judge it in the sandbox.

Scored by the share of hidden cases over what the best constant result would pass. Verifying and running
examples need bubblewrap and raise UserError without it; nothing of a program is ever run outside.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.base import Tool
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
from scenarios.tasks.list_programs import (
    compute,
    describe,
    draw_specification,
    recompute,
    write_program,
)
from scenarios.tasks.sandbox.program_cases import FunctionCase, judge_function, score_cases
from scenarios.tasks.solver import call_one_of, judge, make_solver, read_text_arguments

NUM_STEPS = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6)  # by difficulty 1-10
CUT_FROM = 3  # difficulty from which only the first numbers of a list count
NUM_HIDDEN, NUM_EXAMPLES = 12, 3
MOST_EQUAL = 0.4  # share of hidden cases with the same result
MAX_TRIES = 1000
FUNCTION = "solve"

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
