"""The team's optimum by second methods: every figure and the choice again, by other algorithms."""

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod
from typing import Any

from scenarios.team.case import TeamScenario
from scenarios.world.architecture import recheck_figures
from scenarios.world.case import blend, figure_utility
from scenarios.world.work import recheck_finish


def recheck_exposure(threats: Mapping[str, Any]) -> int:
    """Total exposure by inclusion-exclusion over the networkx paths to each asset."""
    import networkx as nx

    likelihoods = {(a, b): Fraction(percent, 100) for a, b, percent in threats["edges"]}
    graph = nx.DiGraph(list(likelihoods))
    total = 0
    for asset, impact in threats["impacts"].items():
        signs: dict[frozenset[tuple[str, str]], int] = {}  # edge set -> signed number of its terms
        for path in nx.all_simple_paths(graph, "entry", asset):
            edges = frozenset(itertools.pairwise(path))
            terms = list(signs.items())
            signs[edges] = signs.get(edges, 0) + 1
            for union, sign in terms:
                signs[union | edges] = signs.get(union | edges, 0) - sign
        reached = sum(
            (sign * prod((likelihoods[edge] for edge in union), start=Fraction(1)))
            for union, sign in signs.items()
        )
        total += int(impact * reached)
    return total


def recheck_total(prices: Mapping[str, Any]) -> int:
    """The least total by a DP over (quality, items per tier), discounts taken off at the end."""
    costs: dict[tuple[int, ...], int] = {(0, 0, 0, 0): 0}
    for tiers in prices["items"].values():
        extended: dict[tuple[int, ...], int] = {}
        for (quality, *counts), cost in costs.items():
            for tier, (price, points) in enumerate(tiers):
                taken = (quality + points, *(count + (i == tier) for i, count in enumerate(counts)))
                extended[taken] = min(extended.get(taken, cost + price), cost + price)
        costs = extended
    discount: dict[str, int] = prices["discount"] or {"count": 0, "off": 0}
    return min(
        cost - discount["off"] * sum(count for count in counts if count >= discount["count"])
        for (quality, *counts), cost in costs.items()
        if quality >= prices["floor"]
    )


RECHECKS: dict[str, Callable[[dict[str, Any]], int]] = {
    "cto": lambda structure: blend(recheck_figures(structure)),
    "coo": recheck_finish,
    "risk": recheck_exposure,
    "cost": recheck_total,
}


def certify_team(scenario: TeamScenario) -> tuple[float, float]:
    """(value of the stated best option, best value recomputed from the structures); 0 where none is open."""
    best = scenario.truth["best"]
    stated = 0.0 if best is None else float(scenario.truth["value"][best])
    total = sum(seat.facts["stakes"] for seat in scenario.seats.values())
    greatest = Fraction(0)
    for option in scenario.options:
        value, is_open = Fraction(0), True
        for role, seat in scenario.seats.items():
            figure = RECHECKS[role](seat.facts["structures"][option])
            utility = figure_utility(role, scenario.difficulty, figure)
            value += Fraction(seat.facts["stakes"], total) * utility
            is_open &= utility >= seat.facts["limit"]
        if is_open:
            greatest = max(greatest, value)
    return stated, float(greatest)
