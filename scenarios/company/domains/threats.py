"""The Risk officer's domain: ways of attack from outside to assets, controls that make steps less likely.

An asset is reached from outside or from an asset before it, by one route or by either of two; a route is one
step or two in turn. Every step stands on one route only, and steps succeed independently of each other.
"""

import itertools
import random
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

from roles.risk import RULES
from scenarios.company.domain import (
    NUM_UPGRADES,
    Choice,
    Domain,
    Figures,
    Request,
    Structure,
    Terms,
    draw_cost,
)
from scenarios.company.sectors import name_attack

OUTSIDE = "outside"
NUM_ASSETS = (2, 2, 3, 3, 3, 4, 4, 4, 5, 5)  # by difficulty 1-10
MOST_STEPS = 9  # names that a sector has
CHAIN_SHARE = (0, 0, 0.4, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 1.0)  # of assets that are reached from another one
SECOND_ROUTE_SHARE = (0, 0, 0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)  # of spare steps that open a second route
LEAST_IMPACT = 10
CAP_FROM = 3  # first difficulty at which one asset may have a cap: a hard limit beside the appetite
PASSED_SHARE, KEPT_SHARE = 0.7, 0.3  # of graphs that need a part, and of others, those with a cap
TERMS = (
    "Every k$ of expected loss that is avoided is worth {avoided_loss} k$. Hard limit: the expected loss is "
    "at most {expected_loss} k$ (the risk appetite).",
    "Each k$ of expected loss that a part prevents counts as {avoided_loss} k$. The risk appetite is a hard "
    "limit: the expected loss must not exceed {expected_loss} k$.",
    "The company values each k$ of avoided expected loss at {avoided_loss} k$. Hard limit: an expected loss "
    "of no more than {expected_loss} k$, the risk appetite.",
    "A part is worth what it averts, {avoided_loss} k$ for each k$ of expected loss. The board's appetite is "
    "a hard limit: {expected_loss} k$ of expected loss or less.",
    "By the board's risk appetite, a hard limit, the expected loss is capped at {expected_loss} k$. To "
    "prevent a k$ of expected loss is worth {avoided_loss} k$, above the appetite and under it.",
)


def draw_terms(rng: random.Random) -> Terms:
    """Appetite."""
    return Terms(rates={"avoided_loss": 1}, limits={"expected_loss": rng.randint(45, 75)})


