"""The CTO's domain: stages of components, upgrades against latency and failure.

A request passes the stages in turn; a stage has one branch or several side by side, a branch one component
or several in series. Availability is counted in hundredths of a percent (9950 is 99.50 %).
"""

import itertools
import random
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from roles.cto import RULES
from scenarios.company.domain import (
    NUM_UPGRADES,
    Choice,
    Domain,
    Figures,
    Request,
    Structure,
    Terms,
    draw_cost,
    write_percent,
)

NUM_COMPONENTS = (3, 3, 4, 4, 5, 5, 6, 6, 7, 7)  # by difficulty 1-10
BRANCHES_FROM = 4  # difficulty from which components stand side by side
WHOLE = 10_000  # availability of what never fails
KINDS = ("spare", "spare", "faster", "faster", "managed")  # as often as they are drawn
TERMS = (
    "Every full 10 ms of latency under {latency_reference} ms is worth {latency_step} k$ (nothing at or over "
    "it). Every full 0.1 % of availability over {availability} is worth {availability_step} k$. Hard limit: "
    "availability of at least {availability} (the SLO).",
    "Latency under {latency_reference} ms counts: each full 10 ms below it brings {latency_step} k$, latency "
    "at or over it nothing. Availability counts above {availability}: each full 0.1 % more than that brings "
    "{availability_step} k$. The SLO is a hard limit: availability of no less than {availability}.",
    "The company gains {latency_step} k$ for every full 10 ms by which latency is below {latency_reference} "
    "ms, and nothing at or above that. It gains {availability_step} k$ for every full 0.1 % of availability "
    "above {availability}. This SLO is a hard limit: availability must not fall below {availability}.",
    "Each full 10 ms that latency stays under {latency_reference} ms earns {latency_step} k$, and latency at "
    "or over it earns nothing. Each full 0.1 % of availability beyond {availability} earns "
    "{availability_step} k$. The SLO, a hard limit, asks for at least {availability} of availability.",
    "The SLO is a hard limit: availability of {availability} or more. Beyond {availability}, customers pay "
    "{availability_step} k$ for every full 0.1 % of availability. They pay {latency_step} k$ for every full "
    "10 ms that latency lies below {latency_reference} ms, and nothing from there on.",
)


def draw_terms(rng: random.Random) -> Terms:
    """SLO, and what latency and availability are worth."""
    return Terms(
        rates={
            "latency_step": rng.randint(2, 5),  # k$ per full 10 ms under the reference
            "latency_reference": 10 * rng.randint(22, 32),  # ms
            "availability_step": rng.randint(3, 5),  # k$ per full 0.1 % over the SLO
        },
        limits={"availability": 10 * rng.randint(985, 995)},
    )


