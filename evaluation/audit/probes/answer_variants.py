"""Builds answers from a schema alone, random or changed in a field, and checks a verdict's invariants."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, assert_never

from evaluation.audit.records import WORDS, Answer, Field, Subject
from scenarios.base import Scenario, Verdict

Numbers = Callable[[str, int], Sequence[int]]


def next_numbers(_name: str, number: int) -> Sequence[int]:
    """One up, one down."""
    return number + 1, number - 1


def has_form(subject: Subject, scenario: Scenario, value: Any) -> bool:
    """Return whether a JSON value has the subject's fields, exact types, and known ids, each once."""
    if not isinstance(value, dict):
        return False
    required = {name for name, field in subject.fields.items() if not field.is_optional}
    return required <= set(value) <= set(subject.fields) and all(
        _fits(subject.fields[name], scenario, inner) for name, inner in value.items()
    )


def _fits(field: Field, scenario: Scenario, value: Any) -> bool:
    names = field.names(scenario)
    if field.is_free:
        return True
    match field.kind:
        case "number":
            return type(value) is int
        case "boolean":
            return type(value) is bool
        case "id":
            return type(value) is str and value in names
        case "set" | "ranking":
            if type(value) is not list or any(type(name) is not str or name not in names for name in value):
                return False
            return len(set(value)) == len(value) and (field.kind == "set" or len(value) == 2)
        case "plan" | "sequence":
            if type(value) is not dict or set(value) != set(names):
                return False
            return all(any(type(v) is type(w) and v == w for w in field.values) for v in value.values())
        case "offers":
            return type(value) is list and all(map(_is_offer, value))
        case "text":
            return type(value) is str
        case "texts":
            return type(value) is list and all(type(v) is str for v in value)
    assert_never(field.kind)


def _is_offer(value: Any) -> bool:
    return (
        type(value) is dict
        and set(value) == {"option", "part", "cost", "worth"}
        and type(value["option"]) is str
        and type(value["part"]) is list
        and bool(value["part"])
        and all(type(name) is str for name in value["part"])
        and type(value["cost"]) is int
        and type(value["worth"]) is int
    )


def draw_answer(subject: Subject, scenario: Scenario, rng: random.Random) -> Answer:
    """Return an answer of the right form, every field drawn evenly."""
    return {name: _draw(field, scenario, rng) for name, field in subject.fields.items()}


def _draw(field: Field, scenario: Scenario, rng: random.Random) -> Any:
    names = list(field.names(scenario))
    match field.kind:
        case "number":
            return rng.randint(0, field.largest)
        case "boolean":
            return rng.random() < 0.5
        case "id":
            return rng.choice(names)
        case "set":
            return [name for name in names if rng.random() < 0.5]
        case "ranking":
            return rng.sample(names, 2)
        case "sequence" | "plan":
            return {name: rng.choice(field.values) for name in names}
        case "offers":
            drawn = [offer for offer in field.offers(scenario) if rng.random() < 0.1]
            return [
                {**offer, "cost": rng.randint(1, field.largest), "worth": rng.randint(1, field.largest)}
                for offer in drawn
            ]
        case "text":
            return ""
        case "texts":
            return []
    assert_never(field.kind)


def step_away(
    subject: Subject, scenario: Scenario, answer: Answer, numbers: Numbers = next_numbers
) -> Iterator[Answer]:
    """Every answer that differs in one place: another id, one entry more or less, a number of `numbers`."""
    for name, value in answer.items():
        for changed in _step(name, subject.fields[name], scenario, value, numbers):
            yield {**answer, name: changed}


def _step(name: str, field: Field, scenario: Scenario, value: Any, numbers: Numbers) -> Iterator[Any]:
    names = field.names(scenario)
    match field.kind:
        case "number":
            yield from (number for number in numbers(name, value) if number != value)
        case "boolean":
            yield not value
        case "id":
            yield from (other for other in names if other != value)
        case "set":
            yield from ([n for n in value if n != other] for other in value)
            yield from ([*value, other] for other in names if other not in value)
        case "ranking":
            yield value[::-1]
            for place in range(len(value)):
                for other in names:
                    if other not in value:
                        yield [*value[:place], other, *value[place + 1 :]]
        case "plan" | "sequence":
            yield from (value | {key: new} for key in value for new in field.values if new != value[key])
            if field.kind == "sequence":
                yield from (_swap(value, *pair) for pair in pairwise(value))
        case "offers":
            yield from _step_offers(field.offers(scenario), value)
        case "text":
            yield "" if value else "noted"
        case "texts":
            yield [] if value else ["noted"]
        case _:
            assert_never(field.kind)


def _step_offers(known: Sequence[Answer], value: Sequence[Answer]) -> Iterator[list[Answer]]:
    """One offer dropped, misstated, or exchanged for another true one; one more on an option without any."""
    for place, offer in enumerate(value):
        before, after = value[:place], value[place + 1 :]
        yield [*before, *after]
        for name in ("cost", "worth"):
            for number in next_numbers(name, offer[name]):
                yield [*before, {**offer, name: number}, *after]
        others = [other for other in known if other["option"] == offer["option"] and other != offer]
        yield from ([*before, other, *after] for other in others)
    offered = {offer["option"] for offer in value}
    yield from ([*value, other] for other in known if other["option"] not in offered)


def _swap(plan: Mapping[str, Any], first: str, second: str) -> dict[str, Any]:
    turned = {first: second, second: first}
    return {turned.get(key, key): plan[turned.get(key, key)] for key in plan}


def change_numbers(subject: Subject, answer: Answer, change: Callable[[Field, int], Any]) -> Answer:
    """Return the answer with every number field changed."""
    return {
        name: change(subject.fields[name], value) if subject.fields[name].kind == "number" else value
        for name, value in answer.items()
    }


def change_ids(subject: Subject, answer: Answer, change: Callable[[str], Any]) -> Answer:
    """Return the answer with every string changed that is not free words; of a plan the keys, too."""
    changed = {}
    for name, value in answer.items():
        kind = subject.fields[name].kind
        has_ids_as_keys = kind in ("plan", "sequence")
        changed[name] = value if kind in WORDS else _change_inner(value, change, has_ids_as_keys)
    return changed


def _change_inner(value: Any, change: Callable[[str], Any], has_ids_as_keys: bool) -> Any:
    if isinstance(value, dict):
        return {
            str(change(name)) if has_ids_as_keys else name: _change_inner(inner, change, has_ids_as_keys)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_change_inner(inner, change, has_ids_as_keys) for inner in value]
    return change(value) if isinstance(value, str) else value


def is_sound(verdict: Verdict) -> bool:
    """Reward and parts finite in [0, 1]; 1 for the exact optimum only, 0 where a hard constraint breaks."""
    numbers = [verdict.reward, *verdict.parts.values()]
    in_range = all(math.isfinite(number) and 0 <= number <= 1 for number in numbers)
    return in_range and (verdict.reward < 1 or verdict.exact) and (verdict.reward == 0 or verdict.feasible)


def describe_verdict(verdict: Verdict, text: str) -> str:
    """Return the verdict and the text that got it, on one line."""
    return (
        f"reward {verdict.reward}, exact {verdict.exact}, feasible {verdict.feasible}, "
        f"parts {dict(verdict.parts)} for {text[:100]!r}"
    )
