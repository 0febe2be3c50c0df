"""The CTO's whole job: choose one of several designs and how many instances of each component it runs.

Right is the cheapest design with counts (1 to 3 instances a component) that carries every load, reaches the
availability target and stays under the latency limit, within the budget; "none" where nothing does.
The optimum is found in order of cost and certified from the words (`from_words`) by every count vector.
"""

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping
from math import prod
from operator import itemgetter
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer
from scenarios.base import Scenario, Step, ToolCall, Verdict
from scenarios.company.domain import write_percent
from scenarios.company.sectors import Sector
from scenarios.headroom import share_of_room
from scenarios.jobs.job import (
    MAX_CALLS,
    Draft,
    Facts,
    NoCaseError,
    Truth,
    Wordings,
    accept,
    build_family,
    combine_by_cost,
    join_words,
    make_job_role,
    make_tool,
    refuse_limits,
)

NAME = "architecture"
NONE = "none"
NOTHING: dict[str, Any] = {"design": NONE, "instances": {}}  # the answer that escalates
MOST_INSTANCES = 3
WHOLE = 10_000  # availability of what never fails, in hundredths of a percent
NUM_DESIGNS = (2, 2, 2, 3, 3, 3, 4, 4, 5, 5)  # by difficulty 1-10
NUM_COMPONENTS = (2, 3, 3, 4, 4, 5, 5, 6, 7, 8)  # of each design, failover and cache included
MOST_MEASURED = (3, 4, 5, 6, 7, 8, 8, 9, 9, 9)  # plans that the search in order of cost looks at
FAILOVER_FROM, CACHE_FROM, TWO_LOADS_FROM = 5, 7, 9  # difficulties
WEIGHTS = {"architecture": 0.2, "cost": 0.3}
STYLES: Mapping[str, tuple[str, ...]] = {  # way of building -> its main components
    "one application": ("app servers", "database"),
    "microservices": ("containers", "document store"),
    "serverless": ("functions", "key-value store"),
    "managed platform": ("platform runtime", "managed database"),
    "event-driven": ("stream processors", "event store"),
}
# Further components, in the order in which a request passes them.
OTHERS = ("load balancer", "identity service", "session store", "message queue", "search index", "file store")
FAILOVER, CACHE = "standby region", "cache"
OPENINGS: Wordings = (
    "{situation} Choose the design of the new {system}, and its instances.",
    "{situation} Which design should the new {system} have, with how many instances?",
    "{situation} You are asked which architecture the new {system} should have.",
    "{situation} The board wants the cheapest {system} that keeps what was promised.",
    "How is the new {system} built at the least cost? {situation}",
)
LOADS: Wordings = (
    "Load in the {name}: {requests} requests a second{cached}.",
    "The {name} brings {requests} requests a second{cached}.",
    "In the {name} there are {requests} requests a second{cached}.",
    "{requests} requests a second must be carried in the {name}{cached}.",
    "Users send {requests} requests a second in the {name}{cached}.",
)
LIMITS: Wordings = (
    "Availability: at least {target}. Latency: at most {latency} ms. Budget: {budget} k$ a year.",
    "It must be up at least {target} of the time, answer within {latency} ms and cost at most {budget} k$ a "
    "year.",
    "Promised are an availability of {target} or more and a latency of {latency} ms or less, for {budget} k$ "
    "a year or less.",
    "There are {budget} k$ a year to spend. Latency may reach {latency} ms, and availability may not fall "
    "below {target}.",
    "Limits: {budget} k$ a year at most, {latency} ms of latency at most, {target} of availability at least.",
)
DESIGNS: Wordings = ("Designs:", "Candidates:", "These designs were drawn up:", "The choice:", "Drafts:")
PARTS: Wordings = (
    "One instance of each component:",
    "What one instance of a component does:",
    "Components, by the instance:",
    "Each instance of a component:",
    "Figures of one instance:",
)
COMPONENTS: Wordings = (
    "{name}: {capacity} requests a second, up {up}, {latency} ms, {price} k$ a year",
    "{name}: {price} k$ a year, carries {capacity} requests a second in {latency} ms, up {up}",
    "{name}: up {up} of the time, {latency} ms, {capacity} requests a second, {price} k$ a year",
    "{name}: {latency} ms, {capacity} requests a second, {price} k$ a year, up {up}",
    "{name}: costs {price} k$ a year, takes {latency} ms, is up {up}, carries {capacity} requests a second",
)

