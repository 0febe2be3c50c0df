"""The COO's domain: packages with owners and precedence, upgrades that bring the finish forward.

Packages are worked on in the listed order: each starts when its predecessors are done and its owner is free.
"""

import itertools
import random
from collections.abc import Mapping
from typing import Any

from roles.coo import RULES
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

NUM_PACKAGES = (3, 4, 4, 5, 5, 6, 6, 7, 7, 8)  # by difficulty 1-10
NUM_PEOPLE = (2, 2, 2, 3, 3, 3, 3, 4, 4, 4)
SHORTEST, LONGEST = 5, 20  # days of a package before the plan is stretched to its length
KINDS = ("overtime", "contractor", "shift", "shift")  # as often as they are drawn
MILESTONE_FROM = 3  # first difficulty at which one package may have a milestone: a hard limit, too
MISSED_SHARE, MET_SHARE = 0.7, 0.3  # of plans that need a part, and of others, those with a milestone
TERMS = (
    "Every day by which the finish comes earlier is worth {day} k$. Hard limit: the finish is on day "
    "{deadline} at the latest (the deadline).",
    "Each day that the work is finished sooner brings {day} k$. The deadline is a hard limit: the last "
    "package is finished by day {deadline}.",
    "Finishing a day earlier is worth {day} k$, two days earlier twice that, and so on. Hard limit: all work "
    "is done no later than day {deadline}, the deadline.",
    "The company gains {day} k$ for every day that the finish moves ahead. Hard limit: the finish is not "
    "after day {deadline}, the deadline.",
    "The deadline is a hard limit: a finish on day {deadline} or earlier. Time is money: each day sooner "
    "saves {day} k$.",
)


def draw_terms(rng: random.Random) -> Terms:
    """Deadline, and what an earlier day is worth."""
    return Terms(rates={"day": rng.randint(1, 3)}, limits={"deadline": rng.randint(45, 85)})


