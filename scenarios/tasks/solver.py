"""The solver: who answers tasks. One answer schema and one verdict for all; not a member of the team.

Solvers of different task families differ in mandate and tools, and stand outside `roles.registry`.
"""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from roles.base import Answer, AnswerError, Role, Tool, parse_answer
from scenarios.base import Family, Scenario, Step, ToolCall, ToolError, Verdict, rejected
from scenarios.tasks.grading.text_checks import Check, CheckKind, Score, score_answer

ToolFunction = Callable[[Mapping[str, Any]], str]  # of the arguments; raises ToolError
Choose = Callable[[Scenario, random.Random], str]


class SolverAnswer(Answer):
    """Example: SolverAnswer(answer="412.5")"""

    answer: str


ANSWER_FORM = 'Answer with one JSON object: {"answer": "..."}.'


def make_solver(name: str, mandate: str, tools: tuple[Tool, ...]) -> Role:
    """A solver with its own mandate and tools. Example: make_solver("maths", "Solve it.", (CALCULATOR,))"""
    return Role(
        name=name, title="Solver", mandate=f"{mandate} {ANSWER_FORM}", answer=SolverAnswer, tools=tools
    )


def judge(text: str, score: Callable[[str], Score]) -> Verdict:
    """The verdict on a solver's final text: strict JSON, then the score of the answer in it."""
    try:
        answer = parse_answer(text, SolverAnswer).answer
    except AnswerError as error:
        return rejected(error.failure, str(error))
    scored = score(answer)
    return Verdict(
        reward=scored.value,
        parts={"answer": scored.value},
        exact=scored.value == 1,
        feasible=scored.value > 0,
        explanation=scored.explanation,
        failure=scored.failure,
    )


def judge_answer(text: str, check: Check) -> Verdict:
    """The verdict by a general check. Example: judge_answer('{"answer": "42"}', check).exact"""
    return judge(text, lambda answer: score_answer(check, answer))


def call_one_of(tools: Mapping[str, ToolFunction], call: ToolCall) -> str:
    """The observation of a call to one of these tools.

    Raises:
        ToolError: unknown tool, or arguments that are no object; what the tool itself refuses.
    """
    if call.name not in tools:
        raise ToolError(f"unknown tool; tools are {' '.join(tools) or 'none'}")
    if not isinstance(call.arguments, Mapping):
        raise ToolError("arguments must be an object")
    return tools[call.name](call.arguments)


def read_text_arguments(arguments: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The values of exactly these arguments, all text.

    Raises:
        ToolError: others, or not text.
    """
    if set(arguments) != set(names):
        raise ToolError(f"arguments must be exactly: {' '.join(names)}")
    values = tuple(arguments[name] for name in names)
    if not all(isinstance(value, str) for value in values):
        raise ToolError(f"{' and '.join(names)} must be text")
    return values


def build_task_family(
    role: Role,
    *,
    kind: CheckKind,
    generate: Callable[..., Scenario],
    certify: Callable[[Scenario], tuple[float, float]],
    list_tools: Callable[[Scenario], Mapping[str, ToolFunction]],
    demonstrate: Callable[[Scenario, random.Random], tuple[Step, ...]],
    baselines: Mapping[str, Choose],
) -> Family:
    """A family whose answer is `truth["answer"]`, right or wrong by one kind of check.

    The tools are those of `list_tools`; a baseline gives the text of its answer.
    """

    def answer_as_json(choose: Choose) -> Choose:
        return lambda scenario, rng: json.dumps({"answer": choose(scenario, rng)})

    return Family(
        name=role.name,
        role=role.name,
        generate=generate,
        verify=lambda scenario, text: judge_answer(text, Check(kind=kind, expected=scenario.truth["answer"])),
        solve=lambda scenario: {"answer": scenario.truth["answer"]},
        certify=certify,
        call_tool=lambda scenario, call: call_one_of(list_tools(scenario), call),
        demonstrate=demonstrate,
        baselines={name: answer_as_json(choose) for name, choose in baselines.items()},
    )
