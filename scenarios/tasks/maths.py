"""Family maths: word problems over a company's figures, several steps long, solved with the calculator.

Exact to the hundredth. Rules that apply only above a threshold, and figures that do not matter, are what
makes a problem hard; the answer scores 1 or 0.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from scenarios.base import Scenario, Split, Step, ToolCall, check_coordinates, scenario_rng
from scenarios.tasks.grading.arithmetic import CALCULATOR, calculate, call_calculator, format_number
from scenarios.tasks.solver import build_task_family, make_solver

NUM_CHANGES = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6)  # by difficulty 1-10
NUM_RULES = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4)  # changes that apply only above a threshold
NUM_DISTRACTORS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)
MAX_VALUE = 1_000_000
MAX_TRIES = 1000

COMPANIES = ("Norden", "Halvik", "Brightwater", "Corvane", "Tessera", "Ostrava Mills", "Lindqvist", "Arbour")
PRODUCTS = ("pump", "sensor", "turbine", "router", "battery", "compressor", "scanner", "valve")
# sentence; expression of the value {v} so far; ranges of a and b
_CHANGES: tuple[tuple[str, str, Sequence[int], Sequence[int]], ...] = (
    ("Demand then lifts the amount by {a} %.", "{v} * (100 + {a}) / 100", range(5, 60, 5), (0,)),
    ("A discount then takes {a} % off the amount.", "{v} * (100 - {a}) / 100", range(5, 45, 5), (0,)),
    ("Material costs {a} k$.", "{v} - {a}", range(11, 400), (0,)),
    ("Wages for {a} people cost {b} k$ each.", "{v} - {a} * {b}", range(3, 30), range(4, 12)),
    ("A grant adds {a} k$.", "{v} + {a}", range(11, 400), (0,)),
    ("{a} sites share the amount equally; go on with one site's share.", "{v} / {a}", (2, 4, 5, 8), (0,)),
    ("{a} further regions each bring the same amount again.", "{v} * (1 + {a})", range(2, 6), (0,)),
)
_RULES: tuple[tuple[str, str], ...] = (
    ("If the amount is more than {t} k$, a tax of {a} % is taken off it.", "{v} * (100 - {a}) / 100"),
    ("If the amount is more than {t} k$, a bonus of {a} k$ is paid out of it.", "{v} - {a}"),
    ("If the amount is more than {t} k$, the bank adds {a} % to it.", "{v} * (100 + {a}) / 100"),
)
_DISTRACTORS = (
    "The office has {a} rooms.",
    "Last year {a} people applied for a job there.",
    "Its main rival sells {a} units.",
    "The board meets every {a} weeks.",
    "The warehouse was built {a} years ago.",
)

ROLE = make_solver(
    "maths",
    "You solve word problems about a company's figures. Work out one step at a time with the calculator.",
    (CALCULATOR,),
)

Change = Mapping[str, Any]  # sentence, expression of {v}, over: threshold in k$ or None


def _draw_change(rng: random.Random) -> Change:
    sentence, expression, first, second = rng.choice(_CHANGES)
    numbers = {"a": rng.choice(first), "b": rng.choice(second)}
    return {
        "sentence": sentence.format(**numbers),
        "expression": expression.format(v="{v}", **numbers),
        "over": None,
    }


def _draw_rule(rng: random.Random, value: Fraction) -> Change:
    sentence, expression = rng.choice(_RULES)
    threshold = max(1, round(value * rng.choice((60, 75, 90, 110, 130, 150)) / 100))
    amount = rng.choice(range(5, 45, 5))
    return {
        "sentence": sentence.format(t=threshold, a=amount),
        "expression": expression.format(v="{v}", a=amount),
        "over": threshold,
    }


def _is_handy(value: Fraction) -> bool:
    return 0 < value <= MAX_VALUE and (100 * value).denominator == 1


def _apply(change: Change, value: Fraction, *, ignore_threshold: bool = False) -> tuple[str, Fraction] | None:
    """The expression and its value; None where the change does not apply."""
    if change["over"] is not None and value <= change["over"] and not ignore_threshold:
        return None
    expression = change["expression"].format(v=format_number(value))
    return expression, calculate(expression)


def _play(
    start: str, changes: Sequence[Change], *, ignore_thresholds: bool = False
) -> list[tuple[str, Fraction]]:
    steps = [(start, calculate(start))]
    for change in changes:
        if applied := _apply(change, steps[-1][1], ignore_threshold=ignore_thresholds):
            steps.append(applied)
    return steps


def _draw_changes(rng: random.Random, start: str, difficulty: int) -> list[Change] | None:
    """Changes that keep every value positive and exact to the hundredth; None if this draw finds none."""
    count, num_rules = NUM_CHANGES[difficulty - 1], NUM_RULES[difficulty - 1]
    ruled = set(rng.sample(range(count), num_rules))
    value, changes = calculate(start), []
    for place in range(count):
        change = _draw_rule(rng, value) if place in ruled else _draw_change(rng)
        applied = _apply(change, value)
        value = applied[1] if applied else value
        if not _is_handy(value):
            return None
        changes.append(change)
    return changes


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One problem; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("maths", split, seed, index, difficulty)
    for _ in range(MAX_TRIES):
        units, price = rng.randint(12, 60 + 40 * difficulty), rng.randint(3, 40)
        start = f"{units} * {price}"
        changes = _draw_changes(rng, start, difficulty)
        if changes is None:
            continue
        company, product = rng.choice(COMPANIES), rng.choice(PRODUCTS)
        brief = _write_brief(
            rng, f"{company} sells {units} {product}s at {price} k$ each.", changes, difficulty
        )
        steps = _play(start, changes)
        answer = format_number(steps[-1][1])
        if answer not in re.findall(r"[0-9.]*[0-9]", brief):
            break
    else:
        raise RuntimeError(f"no maths scenario in {MAX_TRIES} tries")
    return Scenario(
        family="maths",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=ROLE.name,
        brief=brief,
        facts={"start": start, "changes": changes},
        truth={"answer": answer, "steps": [[text, format_number(value)] for text, value in steps]},
        optimal_tool_calls=len(steps),
    )


def _write_brief(rng: random.Random, opening: str, changes: Sequence[Change], difficulty: int) -> str:
    sentences = [opening, *(change["sentence"] for change in changes)]
    for template in rng.sample(_DISTRACTORS, NUM_DISTRACTORS[difficulty - 1]):
        sentences.insert(rng.randint(0, len(sentences)), template.format(a=rng.randint(3, 90)))
    question = rng.choice(
        (
            "How many k$ is the amount in the end?",
            "What is the final amount in k$?",
            "Which amount in k$ results?",
        )
    )
    return " ".join([*sentences, question])


def certify(scenario: Scenario) -> tuple[float, float]:
    """The oracle's value, and that of one expression nested from all changes that apply."""
    nested: str = scenario.facts["start"]
    for change in scenario.facts["changes"]:
        if change["over"] is None or calculate(nested) > change["over"]:
            nested = change["expression"].format(v=f"({nested})")
    return float(scenario.truth["answer"]), float(calculate(nested))


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """One calculator call per step, in order, then the answer."""
    said = rng.choice(("That is {}.", "So far {} k$."))
    steps, text = [], ""
    for expression, value in scenario.truth["steps"]:
        steps.append(Step(text=text, call=ToolCall(name="calculator", arguments={"expression": expression})))
        text = said.format(value)
    return (*steps, Step(text=f"{text}\n{json.dumps({'answer': scenario.truth['answer']})}"))


def answer_greedily(scenario: Scenario, _rng: random.Random) -> str:
    """Applies every rule, whether its threshold is passed or not."""
    steps = _play(scenario.facts["start"], scenario.facts["changes"], ignore_thresholds=True)
    return format_number(steps[-1][1])


FAMILY = build_task_family(
    ROLE,
    kind="number",
    generate=generate,
    certify=certify,
    list_tools=lambda _scenario: {"calculator": call_calculator},
    demonstrate=demonstrate,
    baselines={
        "random": lambda _scenario, rng: str(rng.randint(10, 5000)),
        "constant": lambda _scenario, _rng: "1000",
        "greedy": answer_greedily,
    },
)
