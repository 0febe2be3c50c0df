"""The whole jobs as subjects: forms of answers, shortcuts past the mandates, a score from the words alone."""

import itertools
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from evaluation.audit.answers import Answer, FieldSpec, Subject
from scenarios.base import Scenario
from scenarios.jobs.from_words import READERS
from scenarios.tasks.registry import JOBS, TASK_FAMILIES

DAYS = (1, 4, 7, 10)  # on which entries of a plan start that the audit writes


@lru_cache(maxsize=512)
def _solve(name: str, brief: str) -> Answer:
    answer, _ = READERS[name](brief)
    return answer


def _sort(value: Any) -> Any:
    """The value with all lists in one order."""
    if isinstance(value, dict):
        return {key: _sort(inner) for key, inner in value.items()}
    return sorted(map(_sort, value), key=json.dumps) if isinstance(value, list) else value


def _score(scenario: Scenario, answer: Answer) -> float:
    """1 for the answer that the solver of the words finds, in any order, and 0 for any other."""
    found = _solve(scenario.family, scenario.brief)
    given = {key: answer.get(key, []) for key in found}
    return float(_sort(given) == _sort(found))


def _names(group: str) -> Callable[[Scenario], list[str]]:
    return lambda scenario: list(scenario.facts.get(group, ()))


def _pick(group: str, choose: Callable[..., Any], figure: str) -> Callable[[Scenario], Any]:
    """The name in a group of facts whose figure `choose` (min or max) prefers."""
    return lambda scenario: choose(
        scenario.facts[group], key=lambda name: scenario.facts[group][name][figure]
    )


def _list_pairs(scenario: Scenario) -> list[list[str]]:
    return [list(pair) for pair in itertools.combinations(scenario.facts["seats"], 2)]


def _list_components(scenario: Scenario, letter: str) -> list[str]:
    return [name for step in scenario.facts["designs"][letter]["steps"] for name in step]


def _plan_alone(scenario: Scenario) -> Answer:
    """Everything on the first day by the first person."""
    who = next(iter(scenario.facts["people"]))
    return {"plan": [{"package": name, "who": who, "start": 1} for name in scenario.facts["packages"]]}


def _name_risks(scenario: Scenario) -> list[Answer]:
    pairs = itertools.product(scenario.facts["threats"], scenario.facts["assets"])
    return [{"threat": threat, "asset": asset, "severity": 12} for threat, asset in pairs]


def _take_tiers(place: int, commits: bool) -> Callable[[Scenario], Answer]:
    def answer(scenario: Scenario) -> Answer:
        services = scenario.facts["services"]
        return {
            "tiers": {name: list(service["tiers"])[place] for name, service in services.items()},
            "commit": [name for name, service in services.items() if commits and "commit" in service],
        }

    return answer


def _take_package(choose: Callable[..., Any], in_conflict: bool) -> Callable[[Scenario], Answer]:
    pick = _pick("packages", choose, "cost")
    return lambda scenario: {
        "package": pick(scenario),
        "extras": [],
        "conflicts": _list_pairs(scenario) if in_conflict else [],
        "escalate": False,
    }


FIELDS: Mapping[str, Mapping[str, FieldSpec]] = {
    "architecture": {
        "design": FieldSpec(kind="id", names=lambda scenario: [*scenario.facts["designs"], "none"]),
        "instances": FieldSpec(
            kind="map", values=lambda scenario: dict.fromkeys(scenario.facts["components"], (1, 2, 3))
        ),
    },
    "allocation": {
        "plan": FieldSpec(
            kind="entries",
            once=True,
            largest=DAYS[-1],
            entries=lambda scenario: [
                {"package": name, "who": who, "start": day}
                for name in scenario.facts["packages"]
                for who in scenario.facts["people"]
                for day in DAYS
            ],
        )
    },
    "threats": {
        "risks": FieldSpec(kind="entries", entries=_name_risks, largest=12),
        "controls": FieldSpec(kind="set", names=_names("controls")),
        "escalate": FieldSpec(kind="boolean"),
    },
    "bill": {
        "tiers": FieldSpec(
            kind="map",
            values=lambda scenario: {n: list(one["tiers"]) for n, one in scenario.facts["services"].items()},
        ),
        "commit": FieldSpec(kind="set", names=_names("services")),
    },
    "tradeoff": {
        "package": FieldSpec(kind="id", names=lambda scenario: [*scenario.facts["packages"], "none"]),
        "extras": FieldSpec(kind="set", names=_names("extras"), is_optional=True),
        "conflicts": FieldSpec(kind="entries", entries=_list_pairs),
        "escalate": FieldSpec(kind="boolean"),
    },
}
HACKS: Mapping[str, Mapping[str, Callable[[Scenario], Answer]]] = {
    "architecture": {
        "always hand over": lambda _: {"design": "none", "instances": {}},
        "three of everything in A": lambda case: {
            "design": "A",
            "instances": dict.fromkeys(_list_components(case, "A"), 3),
        },
    },
    "allocation": {"no plan": lambda _: {"plan": []}, "one person, on day 1": _plan_alone},
    "threats": {
        "all is real, buy all": lambda case: {
            "risks": _name_risks(case),
            "controls": list(case.facts["controls"]),
            "escalate": False,
        },
        "nothing is real": lambda _: {"risks": [], "controls": [], "escalate": False},
        "always escalate": lambda case: {"risks": _name_risks(case), "controls": [], "escalate": True},
    },
    "bill": {
        "always hand over": lambda _: {"tiers": {}, "commit": []},
        "the lowest tier of all": _take_tiers(0, False),
        "the best tier of all, committed": _take_tiers(-1, True),
    },
    "tradeoff": {
        "always escalate": lambda _: {"package": "none", "extras": [], "conflicts": [], "escalate": True},
        "the cheapest, no conflict": _take_package(min, False),
        "the dearest, all in conflict": _take_package(max, True),
    },
}
JOB_SUBJECTS: dict[str, Subject] = {
    name: Subject(family=TASK_FAMILIES[name], fields=FIELDS[name], score=_score, hacks=HACKS[name])
    for name in JOBS
}
