"""Imported tasks: three splits by a hash of the question, the test split sealed, and the family of a set.

Only evaluation opens the test split: `with unseal_test() as key: tasks.read("test", key)`. A key is good in
its block.
"""

import hashlib
import random
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from roles.errors import UserError, unknown
from scenarios.base import SPLITS, Family, Scenario, Split, Step, ToolCall, Verdict, check_coordinates
from scenarios.tasks.grading.arithmetic import CALCULATOR, call_calculator
from scenarios.tasks.grading.text_checks import Check
from scenarios.tasks.solver import call_one_of, judge_answer, make_solver

TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15  # the rest is test
ROLE = make_solver(
    "solver",
    "You answer questions. Work out numbers one step at a time with the calculator.",
    (CALCULATOR,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTask:
    """An imported question with its answer and how to get there.

    Example: ImportedTask(question="What is 6 * 7?", answer="42", check=Check(kind="number", expected="42"),
                  steps=(Step(text='{"answer": "42"}'),), difficulty=1, source="sums.jsonl:3")
    """

    question: str
    answer: str
    check: Check
    steps: tuple[Step, ...]  # the demonstration; its calls go to the calculator
    difficulty: int  # 1 to 10: calculations that the demonstration makes
    source: str  # file:row

    @property
    def split(self) -> Split:
        return assign_split(self.question)


def normalise_question(question: str) -> str:
    """Equal for questions that differ in case, spacing or typographic form only."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def assign_split(question: str) -> Split:
    """The split of a question, by its letters and digits alone: rewording punctuation changes nothing."""
    key = "".join(character for character in normalise_question(question) if character.isalnum())
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
    if place < TRAIN_SHARE:
        return "train"
    return "validation" if place < TRAIN_SHARE + VALIDATION_SHARE else "test"


class SealKey:
    """Permission to read test splits; made by `unseal_test`."""

    def __init__(self) -> None:
        self.is_valid = True


@contextmanager
def unseal_test() -> Iterator[SealKey]:
    """A key to sealed test splits for the block; called by evaluation and nothing else."""
    key = SealKey()
    try:
        yield key
    finally:
        key.is_valid = False


class TaskSet:
    """Imported tasks under one name, read by split."""

    def __init__(self, name: str, tasks: Sequence[ImportedTask]) -> None:
        self.name = name
        self._by_split = {split: tuple(task for task in tasks if task.split == split) for split in SPLITS}

    def read(self, split: str, key: SealKey | None = None) -> tuple[ImportedTask, ...]:
        """The tasks of a split, in the order of their files.

        Raises:
            UserError: unknown split, or the test split without a valid key.
        """
        if split not in self._by_split:
            raise unknown("split", split, list(SPLITS))
        require_key(self.name, split, key)
        return self._by_split[split]


def require_key(name: str, split: str, key: SealKey | None) -> None:
    """Refuse the test split without a valid key.

    Raises:
        UserError: says who may read it.
    """
    if split == "test" and not (key is not None and key.is_valid):
        raise UserError(
            f"the test split of {name!r} is sealed: only evaluation reads it"
            " (with unseal_test() as key); train on train, tune on validation"
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
    """Every task of a split as a scenario, in the file's order, counted within its difficulty.

    Raises:
        UserError: the test split without a valid key.
    """
    counts: dict[int, int] = {}
    scenarios = []
    for task in tasks.read(split, key):
        index = counts[task.difficulty] = counts.get(task.difficulty, -1) + 1
        scenarios.append(make_scenario(tasks.name, task, index))
    return scenarios


def make_scenario(name: str, task: ImportedTask, index: int) -> Scenario:
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
