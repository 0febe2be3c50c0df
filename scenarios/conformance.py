"""Checks of a family against the contract, one per promise, for families inside and outside this package.

Problems come back as text, "<check>: <scenario>: <what>", so that an author sees all of them at once.
"""

import dataclasses
import importlib.util
import json
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from roles.errors import UserError, unknown
from scenarios.base import (
    MAX_DIFFICULTY,
    MIN_DIFFICULTY,
    SPLITS,
    Family,
    Scenario,
    ToolCall,
    ToolError,
    Verdict,
)
from scenarios.hostile import HOSTILE_TEXTS, HOSTILE_VALUES, mutate_values

DIFFICULTIES = (1, 2, 3, 5, 8)
MOST_PROBLEMS = 3  # reported per check
NUM_STYLES = 4  # rngs that demonstrations are drawn with
BASELINES = ("random", "constant", "greedy")
LEAST_LEAD = 0.05  # of the greedy baseline's mean over the blind ones
MOST_OF_NEIGHBOUR = 0.5  # that a case's gold earns at the next one, on average: three letters to choose from
LEAK_SHARE = 0.9  # of scenarios in which one word of the brief is the answer
NUM_ATTACKED = 5  # scenarios that get the full set of hostile answers and calls
DEFAULT_NAME = "FAMILY"
BUDGET_SLACK = 2  # calls that a family allows per call of its longest demonstration, at least

Check = Callable[[Family, Sequence[Scenario]], Iterator[str]]


def load_family(reference: str) -> Family:
    """The family that `path/to/file.py:NAME` stands for (NAME is FAMILY if it is left out).

    The file's code is run: trust it first. It may import modules that lie beside it.

    Raises:
        UserError: no such file, it cannot be run, or it has no family of this name.
    """
    path_text, colon, name = reference.rpartition(":")
    path, name = (Path(path_text), name) if colon else (Path(reference), DEFAULT_NAME)
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"no Python file {path}; name a family as path/to/file.py:{DEFAULT_NAME}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    families = {key: value for key, value in vars(module).items() if isinstance(value, Family)}
    if name not in families:
        raise unknown(f"family in {path}:", name, sorted(families))
    return families[name]


def check(family: Family, *, count: int = 50, difficulties: Sequence[int] = DIFFICULTIES) -> list[str]:
    """Problems found on `count` scenarios of mixed difficulty; empty when the family conforms."""
    try:
        scenarios = [
            family.generate("train", seed=0, index=index, difficulty=difficulties[index % len(difficulties)])
            for index in range(count)
        ]
        before = [_freeze(scenario) for scenario in scenarios]
    except Exception as error:
        return [f"generate: raised {error!r}"]
    problems = []
    for name, find in CHECKS.items():
        found = []
        try:
            for problem in find(family, scenarios):
                found.append(f"{name}: {problem}")
                if len(found) == MOST_PROBLEMS:
                    break
        except Exception as error:
            found.append(f"{name}: raised {error!r}")
        problems += found
    for scenario, frozen in zip(scenarios, before, strict=True):
        if _freeze(scenario) != frozen:
            return [*problems, f"mutation: {scenario.key}: facts or truth changed while it was used"]
    return problems


def _freeze(scenario: Scenario) -> str:
    """The scenario as strict JSON (refuses values that JSON does not have)."""
    return json.dumps(dataclasses.asdict(scenario), sort_keys=True, allow_nan=False)


def _gold(family: Family, scenario: Scenario) -> str:
    return json.dumps(family.solve(scenario))


