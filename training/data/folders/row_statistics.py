"""Descriptive statistics of the rows of one family and split: lengths, answers, diversity."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.data.folders.columns import read_text

TEXT_COLUMNS = ("brief", "messages", "tools", "answer")
NGRAM_SIZES = (1, 2, 3)
PIECES = re.compile(r"\w+|[^\w\s]")  # words, numbers and single marks: about what a tokenizer makes


@dataclass(slots=True)
class Lengths:
    """Least, mean and greatest of some lengths. Example: after add(3), add(5) str() gives "3 / 4.0 / 5"."""

    count: int = 0
    total: int = 0
    least: int = 0
    greatest: int = 0

    def add(self, length: int) -> None:
        self.least = min(self.least, length) if self.count else length
        self.greatest = max(self.greatest, length)
        self.count += 1
        self.total += length

    def __str__(self) -> str:
        return f"{self.least} / {self.total / max(1, self.count):.1f} / {self.greatest}"


@dataclass(slots=True)
class RowStatistics:
    """Counts over rows that are added one by one."""

    num_rows: int = 0
    chars: dict[str, Lengths] = field(default_factory=lambda: defaultdict(Lengths))  # by text column
    pieces: dict[str, Lengths] = field(default_factory=lambda: defaultdict(Lengths))
    keys: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))  # by difficulty
    briefs: set[str] = field(default_factory=set)
    ngrams: dict[int, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))  # by size
    num_ngrams: Counter[int] = field(default_factory=Counter)
    # (role, difficulty, field of the answer) -> its values as JSON
    answers: dict[tuple[str, int, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def num_scenarios(self) -> int:
        return sum(len(keys) for keys in self.keys.values())

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one row; columns as in `columns.SCHEMA`."""
        self.num_rows += 1
        self.keys[row["difficulty"]][row["key"]] = None
        for column in TEXT_COLUMNS:
            text = read_text(row, column)
            self.chars[column].add(len(text))
            self.pieces[column].add(len(PIECES.findall(text)))
        self.briefs.add(row["brief"])
        words = PIECES.findall(row["brief"])
        for size in NGRAM_SIZES:
            grams = list(zip(*(words[start:] for start in range(size)), strict=False))
            self.ngrams[size].update(grams)
            self.num_ngrams[size] += len(grams)
        for name, value in _read_fields(row["answer"]):
            self.answers[row["role"], row["difficulty"], name][json.dumps(value, sort_keys=True)] += 1

    def distinct_share(self, size: int) -> float:
        """Distinct n-grams per n-gram of all briefs, in (0, 1]: distinct-n of arXiv:1510.03055."""
        return len(self.ngrams[size]) / max(1, self.num_ngrams[size])

    def count_answers(self) -> dict[tuple[str, str], Counter[str]]:
        """(role, field of the answer) -> how often it has which value, over all difficulties."""
        merged: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for (role, _, name), values in self.answers.items():
            merged[role, name] += values
        return dict(merged)

    def majority_answer(self, role: str, difficulty: int) -> dict[str, Any]:
        """Every field's most common value (the first in JSON order among equals)."""
        return {
            name: json.loads(min(values, key=lambda value: (-values[value], value)))
            for (answering, level, name), values in self.answers.items()
            if (answering, level) == (role, difficulty)
        }


def _read_fields(answer: str) -> Iterable[tuple[str, Any]]:
    value = json.loads(answer)
    return value.items() if isinstance(value, dict) else [("answer", value)]


def describe_values(values: Counter[str], most: int = 6) -> str:
    """The most common values with their shares, or the range where all are numbers of many values."""
    total = sum(values.values())
    numbers = [json.loads(value) for value in values]
    if len(values) > 2 * most and all(isinstance(n, int | float) for n in numbers):
        mean = sum(json.loads(value) * count for value, count in values.items()) / total
        return f"{len(values)} numbers, {min(numbers)} / {mean:.1f} / {max(numbers)}"
    common = sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"`{value}` {100 * count / total:.1f} %" for value, count in common[:most])
    return shown if len(common) <= most else f"{len(common)} values, most often {shown}"
