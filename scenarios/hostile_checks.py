"""Checks of a family under hostile answers and calls: none is paid, none raises anything unforeseen.

Each returns problems as text, as those of `scenarios.conformance` do, which runs them.
"""

import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from scenarios.base import Family, Scenario, ToolCall, ToolError, Verdict
from scenarios.hostile import HOSTILE_TEXTS, HOSTILE_VALUES, mutate_values

NUM_ATTACKED = 5  # scenarios that get the full set of hostile answers and calls


def check_zeros(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Empty, garbage, copied, hedged, repaired and coerced answers score exactly 0."""
    for position, scenario in enumerate(scenarios):
        gold = json.dumps(family.solve(scenario))
        other = json.dumps(family.solve(scenarios[position - 1]))
        first_pair = json.dumps(dict([next(iter(family.solve(scenario).items()))]))[1:-1]
        zeros = {
            "empty": "",
            "blank": " \n",
            "garbage": "the best option is clearly the cheapest",
            "empty object": "{}",
            "copied brief": scenario.brief,
            "hedged, twice the same": f"{gold}\n{gold}",
            "hedged, two answers": f"{gold} or {other}",
            "cut off": gold[:-1],
            "unknown key": f'{gold[:-1]}, "extra": 1}}',
            "duplicate key": f"{{{first_pair}, {gold[1:]}",
            "nested": f'{{"answer": {gold}}}',
            "NaN": f'{gold[:-1]}, "extra": NaN}}',
        }
        for kind, text in zeros.items():
            reward = family.verify(scenario, text).reward
            if reward != 0:
                yield f"{scenario.key}: {kind} scores {reward}"
        for mutant in mutate_values(family.solve(scenario), _coerced):
            reward = family.verify(scenario, json.dumps(mutant)).reward
            if reward != 0:
                yield f"{scenario.key}: coerced answer {json.dumps(mutant)} scores {reward}"


def _coerced(value: Any) -> list[Any]:
    """The same number in types that a strict schema refuses."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return [str(value), [value]] if is_number else []


def check_figures(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """An answer that is off by one in any number scores less than 1."""
    for scenario in scenarios:
        for mutant in mutate_values(family.solve(scenario), _off_by_one):
            if family.verify(scenario, json.dumps(mutant)).reward >= 1:
                yield f"{scenario.key}: {json.dumps(mutant)} scores 1"


def _off_by_one(value: Any) -> list[Any]:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return [value + 1, value - 1] if is_number else []


def check_totality(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """The verifier judges any text: no exception, reward and parts finite in [0, 1], twice the same."""
    for scenario in scenarios[:NUM_ATTACKED]:
        answer = family.solve(scenario)
        texts = [*HOSTILE_TEXTS, scenario.brief]
        texts += [json.dumps(mutant) for mutant in mutate_values(answer, lambda _: HOSTILE_VALUES)]
        texts += [json.dumps({k: v for k, v in answer.items() if k != key}) for key in answer]
        texts += [json.dumps(answer)[:length] for length in range(0, len(json.dumps(answer)), 3)]
        for text in texts:
            try:
                verdict = family.verify(scenario, text)
                repeated = family.verify(scenario, text)
            except Exception as error:
                yield f"{scenario.key}: verify raised {error!r} on {text[:60]!r}"
                continue
            if not _is_sound(verdict, family.infeasible_reward) or verdict != repeated:
                yield f"{scenario.key}: unsound verdict {verdict} on {text[:60]!r}"


def _is_sound(verdict: Verdict, infeasible_reward: float) -> bool:
    numbers = [verdict.reward, *verdict.parts.values()]
    in_range = all(math.isfinite(number) and 0 <= number <= 1 for number in numbers)
    return (
        in_range
        and (verdict.reward < 1 or verdict.exact)
        and (verdict.reward <= infeasible_reward or verdict.feasible)
    )


def check_tools(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """A tool answers text or raises ToolError, whatever the call; unknown tools are refused."""
    for scenario in scenarios[:NUM_ATTACKED]:
        steps = family.demonstrate(scenario, random.Random(0))
        calls = [ToolCall(name=name, arguments={}) for name in ("", "no_such_tool", "__class__")]
        num_unknown = len(calls)
        for step in steps:
            if step.call is None:
                continue
            arguments = dict(step.call.arguments)
            variants: list[Any] = [*HOSTILE_VALUES, {}, {**arguments, "extra": 1}]
            variants += mutate_values(arguments, lambda _: HOSTILE_VALUES)
            calls += [ToolCall(name=step.call.name, arguments=variant) for variant in variants]
        for position, call in enumerate(calls):
            try:
                observation = family.call_tool(scenario, call)
            except ToolError:
                continue
            except Exception as error:
                yield f"{scenario.key}: {call.name} raised {error!r} on {str(call.arguments)[:60]}"
                continue
            if position < num_unknown or not isinstance(observation, str):
                yield f"{scenario.key}: tool {call.name!r} answered {observation!r}"