def draw(rng: random.Random, request: Request) -> dict[str, Any]:
    """A candidate work plan with upgrades; its length aims at one side of the deadline."""
    level = request.difficulty - 1
    listed = list(request.sector.packages)
    names = rng.sample(listed, NUM_PACKAGES[level])
    people = rng.sample(request.sector.people, NUM_PEOPLE[level])
    owners = [*people, *(rng.choice(people) for _ in names[len(people) :])]
    rng.shuffle(owners)
    drawn: list[tuple[str, int, list[int]]] = []  # owner, days, places of the packages before it
    depths: list[int] = []
    for place, owner in enumerate(owners):
        num_after = min(place, rng.choice((0, 1, 1, 2)))
        after = sorted(rng.sample(range(place), num_after))
        drawn.append((owner, rng.randint(SHORTEST, LONGEST), after))
        depths.append(max((depths[earlier] + 1 for earlier in after), default=0))
    order = sorted(range(len(names)), key=depths.__getitem__)  # names go by the sector's own order of work
    names = [name for _, name in sorted(zip(order, sorted(names, key=listed.index), strict=True))]
    packages: dict[str, dict[str, Any]] = {
        name: {"owner": owner, "days": days, "after": [names[earlier] for earlier in after]}
        for name, (owner, days, after) in zip(names, drawn, strict=True)
    }
    deadline = request.terms.limits["deadline"]
    share = MISSED_SHARE if request.breaks_limit else MET_SHARE
    has_milestone = request.difficulty >= MILESTONE_FROM and rng.random() < share
    is_late = request.breaks_limit and not has_milestone
    wanted = deadline + (rng.randint(1, 10) if is_late else -rng.randint(0, 8))
    plan: dict[str, Any] = {"packages": packages, "upgrades": {}}
    length = measure(plan, ())["finish"]
    for package in packages.values():
        package["days"] = max(3, (package["days"] * wanted + length // 2) // length)
    if has_milestone:
        name, done = rng.choice(list(_work_off(plan, ()).items())[:-1])
        late = rng.randint(1, 5) if request.breaks_limit else -rng.randint(0, 4)
        plan["milestone"] = {"package": name, "day": max(1, done - late)}
    candidates = [(kind, name) for kind in sorted(set(KINDS)) if kind != "overtime" for name in names]
    candidates += [("overtime", person) for person in people]
    weights = (KINDS.count(kind) * (2 if kind == "overtime" else 1) for kind, _ in candidates)
    chances = list(itertools.accumulate(weights))
    upgrades: dict[str, dict[str, Any]] = {}
    while len(upgrades) < NUM_UPGRADES[level]:
        kind, name = rng.choices(candidates, cum_weights=chances)[0]
        upgrade: dict[str, Any] = {"cost": draw_cost(rng, request.price_level)}
        if kind == "overtime":
            upgrade["person"] = name
        else:
            days = packages[name]["days"]
            upgrade["package"] = name
            if kind == "contractor":
                upgrade["takes"] = max(1, days * rng.randint(40, 80) // 100)
            else:
                upgrade["saves"] = max(1, days * rng.randint(15, 40) // 100)
        title = f"{'extra shift' if kind == 'shift' else kind} {name}"
        upgrades.setdefault(title, upgrade)
    return {**plan, "upgrades": upgrades}


def _schedule(structure: Structure, choice: Choice) -> tuple[set[str], dict[str, int], dict[str, int]]:
    """People on overtime, days by contracted package, days saved by package."""
    overtime: set[str] = set()
    contracted: dict[str, int] = {}
    saved: dict[str, int] = {}
    for name in choice:
        upgrade = structure["upgrades"][name]
        if "person" in upgrade:
            overtime.add(upgrade["person"])
        elif "takes" in upgrade:
            contracted[upgrade["package"]] = upgrade["takes"]
        else:
            saved[upgrade["package"]] = upgrade["saves"]
    return overtime, contracted, saved


def measure(structure: Structure, choice: Choice) -> dict[str, int]:
    """The day on which the last package is done, and that of the milestone beside its own day."""
    return _tell_days(structure, _work_off(structure, choice))


def _tell_days(structure: Structure, done: Mapping[str, int]) -> dict[str, int]:
    figures = {"finish": max(done.values())}
    if "milestone" in structure:
        milestone = structure["milestone"]
        figures |= {"milestone": done[milestone["package"]], "milestone_day": milestone["day"]}
    return figures


def _work_off(structure: Structure, choice: Choice) -> dict[str, int]:
    """The day on which every package is done, by one pass over the packages."""
    overtime, contracted, saved = _schedule(structure, choice)
    done: dict[str, int] = {}
    free: dict[str, int] = {}
    for name, package in structure["packages"].items():
        owner, days = package["owner"], package["days"]
        start = 0
        for earlier in package["after"]:
            if done[earlier] > start:
                start = done[earlier]
        if name in contracted:
            end = start + contracted[name]
        else:
            start = max(start, free.get(owner, 0))
            if owner in overtime:
                days = (4 * days + 4) // 5
            if name in saved:
                days = max(1, days - saved[name])
            end = free[owner] = start + days
        done[name] = end
    return done


def measure_again(structure: Structure, choice: Choice) -> tuple[int, dict[str, int]]:
    """The same as the longest path of the networkx graph of precedence and of owners' sequences."""
    import networkx as nx

    overtime, contracted, saved = _schedule(structure, choice)
    packages = structure["packages"]
    graph: nx.DiGraph[str] = nx.DiGraph()
    last: dict[str, str] = {}
    days: dict[str, int] = {}
    for name, package in packages.items():
        owner = package["owner"]
        if name in contracted:
            days[name] = contracted[name]
        else:
            hurried = -(-package["days"] * 4 // 5) if owner in overtime else package["days"]
            days[name] = max(1, hurried - saved.get(name, 0))
        graph.add_edge("start", name)
        graph.add_edges_from((earlier, name) for earlier in package["after"])
        if name not in contracted:
            if owner in last:
                graph.add_edge(last[owner], name)
            last[owner] = name
    done = {"start": 0}
    for name in list(nx.topological_sort(graph))[1:]:
        done[name] = days[name] + max(done[earlier] for earlier in graph.predecessors(name))
    cost = sum(structure["upgrades"][name]["cost"] for name in choice)
    return cost, _tell_days(structure, done)


def value(terms: Terms, figures: Figures) -> int:
    """Worth of the days before the deadline; negative after it."""
    return terms.rates["day"] * (terms.limits["deadline"] - figures["finish"])


def keeps_limit(terms: Terms, figures: Figures) -> bool:
    is_met = figures.get("milestone", 0) <= figures.get("milestone_day", 0)
    return is_met and figures["finish"] <= terms.limits["deadline"]


def describe(structure: Structure) -> str:
    lines = ["Packages:"]
    for name, package in structure["packages"].items():
        after = f", after {' and '.join(package['after'])}" if package["after"] else ""
        lines.append(f"{name}: {package['owner']}, {package['days']} days{after}")
    if "milestone" in structure:
        lines += ["Milestone:", "{package}: done by day {day}".format(**structure["milestone"])]
    lines.append("Upgrades:")
    for name, upgrade in structure["upgrades"].items():
        lines.append(f"{name}: cost {upgrade['cost']}, {_write_effect(upgrade)}")
    return "\n".join(lines)


def _write_effect(upgrade: Mapping[str, Any]) -> str:
    if "person" in upgrade:
        return f"packages of {upgrade['person']} take a fifth less"
    if "takes" in upgrade:
        return f"a contractor does {upgrade['package']} in {_write_days(upgrade['takes'])}"
    return f"{_write_days(upgrade['saves'])} less for {upgrade['package']}"


def _write_days(days: int) -> str:
    return f"{days} day{'s' * (days != 1)}"


def write_figures(figures: Figures) -> str:
    milestone = (
        ", milestone on day {milestone}, wanted by day {milestone_day}" if "milestone" in figures else ""
    )
    return f"finish day {figures['finish']}{milestone.format(**figures)}"


DOMAIN = Domain(
    seat="coo",
    draw_terms=draw_terms,
    draw=draw,
    measure=measure,
    measure_again=measure_again,
    value=value,
    keeps_limit=keeps_limit,
    describe=describe,
    write_figures=write_figures,
    subject="work plan",
    rules=RULES,
    terms=TERMS,
    second_limit=(
        "milestone",
        "Where a plan names a milestone, that package must be done by the day stated: this is a hard limit "
        "as well, and earns nothing.",
    ),
)