RULES = (
    "A request passes all steps of the design in turn. Instances: each component runs 1, 2 or 3. A component "
    "carries the load if the requests a second that reach it are at most its capacity times its instances. "
    "All requests reach every component, with one exception: behind a cache the next component gets only the "
    "share that the cache does not answer, and the cache itself gets all. A component with failover is "
    "written 'X or Y': each of the two must carry the load alone. A component is down only while all its "
    "instances are down; instances fail independently. A step 'X or Y' is down only while both are down. "
    "Availability of the design is the probability that no step is down; a cache is a step. Latency is the "
    "sum over all components of the design, except those behind 'or'. Cost is the sum over all components "
    "of price times instances."
)


class DesignAnswer(Answer):
    """Example: DesignAnswer(design="B", instances={"app servers": 2, "database": 1})"""

    design: Annotated[str, Field(description="letter of the design")]  # or "none"
    instances: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=MOST_INSTANCES)]],
        Field(max_length=12, description="instances of every component of the design, 1 to 3 each"),
    ]


MEASURE = make_tool(
    "measure",
    "Whether a design with these instances carries the load, its latency, availability and cost.",
    DesignAnswer,
)
ROLE = make_job_role(
    NAME,
    "CTO",
    (
        "You are the CTO of a company. You choose the architecture of a new system: one of several designs, "
        "and how many instances of each of its components run.",
        "The best answer is the cheapest one that keeps all limits of the case: load, availability, latency, "
        'budget. If no answer keeps them all, say so with the design "none" and no instances.',
        f"Rules. {RULES}",
        "Tool: measure(design, instances) tells the exact figures of one answer. You may call it "
        f"{MAX_CALLS} times.",
        "End with one JSON object with exactly these keys: design (the letter), instances (an object that "
        "gives the number for every component of that design). Nothing may follow it. Example of an answer "
        'in another case: {"design": "B", "instances": {"mail relay": 2, "archive": 1}}',
    ),
    DesignAnswer,
    (MEASURE,),
    "A",
)


def list_components(design: Mapping[str, Any]) -> list[str]:
    """Components of a design in the order of its steps."""
    return [name for step in design["steps"] for name in step]


