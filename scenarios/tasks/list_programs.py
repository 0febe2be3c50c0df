"""Specifications of small functions on a list of whole numbers: in words, as a program, and computed twice.

A specification is a cut, steps in order, a way to combine what is left, and a value for nothing left.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = list[int]
Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do with a list, k being its number. Example: STEPS["add"].compute([1, 2], 3) == [4, 5]"""

    sentence: str
    line: str  # of the reference program
    compute: Callable[[Numbers, int], Any]
    recompute: Callable[[Array, int], Any]  # the same, written independently


STEPS: Mapping[str, Operation] = {
    "even": Operation(
        sentence="Keep only the even numbers.",
        line="xs = [x for x in xs if x % 2 == 0]",
        compute=lambda xs, k: [x for x in xs if x % 2 == 0],
        recompute=lambda a, k: a[(a & 1) == 0],
    ),
    "odd": Operation(
        sentence="Keep only the odd numbers.",
        line="xs = [x for x in xs if x % 2 == 1]",
        compute=lambda xs, k: [x for x in xs if x % 2 == 1],
        recompute=lambda a, k: a[(a & 1) == 1],
    ),
    "over": Operation(
        sentence="Drop every number that is not greater than {k}.",
        line="xs = [x for x in xs if x > {k}]",
        compute=lambda xs, k: [x for x in xs if x > k],
        recompute=lambda a, k: np.delete(a, np.where(a <= k)),
    ),
    "distinct": Operation(
        sentence="Of equal numbers keep only the first.",
        line="xs = list(dict.fromkeys(xs))",
        compute=lambda xs, k: list(dict.fromkeys(xs)),
        recompute=lambda a, k: a[np.sort(np.unique(a, return_index=True)[1])],
    ),
    "add": Operation(
        sentence="Add {k} to each number.",
        line="xs = [x + {k} for x in xs]",
        compute=lambda xs, k: [x + k for x in xs],
        recompute=lambda a, k: a + k,
    ),
    "times": Operation(
        sentence="Multiply each number by {k}.",
        line="xs = [x * {k} for x in xs]",
        compute=lambda xs, k: [x * k for x in xs],
        recompute=lambda a, k: a * k,
    ),
    "absolute": Operation(
        sentence="Replace each number by its absolute value.",
        line="xs = [abs(x) for x in xs]",
        compute=lambda xs, k: [abs(x) for x in xs],
        recompute=lambda a, k: np.maximum(a, -a),
    ),
    "running": Operation(
        sentence="Replace each number by the sum of all numbers up to and including it.",
        line="xs = [sum(xs[: i + 1]) for i in range(len(xs))]",
        compute=lambda xs, k: [sum(xs[: i + 1]) for i in range(len(xs))],
        recompute=lambda a, k: np.cumsum(a),
    ),
    "backwards": Operation(
        sentence="Reverse the order.",
        line="xs = xs[::-1]",
        compute=lambda xs, k: xs[::-1],
        recompute=lambda a, k: np.flip(a),
    ),
}
COMBINATIONS: Mapping[str, Operation] = {
    "sum": Operation(
        sentence="Return the sum.",
        line="return sum(xs)",
        compute=lambda xs, k: sum(xs),
        recompute=lambda a, k: int(np.sum(a)),
    ),
    "largest": Operation(
        sentence="Return the largest number.",
        line="return max(xs)",
        compute=lambda xs, k: max(xs),
        recompute=lambda a, k: int(np.sort(a)[-1]),
    ),
    "smallest": Operation(
        sentence="Return the smallest number.",
        line="return min(xs)",
        compute=lambda xs, k: min(xs),
        recompute=lambda a, k: int(np.sort(a)[0]),
    ),
    "last": Operation(
        sentence="Return the last number.",
        line="return xs[-1]",
        compute=lambda xs, k: xs[-1],
        recompute=lambda a, k: int(np.flip(a)[0]),
    ),
    "first": Operation(
        sentence="Return the first number.",
        line="return xs[0]",
        compute=lambda xs, k: xs[0],
        recompute=lambda a, k: int(a.take(0)),
    ),
}

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