def check_coordinates(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Keys are as asked for; coordinates out of range raise ValueError."""
    for index, scenario in enumerate(scenarios):
        if (
            scenario.key != f"{family.name}/train/0/{index}/{scenario.difficulty}"
            or scenario.role != family.role
        ):
            yield f"{scenario.key}: not index {index} of family {family.name}, role {family.role}"
        if not scenario.brief.strip() or scenario.optimal_tool_calls < 0:
            yield f"{scenario.key}: empty brief or negative optimal_tool_calls"
    bad = [("dev", 0, 0, 1), ("train", -1, 0, 1), ("train", 0, -1, 1)]
    bad += [("train", 0, 0, MIN_DIFFICULTY - 1), ("train", 0, 0, MAX_DIFFICULTY + 1)]
    for split, seed, index, difficulty in bad:
        try:
            family.generate(split, seed=seed, index=index, difficulty=difficulty)
        except ValueError:
            continue
        yield f"accepts split {split}, seed {seed}, index {index}, difficulty {difficulty}"


def check_purity(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """The same coordinates give the same scenario and verdict, and the global rng is left alone."""
    state = random.getstate()
    try:
        for scenario in scenarios:
            random.seed(scenario.index)
            marker = random.getstate()
            again = family.generate(
                scenario.split, seed=scenario.seed, index=scenario.index, difficulty=scenario.difficulty
            )
            if _freeze(again) != _freeze(scenario):
                yield f"{scenario.key}: generated differently the second time"
            text = _gold(family, scenario)
            if family.verify(scenario, text) != family.verify(again, text):
                yield f"{scenario.key}: judged differently the second time"
            if random.getstate() != marker:
                yield f"{scenario.key}: draws from the global rng"
    finally:
        random.setstate(state)


def check_splits(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Splits and seeds share (almost) no scenario, at the same index or another."""
    seen: dict[str, str] = {}
    repeats: Counter[tuple[str, str]] = Counter()
    difficulty = scenarios[0].difficulty
    for split in SPLITS:
        for seed in (0, 1):
            for index in range(len(scenarios)):
                scenario = family.generate(split, seed=seed, index=index, difficulty=difficulty)
                content = json.dumps([scenario.brief, scenario.facts], sort_keys=True)
                stream = f"{split}/{seed}"
                first = seen.setdefault(content, stream)
                if first != stream:
                    repeats[first, stream] += 1
    for (one, other), shared in repeats.items():
        if shared > len(scenarios) // 20:
            yield f"{one} and {other} share {shared} of {len(scenarios)} scenarios"


def check_neighbours(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """A case and the next one by index, split, seed or difficulty share no facts; gold pays at its own."""
    rewards: dict[str, list[float]] = {}
    same: Counter[str] = Counter()
    for one in scenarios:
        harder = one.difficulty + (1 if one.difficulty < MAX_DIFFICULTY else -1)
        places: dict[str, tuple[str, int, int, int]] = {
            "index": (one.split, one.seed, one.index + 1, one.difficulty),
            "split": ("validation", one.seed, one.index, one.difficulty),
            "seed": (one.split, one.seed + 1, one.index, one.difficulty),
            "difficulty": (one.split, one.seed, one.index, harder),
        }
        for kind, (split, seed, index, difficulty) in places.items():
            other = family.generate(split, seed=seed, index=index, difficulty=difficulty)
            rewards.setdefault(kind, []).append(family.verify(other, _gold(family, one)).reward)
            same[kind] += other.facts == one.facts and bool(one.facts)
    for kind, found in rewards.items():
        if same[kind] > len(found) // 20:
            yield f"{same[kind]} of {len(found)} cases have the facts of their neighbour by {kind}"
        if sum(found) > MOST_OF_NEIGHBOUR * len(found):
            yield f"the gold of the neighbour by {kind} earns {sum(found) / len(found):.2f} on average"


def check_gold(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """The oracle's answer scores exactly 1, is exact and feasible, and has no failure."""
    for scenario in scenarios:
        verdict = family.verify(scenario, _gold(family, scenario))
        if verdict.reward != 1.0 or not verdict.exact or not verdict.feasible or verdict.failure is not None:
            yield f"{scenario.key}: the oracle's answer gets {verdict}"


def check_certificate(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """The oracle's value and the second method's agree exactly."""
    for scenario in scenarios:
        value, second = family.certify(scenario)
        if value != second:
            yield f"{scenario.key}: the oracle says {value}, the second method {second}"


def check_brief(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """No answer stands in the brief, and no fixed place in the brief holds an answer field."""
    count = max(40, len(scenarios))
    yield from _find_leaks(family, scenarios[0].difficulty, count)
    yield from _find_leaks(family, max(scenario.difficulty for scenario in scenarios), count)


def _find_leaks(family: Family, difficulty: int, count: int) -> Iterator[str]:
    briefs, fields = [], []
    for index in range(count):
        scenario = family.generate("validation", seed=0, index=index, difficulty=difficulty)
        answer, brief = family.solve(scenario), scenario.brief
        for shape in (json.dumps(answer), json.dumps(answer, separators=(",", ":"))):
            if shape in brief:
                yield f"{scenario.key}: the brief contains the answer"
        briefs.append(re.findall(r"\w+", brief))
        fields.append({k: str(v) for k, v in answer.items() if isinstance(v, str | int | float)})
    for field in fields[0]:
        values = [row.get(field) for row in fields]
        if len(set(values)) < 3:
            continue
        shortest = min(map(len, briefs))
        for place in range(-shortest, shortest):
            hits = sum(words[place] == value for words, value in zip(briefs, values, strict=True))
            if hits >= LEAK_SHARE * len(briefs):
                yield f"word {place} of the brief is the answer's {field!r} in {hits} of {len(briefs)}"


def check_demonstrations(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Demonstrations replay on the real tools to an answer that scores 1, with as many calls as promised."""
    reached_most = False
    for scenario in scenarios:
        for style in range(NUM_STYLES):
            steps = family.demonstrate(scenario, random.Random(style))
            if steps != family.demonstrate(scenario, random.Random(style)):
                yield f"{scenario.key}: the same rng gives another demonstration"
            if not steps or steps[-1].call is not None or any(step.call is None for step in steps[:-1]):
                yield f"{scenario.key}: every step but the last must call a tool"
                continue
            for step in steps[:-1]:
                try:
                    if step.call is not None:
                        family.call_tool(scenario, step.call)
                except ToolError as error:
                    yield f"{scenario.key}: {step.call} is refused: {error}"
            verdict = family.verify(scenario, steps[-1].text)
            if verdict.reward != 1.0:
                yield f"{scenario.key}: the demonstration ends with {steps[-1].text!r}, which gets {verdict}"
            num_calls = len(steps) - 1
            if BUDGET_SLACK * num_calls > family.max_calls:
                yield f"{scenario.key}: {num_calls} calls are too near the budget of {family.max_calls}"
            reached_most |= num_calls == scenario.optimal_tool_calls
            if num_calls > scenario.optimal_tool_calls:
                yield f"{scenario.key}: {num_calls} calls are more than optimal_tool_calls"
    if not reached_most:
        yield "no demonstration makes as many calls as optimal_tool_calls"


def check_baselines(family: Family, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """random and constant stay clearly below greedy, greedy below the oracle."""
    missing = [name for name in BASELINES if name not in family.baselines]
    if missing:
        yield f"no baseline {', '.join(missing)}"
        return
    means = {}
    for name in BASELINES:
        play = family.baselines[name]
        rewards = [
            family.verify(scenario, play(scenario, random.Random(scenario.index))).reward
            for scenario in scenarios
        ]
        means[name] = sum(rewards) / len(rewards)
    for blind in ("random", "constant"):
        if means[blind] > means["greedy"] - LEAST_LEAD:
            yield f"{blind} scores {means[blind]:.3f}, too near greedy's {means['greedy']:.3f}"
    if means["greedy"] >= 1:
        yield "greedy is always optimal: the family is too easy to tell policies apart"


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
            if not is_sound(verdict, family) or verdict != repeated:
                yield f"{scenario.key}: unsound verdict {verdict} on {text[:60]!r}"


def is_sound(verdict: Verdict, family: Family) -> bool:
    """Reward and parts finite in [0, 1]; 1 for the exact optimum only, next to nothing over a hard limit."""
    numbers = [verdict.reward, *verdict.parts.values()]
    in_range = all(math.isfinite(number) and 0 <= number <= 1 for number in numbers)
    return (
        in_range
        and (verdict.reward < 1 or verdict.exact)
        and (verdict.reward <= family.infeasible_reward or verdict.feasible)
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


CHECKS: dict[str, Check] = {
    "coordinates": check_coordinates,
    "purity": check_purity,
    "splits": check_splits,
    "neighbours": check_neighbours,
    "gold": check_gold,
    "certificate": check_certificate,
    "zeros": check_zeros,
    "figures": check_figures,
    "totality": check_totality,
    "tools": check_tools,
    "brief": check_brief,
    "demonstrations": check_demonstrations,
    "baselines": check_baselines,
}