def draw(rng: random.Random, request: Request) -> dict[str, Any]:
    """A candidate architecture with upgrades; its losses aim at one side of the SLO."""
    num = NUM_COMPONENTS[request.difficulty - 1]
    names = rng.sample(request.sector.components, num)
    stages: list[list[list[str]]] = []
    left = list(names)
    if request.difficulty >= BRANCHES_FROM:
        stages.append([[left.pop()], [left.pop() for _ in range(1 if num < 6 else rng.randint(1, 2))]])
    stages += [[[name]] for name in left]
    rng.shuffle(stages)
    stages, left = _name_stages(stages, left, request.sector.components)
    allowed = WHOLE - request.terms.limits["availability"]
    lost = allowed + rng.randint(5, 60) if request.breaks_limit else allowed * rng.randint(55, 97) // 100
    weights = {name: rng.randint(1, 4) for name in left}
    components: dict[str, dict[str, int]] = {}
    for stage in stages:
        for name in itertools.chain(*stage):
            share = lost * weights[name] // sum(weights.values()) if name in weights else rng.randint(80, 300)
            components[name] = {
                "latency": rng.randint(20, 30 + 240 // num),
                "availability": WHOLE - max(3, share),
                "machines": 1,
            }
    pairs = [(kind, name) for kind in sorted(set(KINDS)) for name in components]
    chances = list(itertools.accumulate(KINDS.count(kind) * weights.get(name, 2) for kind, name in pairs))
    upgrades: dict[str, dict[str, Any]] = {}
    while len(upgrades) < NUM_UPGRADES[request.difficulty - 1]:
        kind, name = rng.choices(pairs, cum_weights=chances)[0]
        upgrade = {"cost": draw_cost(rng, request.price_level), "component": name}
        component = components[name]
        if kind == "faster":
            upgrade["latency"] = component["latency"] * rng.randint(30, 70) // 100
        if kind == "managed":
            upgrade["availability"] = WHOLE - (WHOLE - component["availability"]) * rng.randint(20, 50) // 100
        upgrades.setdefault(f"{kind} {name}", upgrade)
    return {"stages": stages, "components": components, "upgrades": upgrades}


def _name_stages(
    stages: list[list[list[str]]], single: list[str], components: tuple[str, ...]
) -> tuple[list[list[list[str]]], list[str]]:
    """The same stages and single components with other names: in the order in which a request passes them.

    The second branch of a stage stands in for the first.
    """
    drawn = [stage[0][0] for stage in stages]
    ordered = sorted(drawn, key=components.index)
    renamed = dict(zip(drawn, ordered, strict=True))
    named = []
    for stage, name in zip(stages, ordered, strict=True):
        others = [*(["failover switch"] if len(stage[-1]) > 1 else []), f"standby {name}"]
        named.append([[name], others] if len(stage) > 1 else [[name]])
    return named, [renamed[name] for name in single]


def _install(structure: Structure, choice: Choice) -> dict[str, tuple[int, int, int]]:
    """Latency, availability and machines of every component with these upgrades."""
    state = {
        name: (part["latency"], part["availability"], part["machines"])
        for name, part in structure["components"].items()
    }
    for name in choice:
        upgrade = structure["upgrades"][name]
        latency, availability, machines = state[upgrade["component"]]
        if "latency" in upgrade:
            latency = upgrade["latency"]
        elif "availability" in upgrade:
            availability = upgrade["availability"]
        else:
            machines += 1
        state[upgrade["component"]] = (latency, availability, machines)
    return state


def measure(structure: Structure, choice: Choice) -> dict[str, int]:
    """Exact latency and availability, stage by stage in whole numbers."""
    state = _install(structure, choice)
    total, up, scale = 0, 1, 1
    for stage in structure["stages"]:
        slowest, down, stage_scale = 0, 1, 1
        for branch in stage:
            latency, branch_up, branch_scale = 0, 1, 1
            for name in branch:
                ms, availability, machines = state[name]
                latency += ms
                whole = WHOLE**machines
                branch_up *= whole - (WHOLE - availability) ** machines
                branch_scale *= whole
            if latency > slowest:
                slowest = latency
            down *= branch_scale - branch_up
            stage_scale *= branch_scale
        total += slowest
        up *= stage_scale - down
        scale *= stage_scale
    return {"latency": total, "availability": WHOLE * up // scale}


def measure_again(structure: Structure, choice: Choice) -> tuple[int, dict[str, int]]:
    """The same on the networkx graph of components: longest path, all up and down states."""
    state = _install(structure, choice)
    wiring = _wire(tuple(tuple(tuple(branch) for branch in stage) for stage in structure["stages"]))
    arrived: dict[str, int] = {}
    for name, before in wiring.predecessors:
        own = state[name][0] if name in state else 0
        arrived[name] = own + max((arrived[other] for other in before), default=0)
    down = {name: (WHOLE - part[1]) ** part[2] for name, part in state.items()}
    whole = {name: WHOLE ** part[2] for name, part in state.items()}
    up = sum(
        prod(whole[name] - down[name] if name in alive else down[name] for name in state)
        for alive in wiring.serving
    )
    cost = sum(structure["upgrades"][name]["cost"] for name in choice)
    return cost, {"latency": arrived["exit"], "availability": WHOLE * up // prod(whole.values())}


class _Wiring(NamedTuple):
    """Figures that hang on the stages alone, whatever is bought."""

    predecessors: list[tuple[str, list[str]]]  # of every node, in topological order
    serving: list[frozenset[str]]  # components that are up, of every state that serves


@lru_cache(maxsize=16)  # a structure is measured with one choice after the other
def _wire(stages: tuple[tuple[tuple[str, ...], ...], ...]) -> _Wiring:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    ends = ["entry"]
    for stage in stages:
        for branch in stage:
            nx.add_path(graph, branch)
            graph.add_edges_from((end, branch[0]) for end in ends)
        ends = [branch[-1] for branch in stage]
    graph.add_edges_from((end, "exit") for end in ends)
    components = [name for stage in stages for branch in stage for name in branch]
    states = (
        frozenset(itertools.compress(components, ups))
        for ups in itertools.product((False, True), repeat=len(components))
    )
    serving = [
        alive for alive in states if nx.has_path(graph.subgraph(["entry", "exit", *alive]), "entry", "exit")
    ]
    return _Wiring([(name, list(graph.predecessors(name))) for name in nx.topological_sort(graph)], serving)


def value(terms: Terms, figures: Figures) -> int:
    """Worth of full 10 ms steps under the reference and of full 0.1 % steps over the SLO, neither below 0."""
    rates = terms.rates
    faster = max(0, rates["latency_reference"] - figures["latency"]) // 10
    safer = max(0, figures["availability"] - terms.limits["availability"]) // 10
    return rates["latency_step"] * faster + rates["availability_step"] * safer


def keeps_limit(terms: Terms, figures: Figures) -> bool:
    return figures["availability"] >= terms.limits["availability"]


def describe(structure: Structure) -> str:
    lines = ["Stages:"]
    for number, stage in enumerate(structure["stages"], start=1):
        lines.append(f"{number}. " + " / ".join(" + ".join(branch) for branch in stage))
    lines.append("Components:")
    for name, part in structure["components"].items():
        machines = f"{part['machines']} machine{'s' if part['machines'] > 1 else ''}"
        lines.append(f"{name}: {part['latency']} ms, {write_percent(part['availability'])}, {machines}")
    lines.append("Upgrades:")
    for name, upgrade in structure["upgrades"].items():
        lines.append(f"{name}: cost {upgrade['cost']}, {_write_effect(upgrade)}")
    return "\n".join(lines)


def _write_effect(upgrade: Mapping[str, Any]) -> str:
    component = upgrade["component"]
    if "latency" in upgrade:
        return f"{component} takes {upgrade['latency']} ms"
    if "availability" in upgrade:
        return f"machines of {component} are up {write_percent(upgrade['availability'])}"
    return f"one more machine of {component}"


def write_figures(figures: Figures) -> str:
    return f"latency {figures['latency']} ms, availability {write_percent(figures['availability'])}"


DOMAIN = Domain(
    seat="cto",
    draw_terms=draw_terms,
    draw=draw,
    measure=measure,
    measure_again=measure_again,
    value=value,
    keeps_limit=keeps_limit,
    describe=describe,
    write_figures=write_figures,
    subject="architecture",
    rules=RULES,
    terms=TERMS,
)
