"""Imported tasks in three splits by a hash of the question, the test split sealed.

Only evaluation opens it: `with unseal_test() as key: tasks.read("test", key)`. A key is good in its block.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from roles.errors import UserError, unknown
from scenarios.base import SPLITS, Split, Step
from scenarios.tasks.grading.text_checks import Check

TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15  # the rest is test


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An imported question with its answer and how to get there.

    Example: Task(question="What is 6 * 7?", answer="42", check=Check(kind="number", expected="42"),
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

    def __init__(self, name: str, tasks: Sequence[Task]) -> None:
        self.name = name
        self._by_split = {split: tuple(task for task in tasks if task.split == split) for split in SPLITS}

    def read(self, split: str, key: SealKey | None = None) -> tuple[Task, ...]:
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
