"""Audit of family cto: every figure by brute force over all up/down states of the components."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from evaluation.audit.families.independent_score import combine_score, weigh_smaller
from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Scenario
from scenarios.cto import FAMILY
from scenarios.world.architecture import Figures


def _measure(architecture: Mapping[str, Any]) -> Figures:
    """Availability: chance of the states that join entry and exit. Throughput: the cheapest other state."""
    parts = list(architecture["components"].values())
    place = {name: i for i, name in enumerate(architecture["components"])}
    before: list[list[int]] = [[] for _ in parts]
    for source, target in architecture["edges"]:
        before[place[target]].append(place[source])
    chances = [((100 - part["availability"]) ** part["replicas"], 100 ** part["replicas"]) for part in parts]
    capacities = [part["throughput"] * part["replicas"] for part in parts]
    joined, throughput, scale = 0, sum(capacities), 1
    for _, whole in chances:
        scale *= whole
    for ups in product((False, True), repeat=len(parts)):
        reached: list[bool] = []
        for i, is_up in enumerate(ups):
            reached.append(is_up and (i == 0 or any(reached[a] for a in before[i])))
        if reached[-1]:
            weight = 1
            for is_up, (down, whole) in zip(ups, chances, strict=True):
                weight *= whole - down if is_up else down
            joined += weight
        else:
            throughput = min(
                throughput, sum(c for c, is_up in zip(capacities, ups, strict=True) if not is_up)
            )
    ends: list[int] = []
    for part, earlier in zip(parts, before, strict=True):
        ends.append(part["latency"] + max((ends[a] for a in earlier), default=0))
    cost = sum(part["cost"] * part["replicas"] for part in parts)
    return Figures(latency=ends[-1], availability=100 * joined // scale, throughput=throughput, cost=cost)


@lru_cache(maxsize=1024)
def _measure_all(architectures: str) -> dict[str, Figures]:
    return {option: _measure(one) for option, one in json.loads(architectures).items()}


def _figures(scenario: Scenario) -> dict[str, Figures]:
    return _measure_all(json.dumps(scenario.facts["architectures"]))


def _is_allowed(scenario: Scenario, found: Figures) -> bool:
    limits = scenario.facts["limits"]
    return (
        found.latency <= limits["max_latency"]
        and found.availability >= limits["min_availability"]
        and found.throughput >= (limits["min_throughput"] or 0)
    )


def score(scenario: Scenario, answer: Answer) -> float:
    """Saving over the mean allowed option, and the three stated figures."""
    found = _figures(scenario)
    allowed = {option: own for option, own in found.items() if _is_allowed(scenario, own)}
    if answer["option"] not in allowed:
        return 0.0
    own = allowed[answer["option"]]
    stated = [answer[name] == getattr(own, name) for name in ("cost", "latency", "availability")]
    return combine_score(weigh_smaller(own.cost, [f.cost for f in allowed.values()]), stated)


def _choose(prefer: Callable[[dict[str, Figures]], str]) -> Callable[[Scenario], Answer]:
    def play(scenario: Scenario) -> Answer:
        found = _figures(scenario)
        option = prefer(found)
        stated = {name: getattr(found[option], name) for name in ("cost", "latency", "availability")}
        return {"option": option, **stated}

    return play


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "option": Field(kind="id", names=lambda scenario: list(scenario.facts["architectures"])),
        "cost": Field(kind="number"),
        "latency": Field(kind="number"),
        "availability": Field(kind="number", most_flattering=100),
    },
    score=score,
    hacks={
        "cheapest, limits ignored": _choose(lambda found: min(found, key=lambda o: found[o].cost)),
        "second cheapest, limits ignored": _choose(
            lambda found: sorted(found, key=lambda o: found[o].cost)[1]
        ),
        "dearest": _choose(lambda found: max(found, key=lambda o: found[o].cost)),
        "most available": _choose(lambda found: max(found, key=lambda o: found[o].availability)),
        "fastest": _choose(lambda found: min(found, key=lambda o: found[o].latency)),
    },
)