def draw(rng: random.Random, request: Request) -> dict[str, Any]:
    """A candidate threat graph with controls; its expected loss aims at one side of the appetite."""
    level = request.difficulty - 1
    assets = rng.sample(request.sector.assets, NUM_ASSETS[level])
    steps = rng.sample(list(request.sector.controls), MOST_STEPS)
    least = max(NUM_UPGRADES[level], len(assets))
    second_route, chained = SECOND_ROUTE_SHARE[level], CHAIN_SHARE[level]
    room = (4 if second_route else 2) * len(assets)
    spare = rng.randint(least, min(MOST_STEPS, room, least + 2)) - len(assets)  # steps beyond one per asset
    routes = [[1] for _ in assets]  # steps per route and asset
    while spare:
        asset = rng.choice(routes)
        if second_route and len(asset) == 1 and rng.random() < second_route:
            asset.append(1)
        elif 1 in asset:
            asset[asset.index(1)] = 2
        else:
            continue
        spare -= 1
    hits = name_attack(request.sector, assets, steps, [sum(lengths) for lengths in routes])
    likelihoods: dict[str, int] = {}
    graph: dict[str, dict[str, Any]] = {}
    for place, (name, lengths) in enumerate(zip(assets, routes, strict=True)):
        is_chained = place > 0 and chained > 0 and rng.random() < chained
        own = [[hits[place].pop() for _ in range(length)] for length in lengths]
        for step in itertools.chain(*own):
            likelihoods[step] = rng.randint(40, 90)
        source = rng.choice(assets[:place]) if is_chained else OUTSIDE
        graph[name] = {"loss": rng.randint(30, 90), "from": source, "routes": own}
    threats: dict[str, Any] = {"assets": graph, "steps": likelihoods, "upgrades": {}}
    appetite = request.terms.limits["expected_loss"]
    share = PASSED_SHARE if request.breaks_limit else KEPT_SHARE
    has_cap = request.difficulty >= CAP_FROM and rng.random() < share
    is_over = request.breaks_limit and not has_cap
    wanted = appetite + (rng.randint(2, 20) if is_over else -appetite * rng.randint(2, 30) // 100)
    expected = max(1, measure(threats, ())["expected_loss"])
    for asset_facts in graph.values():
        asset_facts["loss"] = max(LEAST_IMPACT, -(-asset_facts["loss"] * wanted // expected))
    if has_cap:
        name, lost = rng.choice(list(_find_losses(threats, ()).items()))
        over = rng.randint(1, max(1, lost // 3)) if request.breaks_limit else -rng.randint(0, 5)
        threats["cap"] = {"asset": name, "loss": max(1, lost - over)}
    for step in rng.sample(list(likelihoods), NUM_UPGRADES[level]):
        to = likelihoods[step] * rng.randint(15, 60) // 100
        threats["upgrades"][request.sector.controls[step]] = {
            "cost": draw_cost(rng, request.price_level),
            "step": step,
            "to": to,
        }
    return threats


def _harden(structure: Structure, choice: Choice) -> dict[str, int]:
    """Likelihood of every step, in percent, with these controls."""
    likelihoods = dict(structure["steps"])
    for name in choice:
        control = structure["upgrades"][name]
        if control["to"] < likelihoods[control["step"]]:
            likelihoods[control["step"]] = control["to"]
    return likelihoods


def measure(structure: Structure, choice: Choice) -> dict[str, int]:
    """Exact expected loss, and that of the capped asset beside its cap."""
    return _tell_losses(structure, _find_losses(structure, choice))


def _tell_losses(structure: Structure, losses: Mapping[str, int]) -> dict[str, int]:
    figures = {"expected_loss": sum(losses.values())}
    if "cap" in structure:
        figures |= {"asset_loss": losses[structure["cap"]["asset"]], "asset_cap": structure["cap"]["loss"]}
    return figures


def _find_losses(structure: Structure, choice: Choice) -> dict[str, int]:
    """Exact expected loss of every asset, in whole numbers."""
    likelihoods = _harden(structure, choice)
    reached = {OUTSIDE: (1, 1)}
    losses: dict[str, int] = {}
    for name, asset in structure["assets"].items():
        missed, scale = 1, 1
        for route in asset["routes"]:
            succeeds, route_scale = 1, 1
            for step in route:
                succeeds *= likelihoods[step]
                route_scale *= 100
            missed *= route_scale - succeeds
            scale *= route_scale
        before, before_scale = reached[asset["from"]]
        numerator, denominator = before * (scale - missed), before_scale * scale
        reached[name] = (numerator, denominator)
        losses[name] = asset["loss"] * numerator // denominator
    return losses


def measure_again(structure: Structure, choice: Choice) -> tuple[int, dict[str, int]]:
    """The same by inclusion and exclusion over all paths of steps from outside to each asset."""
    likelihoods = _harden(structure, choice)
    assets = structure["assets"]
    unions = _list_unions(
        tuple(
            (name, asset["from"], tuple(tuple(route) for route in asset["routes"]))
            for name, asset in assets.items()
        )
    )
    scale = 100 ** len(likelihoods)
    losses: dict[str, int] = {}
    for name, asset in assets.items():
        reached = sum(
            sign * prod(likelihoods[step] for step in union) * 100 ** (len(likelihoods) - len(union))
            for union, sign in unions[name]
        )
        losses[name] = asset["loss"] * reached // scale
    cost = sum(structure["upgrades"][name]["cost"] for name in choice)
    return cost, _tell_losses(structure, losses)


@lru_cache(maxsize=16)  # a structure is measured with one choice after the other
def _list_unions(
    assets: tuple[tuple[str, str, tuple[tuple[str, ...], ...]], ...],
) -> dict[str, list[tuple[frozenset[str], int]]]:
    """Of every asset the unions of the steps of some paths to it, with their signed numbers of terms.

    `assets`: name, source and routes.
    """
    import networkx as nx

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    routes: dict[Any, frozenset[str]] = {}  # by edge
    for name, source, own in assets:
        for route in own:
            key = graph.add_edge(source, name)
            routes[source, name, key] = frozenset(route)
    unions = {}
    for name, _, _ in assets:
        signs: dict[frozenset[str], int] = {}
        for path in nx.all_simple_edge_paths(graph, OUTSIDE, name):
            used = frozenset().union(*(routes[edge] for edge in path))
            terms = list(signs.items())
            signs[used] = signs.get(used, 0) + 1
            for union, sign in terms:
                signs[union | used] = signs.get(union | used, 0) - sign
        unions[name] = list(signs.items())
    return unions


def value(terms: Terms, figures: Figures) -> int:
    """Expected loss under the appetite, in k$; negative over it."""
    return terms.rates["avoided_loss"] * (terms.limits["expected_loss"] - figures["expected_loss"])


def keeps_limit(terms: Terms, figures: Figures) -> bool:
    is_capped = figures.get("asset_loss", 0) <= figures.get("asset_cap", 0)
    return is_capped and figures["expected_loss"] <= terms.limits["expected_loss"]


def describe(structure: Structure) -> str:
    likelihoods = structure["steps"]
    lines = ["Assets:"]
    for name, asset in structure["assets"].items():
        routes = " or by ".join(
            " then ".join(f"{step} {likelihoods[step]} %" for step in route) for route in asset["routes"]
        )
        lines.append(f"{name}: loss {asset['loss']}, from {asset['from']} by {routes}")
    if "cap" in structure:
        lines += ["Cap:", "{asset}: expected loss of at most {loss} k$".format(**structure["cap"])]
    lines.append("Upgrades:")
    for name, upgrade in structure["upgrades"].items():
        lines.append(f"{name}: cost {upgrade['cost']}, {_write_effect(upgrade)}")
    return "\n".join(lines)


def _write_effect(upgrade: Mapping[str, Any]) -> str:
    return f"{upgrade['step']} falls to {upgrade['to']} %"


def write_figures(figures: Figures) -> str:
    capped = (
        ", {asset_loss} k$ of it on the capped asset, at most {asset_cap} k$"
        if "asset_cap" in figures
        else ""
    )
    return f"expected loss {figures['expected_loss']} k${capped.format(**figures)}"


DOMAIN = Domain(
    seat="risk",
    draw_terms=draw_terms,
    draw=draw,
    measure=measure,
    measure_again=measure_again,
    value=value,
    keeps_limit=keeps_limit,
    describe=describe,
    write_figures=write_figures,
    subject="threat graph",
    rules=RULES,
    terms=TERMS,
    second_limit=(
        "cap",
        "Where a cap is stated for an asset, the expected loss of that asset must not exceed it: this is a "
        "hard limit as well, and earns nothing.",
    ),
)
