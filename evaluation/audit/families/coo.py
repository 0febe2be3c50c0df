"""Audit of family coo: finish by the longest path of a networkx graph, the optimum by CP-SAT."""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from evaluation.audit.families.independent_score import combine_score, weigh_between
from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Scenario
from scenarios.coo import FAMILY
from scenarios.world.work import recheck_finish


def _measure(facts: Mapping[str, Any], assign: Mapping[str, str]) -> int | None:
    """Finish time of a legal plan, None of any other: packages and hand-overs as a weighted graph."""
    import networkx as nx

    packages = facts["packages"]
    place = {name: i for i, name in enumerate(assign)}
    if set(place) != set(packages):
        return None
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, person in assign.items():
        earlier = packages[name]["after"]
        if person not in packages[name]["hours"] or any(place[other] > place[name] for other in earlier):
            return None
        hours = packages[name]["hours"][person]
        graph.add_edge(name, f"end of {name}", weight=hours)
        graph.add_edges_from((f"end of {other}", name, {"weight": 0}) for other in earlier)
    for person in facts["people"]:
        own = [name for name in assign if assign[name] == person]
        graph.add_edges_from((f"end of {a}", b, {"weight": 0}) for a, b in pairwise(own))
    return int(nx.dag_longest_path_length(graph))


@lru_cache(maxsize=512)
def _least_finish(work: str) -> int:
    return recheck_finish(json.loads(work))


def score(scenario: Scenario, answer: Answer) -> float:
    """Time gained on the deadline as a share of what the optimum gains, and the stated finish."""
    facts = scenario.facts
    finish = _measure(facts, answer["assign"])
    if finish is None or finish > facts["deadline"]:
        return 0.0
    least = _least_finish(json.dumps({"people": facts["people"], "packages": facts["packages"]}))
    return combine_score(weigh_between(finish, least, facts["deadline"]), [answer["finish"] == finish])


def _state(scenario: Scenario, assign: dict[str, str]) -> Answer:
    return {"assign": assign, "finish": _measure(scenario.facts, assign) or 0}


def answer_half(scenario: Scenario) -> Answer:
    """Return the first half of the packages, each with its fastest person; the rest is nobody's."""
    packages = scenario.facts["packages"]
    kept = list(packages)[: (len(packages) + 1) // 2]
    fastest = {name: min(packages[name]["hours"], key=packages[name]["hours"].__getitem__) for name in kept}
    return {"assign": fastest, "finish": max(packages[name]["hours"][who] for name, who in fastest.items())}


def answer_backwards(scenario: Scenario) -> Answer:
    """Return every package with its fastest person, last package first."""
    rows = {name: package["hours"] for name, package in scenario.facts["packages"].items()}
    return _state(scenario, {name: min(rows[name], key=rows[name].__getitem__) for name in reversed(rows)})


def answer_one_person(scenario: Scenario) -> Answer:
    """Return all of it for the first person."""
    return _state(scenario, dict.fromkeys(scenario.facts["packages"], scenario.facts["people"][0]))


def answer_in_turn(scenario: Scenario) -> Answer:
    """People in turn, whatever they need."""
    people = scenario.facts["people"]
    return _state(
        scenario, {name: people[i % len(people)] for i, name in enumerate(scenario.facts["packages"])}
    )


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "assign": Field(
            kind="sequence", names=lambda scenario: list(scenario.facts["packages"]), values=("A", "B", "C")
        ),
        "finish": Field(kind="number"),
    },
    score=score,
    hacks={
        "half of the packages": answer_half,
        "last package first": answer_backwards,
        "one person does all": answer_one_person,
        "people in turn": answer_in_turn,
    },
)
