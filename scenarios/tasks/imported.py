"""Imported tasks as a family, played and verified like any other. The test split stays sealed."""

import random
from typing import Any

from scenarios.base import Family, Scenario, Split, Step, ToolCall, Verdict, check_coordinates
from scenarios.tasks.grading.arithmetic import CALCULATOR, call_calculator
from scenarios.tasks.grading.text_checks import Check
from scenarios.tasks.solver import call_one_of, judge_answer, make_solver
from scenarios.tasks.splits import SealKey, Task, TaskSet

ROLE = make_solver(
    "solver",
    "You answer questions. Work out numbers one step at a time with the calculator.",
    (CALCULATOR,),
)


def make_family(tasks: TaskSet, key: SealKey | None = None) -> Family:
    """The family of a task set; with a valid key it also gives test scenarios.

    `generate(split, 0, index, difficulty)` is the index-th task of that difficulty in the file's order.
    """

    def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        check_coordinates(split, seed, index, difficulty)
        if seed != 0:
            raise ValueError(f"imported tasks have seed 0 only, got {seed}")
        chosen = [task for task in tasks.read(split, key) if task.difficulty == difficulty]
        if index >= len(chosen):
            raise ValueError(
                f"{tasks.name} has {len(chosen)} {split} tasks of difficulty {difficulty}, no index {index}"
            )
        return make_scenario(tasks.name, chosen[index], index)

    return Family(
        name=tasks.name,
        role=ROLE.name,
        generate=generate,
        verify=verify,
        solve=solve,
        certify=certify,
        call_tool=call_tool,
        demonstrate=demonstrate,
    )


def list_scenarios(tasks: TaskSet, split: Split, key: SealKey | None = None) -> list[Scenario]:
    """Every task of a split as a scenario, in the file's order.

    Raises:
        UserError: the test split without a valid key.
    """
    return number_scenarios(tasks.name, tasks.read(split, key))


def number_scenarios(name: str, tasks: tuple[Task, ...]) -> list[Scenario]:
    """Scenarios of one split's tasks, counted within their difficulty as `make_family` counts them."""
    counts: dict[int, int] = {}
    scenarios = []
    for task in tasks:
        index = counts[task.difficulty] = counts.get(task.difficulty, -1) + 1
        scenarios.append(make_scenario(name, task, index))
    return scenarios


def make_scenario(name: str, task: Task, index: int) -> Scenario:
    """One task as a scenario of the family `name`."""
    return Scenario(
        family=name,
        split=task.split,
        seed=0,
        index=index,
        difficulty=task.difficulty,
        role=ROLE.name,
        brief=task.question,
        facts={},
        truth={
            "answer": task.answer,
            "check": task.check.model_dump(),
            "steps": [[step.text, dict(step.call.arguments) if step.call else None] for step in task.steps],
        },
        optimal_tool_calls=len(task.steps) - 1,
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The answer as the file gives it."""
    return {"answer": scenario.truth["answer"]}


def verify(scenario: Scenario, text: str) -> Verdict:
    """The verdict by the task's own check."""
    return judge_answer(text, Check(**scenario.truth["check"]))


def certify(scenario: Scenario) -> tuple[float, float]:
    """1, and the reward of the demonstration's last turn: nobody but the file knows the optimum."""
    return 1.0, verify(scenario, scenario.truth["steps"][-1][0]).reward


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """calculator(expression).

    Raises:
        ToolError: another tool, other arguments, no value.
    """
    return call_one_of({"calculator": call_calculator}, call)


def demonstrate(scenario: Scenario, _rng: random.Random) -> tuple[Step, ...]:
    """The file's own solution: its annotations as calls, then the answer."""
    return tuple(
        Step(text=text, call=ToolCall(name="calculator", arguments=arguments) if arguments else None)
        for text, arguments in scenario.truth["steps"]
    )