def count_least(facts: Facts, letter: str) -> dict[str, int] | None:
    """The fewest instances with which every component carries every load; None where 3 are too few."""
    counts = {}
    for name, load in _loads(facts, letter).items():
        counts[name] = max(1, -(-load // facts["components"][name]["capacity"]))
        if counts[name] > MOST_INSTANCES:
            return None
    return counts


def _loads(facts: Facts, letter: str) -> dict[str, int]:
    """The highest load that reaches each component of a design, in requests a second."""
    most: dict[str, int] = {}
    for load in facts["loads"]:
        reaching = load["requests"]
        for step in facts["designs"][letter]["steps"]:
            for name in step:
                most[name] = max(most.get(name, 0), reaching)
            is_cache = step == [CACHE]
            reaching = load["requests"] * (100 - load["cached"]) // 100 if is_cache else load["requests"]
    return most


def find_latency(facts: Facts, letter: str) -> int:
    """Milliseconds of a request that passes every step; the first of 'X or Y' counts."""
    return sum(facts["components"][step[0]]["latency"] for step in facts["designs"][letter]["steps"])


def find_cost(facts: Facts, counts: Mapping[str, int]) -> int:
    return sum(facts["components"][name]["price"] * count for name, count in counts.items())


def find_availability(facts: Facts, letter: str, counts: Mapping[str, int]) -> int:
    """Hundredths of a percent, rounded down, step by step in whole numbers."""
    up = whole = 1
    for step in facts["designs"][letter]["steps"]:
        down = prod((WHOLE - facts["components"][name]["availability"]) ** counts[name] for name in step)
        all_states = prod(WHOLE ** counts[name] for name in step)
        up *= all_states - down
        whole *= all_states
    return WHOLE * up // whole


Plan = tuple[int, str, dict[str, int]]  # cost, design, instances


def list_by_cost(facts: Facts) -> Iterator[Plan]:
    """Plans that carry the load under the latency limit, cheapest first; ties by design and counts."""
    plans = [_list_of_design(facts, letter) for letter in facts["designs"]]
    return heapq.merge(*plans, key=itemgetter(0))


def _list_of_design(facts: Facts, letter: str) -> Iterator[Plan]:
    least = count_least(facts, letter)
    if least is None or find_latency(facts, letter) > facts["latency"]:
        return
    choices = [
        [(facts["components"][name]["price"] * count, count) for count in range(fewest, MOST_INSTANCES + 1)]
        for name, fewest in least.items()
    ]
    for cost, counts in combine_by_cost(choices):
        yield cost, letter, dict(zip(least, counts, strict=True))


def draw(rng: random.Random, sector: Sector, difficulty: int) -> Draft:
    """A candidate without target and budget; see `settle`."""
    num = NUM_COMPONENTS[difficulty - 1]
    components: dict[str, dict[str, int]] = {}
    designs: dict[str, dict[str, Any]] = {}
    loads: list[dict[str, Any]] = [
        {"name": "peak hour", "requests": 50 * rng.randint(4, 16), "cached": 10 * rng.randint(4, 8)}
    ]
    if difficulty >= TWO_LOADS_FROM:
        first = loads[0]
        more = first["requests"] + 50 * rng.randint(2, 8)
        loads.append({"name": "busiest hour of the year", "requests": more, "cached": 10 * rng.randint(2, 5)})
    top = max(load["requests"] for load in loads)
    ways = rng.sample(list(STYLES), NUM_DESIGNS[difficulty - 1])
    for letter, way in zip("ABCDE", ways, strict=False):
        steps = [[name] for name in STYLES[way]]
        has_failover = difficulty >= FAILOVER_FROM and rng.random() < 0.5
        has_cache = difficulty >= CACHE_FROM and rng.random() < 0.7
        if has_failover:
            steps[-1].append(FAILOVER)
        if has_cache:
            steps.insert(-1, [CACHE])
        missing = num - sum(map(len, steps))
        front = sorted(rng.sample(OTHERS, max(0, missing)), key=OTHERS.index)
        designs[letter] = {"style": way, "steps": [[name] for name in front] + steps}
        for name in list_components(designs[letter]):
            if name not in components:
                components[name] = _draw_component(rng, top)
    facts: Draft = {"loads": loads, "components": components, "designs": designs}
    latencies = sorted(find_latency(facts, letter) for letter in designs)
    loose = latencies[-1] + 5 * rng.randint(0, 4)
    tight = latencies[-1] - rng.randint(1, max(1, latencies[-1] - latencies[0]))
    return facts | {"latency": tight if rng.random() < 0.4 else loose}


def _draw_component(rng: random.Random, top: int) -> dict[str, int]:
    times = rng.choice((50, 60, 80, 110, 120, 130, 150, 180))  # percent of the load that one instance carries
    return {
        "capacity": max(10, top * times // 1000 * 10),
        "availability": WHOLE - rng.choice((10, 20, 30, 50, 80, 100, 150, 200, 300)),
        "latency": 5 * rng.randint(1, 12),
        "price": rng.randint(3, 15),
    }


def settle(facts: Draft, difficulty: int, escalates: bool, rng: random.Random) -> tuple[Truth, int]:
    """Set target and budget so that the search ends after a stated number of plans; return truth and calls.

    Raises:
        NoCaseError: no plan is the first one, in order of cost, to reach an availability.
    """
    most = MOST_MEASURED[difficulty - 1]
    plans = list(itertools.islice(list_by_cost(facts), most + 12))
    reached = [find_availability(facts, letter, counts) for _, letter, counts in plans]
    if len(plans) < 3:
        raise NoCaseError
    if escalates:
        last = rng.randint(2, min(most, len(plans) - 1))
        while last < len(plans) and plans[last][0] == plans[last - 1][0]:
            last += 1
        if last > most or last == len(plans):
            raise NoCaseError
        facts["budget"] = rng.randint(plans[last - 1][0], plans[last][0] - 1)
        facts["target"] = min(max(reached[:last]) + rng.randint(1, 30), WHOLE - 1)
        if max(reached[:last]) >= facts["target"]:
            raise NoCaseError
        return {**NOTHING, "cost": 0}, last
    firsts = [place for place in range(1, min(most, len(plans))) if reached[place] > max(reached[:place])]
    if not firsts:
        raise NoCaseError
    place = rng.choice(firsts)
    facts["target"] = rng.randint(max(max(reached[:place]) + 1, reached[place] - 40), reached[place])
    cost, letter, counts = plans[place]
    same = [later for later in range(place + 1, len(plans)) if plans[later][0] == cost]
    if any(reached[later] >= facts["target"] for later in same) or (same and same[-1] == len(plans) - 1):
        raise NoCaseError
    facts["budget"] = cost + max(5, cost * rng.randint(10, 50) // 100)
    return {"design": letter, "instances": counts, "cost": cost}, place + 1


def write_brief(facts: Facts) -> str:
    """Every figure of the case."""
    wording = facts["wording"]
    lines = [OPENINGS[wording].format(**facts)]
    for load in facts["loads"]:
        has_cache = CACHE in facts["components"]
        answered = f", of which a cache answers {load['cached']} %" if has_cache else ""
        lines.append(LOADS[wording].format(**{**load, "cached": answered}))
    lines.append(LIMITS[wording].format(**{**facts, "target": write_percent(facts["target"])}))
    lines.append(DESIGNS[wording])
    for letter, design in facts["designs"].items():
        steps = ", then ".join(" or ".join(step) for step in design["steps"])
        lines.append(f"{letter} ({design['style']}): {steps}")
    lines.append(PARTS[wording])
    for name, part in facts["components"].items():
        lines.append(COMPONENTS[wording].format(**part, name=name, up=write_percent(part["availability"])))
    return "\n".join(lines)


def check_limits(facts: Facts, letter: str, counts: Mapping[str, int]) -> dict[str, bool]:
    """Which limits a plan keeps."""
    loads = _loads(facts, letter)
    capacity = {name: facts["components"][name]["capacity"] * counts[name] for name in loads}
    return {
        "load": all(load <= capacity[name] for name, load in loads.items()),
        "availability": find_availability(facts, letter, counts) >= facts["target"],
        "latency": find_latency(facts, letter) <= facts["latency"],
        "budget": find_cost(facts, counts) <= facts["budget"],
    }


def judge(facts: Facts, truth: Truth, answer: DesignAnswer) -> Verdict:
    """Reward 0.1 limits + 0.2 right design + 0.3 cost between the budget (0) and the least (1) + 0.4 exact.

    An answer that breaks limits gets 0.1 times the share that it keeps.
    """
    kept = check_limits(facts, answer.design, answer.instances)
    cost = find_cost(facts, answer.instances)
    if not all(kept.values()):
        return refuse_limits(kept)
    is_right = answer.design == truth["design"]
    room = share_of_room(-cost, -truth["cost"], (-facts["budget"], 1))
    exact = is_right and answer.instances == truth["instances"]
    says = f"cost {cost} (least: design {truth['design']} at {truth['cost']})"
    return accept(kept, {"architecture": float(is_right), "cost": room}, WEIGHTS, exact, says)


def find_mistake(facts: Facts, stated: DesignAnswer) -> str:
    """A design or component that there is not; "" for none."""
    if stated.design not in facts["designs"]:
        return f"no design {stated.design[:20]!r}"
    names = list_components(facts["designs"][stated.design])
    if set(stated.instances) != set(names):
        return f"instances must name exactly the components of {stated.design}: {', '.join(names)}"
    return ""


def measure(facts: Facts, stated: DesignAnswer) -> str:
    """The tool measure(design, instances)."""
    letter, counts = stated.design, stated.instances
    kept = check_limits(facts, letter, counts)
    return (
        f"load {'carried' if kept['load'] else 'not carried'}, latency {find_latency(facts, letter)} ms, "
        f"availability {write_percent(find_availability(facts, letter, counts))}, "
        f"cost {find_cost(facts, counts)} k$"
    )


def demonstrate(scenario: Scenario) -> tuple[list[Step], str]:
    """Bounds from load and latency, then plans in order of cost until one reaches the target."""
    facts, truth = scenario.facts, scenario.truth
    plans = itertools.islice(list_by_cost(facts), scenario.optimal_tool_calls)
    target = write_percent(facts["target"])
    text = _write_bounds(facts)
    steps: list[Step] = []
    for cost, letter, counts in plans:
        call = ToolCall(name="measure", arguments={"design": letter, "instances": counts})
        steps.append(Step(text=f"{text}{_write_plan(letter, counts)} costs {cost}.", call=call))
        reached = find_availability(facts, letter, counts)
        if reached < facts["target"]:
            text = f"{write_percent(reached)} is under {target}. Next by cost: "
        else:
            text = f"{write_percent(reached)} reaches {target}; all that is cheaper falls short."
    if truth["design"] == NONE:
        text = (
            f"Under {target} too, and all else costs more than {facts['budget']}: nothing keeps every limit."
        )
    return steps, text


def _write_plan(letter: str, counts: Mapping[str, int]) -> str:
    return f"{letter} with {join_words([f'{count} {name}' for name, count in counts.items()])}"


def _write_bounds(facts: Facts) -> str:
    """Per design: latency against the limit, and the fewest instances that carry the load."""
    lines = []
    for letter in facts["designs"]:
        latency, limit = find_latency(facts, letter), facts["latency"]
        if latency > limit:
            lines.append(f"{letter}: {latency} ms is over {limit}, out.")
            continue
        least = count_least(facts, letter)
        loads = _loads(facts, letter)
        if least is None:
            name = next(n for n in loads if loads[n] > MOST_INSTANCES * facts["components"][n]["capacity"])
            lines.append(f"{letter}: {latency} ms holds; {name} cannot carry {loads[name]}, out.")
            continue
        more = [
            f"{name} needs {count} ({loads[name]} over {facts['components'][name]['capacity']})"
            for name, count in least.items()
            if count > 1
        ]
        carried = join_words(more) if more else "1 of each carries the load"
        lines.append(
            f"{letter}: {latency} ms of {limit} holds; {carried}; from {find_cost(facts, least)} k$."
        )
    return "\n".join([*lines, "In order of cost: "])


def answer_randomly(facts: Facts, rng: random.Random) -> dict[str, Any]:
    """Any design with any counts."""
    letter = rng.choice(list(facts["designs"]))
    names = list_components(facts["designs"][letter])
    return {"design": letter, "instances": {name: rng.randint(1, MOST_INSTANCES) for name in names}}


def follow_rule(facts: Facts) -> dict[str, Any]:
    """The design that carries the load for least, then the instance that gains most per k$ until it is up."""
    first = next(list_by_cost(facts), None)
    if first is None:
        return NOTHING
    _, letter, counts = first
    while find_availability(facts, letter, counts) < facts["target"]:
        gains = []
        for name, count in counts.items():
            if count < MOST_INSTANCES:
                more = {**counts, name: count + 1}
                gain = find_availability(facts, letter, more) - find_availability(facts, letter, counts)
                gains.append((gain / facts["components"][name]["price"], name, more))
        if not gains or find_cost(facts, counts) > facts["budget"]:
            return NOTHING
        counts = max(gains)[2]
    return {"design": letter, "instances": counts}


FAMILY = build_family(
    ROLE,
    DesignAnswer,
    draw=draw,
    settle=settle,
    write_brief=write_brief,
    find_mistake=find_mistake,
    judge=judge,
    claim=lambda truth: truth["cost"],
    observe=measure,
    demonstrate=demonstrate,
    follow_rule=follow_rule,
    answer_randomly=answer_randomly,
    constant=NOTHING,
    escalates_by=NOTHING,
)
