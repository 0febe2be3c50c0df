"""Builds answers from a schema alone: a random one, and all that differ from one in a single field."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, assert_never

from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Scenario

Numbers = Callable[[str, int], Sequence[int]]


def next_numbers(_name: str, number: int) -> Sequence[int]:
    """One up, one down."""
    return number + 1, number - 1


def has_form(subject: Subject, scenario: Scenario, value: Any) -> bool:
    """Return whether a JSON value has exactly the subject's fields, exact types, and known ids, each once."""
    return (
        isinstance(value, dict)
        and set(value) == set(subject.fields)
        and all(_fits(field, scenario, value[name]) for name, field in subject.fields.items())
    )


def _fits(field: Field, scenario: Scenario, value: Any) -> bool:
    names = field.names(scenario)
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
    assert_never(field.kind)


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
    assert_never(field.kind)


def step_away(
    subject: Subject, scenario: Scenario, answer: Answer, numbers: Numbers = next_numbers
) -> Iterator[Answer]:
    """Every answer that differs in one place: another id, one entry more or less, a number of `numbers`."""
    for name, field in subject.fields.items():
        for changed in _step(name, field, scenario, answer[name], numbers):
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
        case _:
            assert_never(field.kind)


def _swap(plan: Mapping[str, Any], first: str, second: str) -> dict[str, Any]:
    turned = {first: second, second: first}
    return {turned.get(key, key): plan[turned.get(key, key)] for key in plan}


def change_numbers(subject: Subject, answer: Answer, change: Callable[[Field, int], Any]) -> Answer:
    """Return the answer with every number field changed."""
    return {
        name: change(subject.fields[name], value) if subject.fields[name].kind == "number" else value
        for name, value in answer.items()
    }


def change_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a JSON value with every string in it changed, keys of the outermost object left as they are."""
    if isinstance(value, dict):
        return {name: _change_inner(inner, change) for name, inner in value.items()}
    return _change_inner(value, change)


def _change_inner(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, dict):
        return {str(change(name)): _change_inner(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_change_inner(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value
