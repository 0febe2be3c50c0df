"""Family cto: the cheapest candidate architecture that meets every requirement.

The brief names the requirements only; the figures come from tools. An option cheaper than the optimum
always breaks some requirement.
"""

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.cto import CtoAnswer
from scenarios.base import (
    Family,
    Form,
    Scenario,
    Split,
    Step,
    ToolCall,
    ToolError,
    Verdict,
    check_coordinates,
    rejected,
    scenario_rng,
)
from scenarios.briefs.cto import write_brief
from scenarios.briefs.forms import choose_form, find_sector
from scenarios.briefs.sectors import SECTORS
from scenarios.headroom import blind_baseline
from scenarios.world.architecture import (
    BUILDS_FROM,
    NUM_BUILDS,
    Figures,
    build_architecture,
    build_variants,
    figures,
    recheck_figures,
)

NUM_OPTIONS = (3, 3, 4, 5, 4, 4, 5, 5, 6, 6)  # by difficulty 1-10; from BUILDS_FROM each in NUM_BUILDS builds
THROUGHPUT_FROM = 3  # difficulty from which throughput is required
# at difficulty 1 and 2 no figure is this near to its requirement: (ms, percent)
CLEAR_BY = {1: (5, 2), 2: (3, 1)}
LATENCY_SLACK = 9  # largest gap between a requirement and the option figure it was drawn from
AVAILABILITY_SLACK = 4
THROUGHPUT_SLACK = 9
CONTESTED_SHARE = 0.5  # of the tries
FIXED_AIMS_FROM = 3  # difficulty from which a case is drawn until it meets its aims, not the aims anew
MOST_BASES = 5  # latencies, and throughputs, that limits are tried at where there are builds
MAX_TRIES = 1000

Limits = dict[str, int | None]  # max_latency, min_availability, min_throughput (None: not required)


def _broken(found: Figures, limits: Mapping[str, Any]) -> list[str]:
    """Requirements that an option of these figures breaks, in words."""
    broken = []
    if found.latency > limits["max_latency"]:
        broken.append(f"latency {found.latency} over {limits['max_latency']}")
    if found.availability < limits["min_availability"]:
        broken.append(f"availability {found.availability} under {limits['min_availability']}")
    if limits["min_throughput"] is not None and found.throughput < limits["min_throughput"]:
        broken.append(f"throughput {found.throughput} under {limits['min_throughput']}")
    return broken


def availability_share(difficulty: int) -> float:
    """In how many cases availability rules out an otherwise better option."""
    return 0.43 + 0.02 * difficulty if difficulty < FIXED_AIMS_FROM else 0.54 + 0.025 * difficulty


def _draw_aims(rng: random.Random, difficulty: int) -> tuple[bool, bool]:
    """Whether several options are feasible (so that cost decides, too), and whether availability decides."""
    return rng.random() < CONTESTED_SHARE, rng.random() < availability_share(difficulty)


def _try_at(rng: random.Random, values: set[int], difficulty: int) -> list[int]:
    ordered = sorted(values)
    if difficulty < BUILDS_FROM or len(ordered) <= MOST_BASES:
        return ordered
    return sorted(rng.sample(ordered, MOST_BASES))


def _draw_limits(
    rng: random.Random, found: list[Figures], difficulty: int, aims: tuple[bool, bool]
) -> Limits | None:
    """Requirements that forbid the cheapest option and leave one optimum; None if none such meet the aims."""
    contested, availability_decides = aims
    with_throughput = difficulty >= THROUGHPUT_FROM
    by_cost = sorted(found, key=lambda figure: figure.cost)
    latency_gap, availability_gap = CLEAR_BY.get(difficulty, (0, 0))
    bases = []
    for latency, throughput in itertools.product(
        _try_at(rng, {figure.latency for figure in found}, difficulty),
        _try_at(rng, {figure.throughput for figure in found}, difficulty) if with_throughput else (0,),
    ):
        fit = [f for f in by_cost if f.latency <= latency and f.throughput >= throughput]
        for availability in sorted({figure.availability for figure in fit}):
            passing = [figure for figure in fit if figure.availability >= availability]
            if (
                passing[0].cost > by_cost[0].cost
                and (passing[0] is not fit[0]) == availability_decides
                and (len(passing) > 1) == contested
                and (len(passing) == 1 or passing[1].cost > passing[0].cost)
                and all(f.latency <= latency or f.latency > latency + 2 * latency_gap for f in found)
                and all(
                    f.availability >= availability or f.availability < availability - 2 * availability_gap
                    for f in found
                )
            ):
                bases.append((latency, availability, throughput))
    if not bases:
        return None
    latency, availability, throughput = rng.choice(bases)
    next_latency = min((f.latency for f in found if f.latency > latency), default=99)
    last_availability = max((f.availability for f in found if f.availability < availability), default=0)
    last_throughput = max((f.throughput for f in found if f.throughput < throughput), default=0)
    return {
        "max_latency": rng.randint(
            latency + latency_gap,
            max(latency + latency_gap, min(latency + LATENCY_SLACK, next_latency - 1 - latency_gap)),
        ),
        "min_availability": rng.randint(
            min(
                availability - availability_gap,
                max(availability - AVAILABILITY_SLACK, last_availability + 1 + availability_gap),
            ),
            availability - availability_gap,
        ),
        "min_throughput": rng.randint(max(throughput - THROUGHPUT_SLACK, last_throughput + 1), throughput)
        if with_throughput
        else None,
    }


def _name_options(difficulty: int) -> tuple[str, ...]:
    letters = "ABCDEF"[: NUM_OPTIONS[difficulty - 1]]
    if difficulty < BUILDS_FROM:
        return tuple(letters)
    return tuple(f"{letter}{build}" for letter in letters for build in range(1, NUM_BUILDS + 1))


def _draw_architectures(rng: random.Random, difficulty: int) -> list[dict[str, Any]]:
    """In the order of the options' names."""
    letters = range(NUM_OPTIONS[difficulty - 1])
    if difficulty < BUILDS_FROM:
        return [build_architecture(rng, difficulty) for _ in letters]
    return [build for _ in letters for build in build_variants(rng, difficulty)]


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One scenario; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("cto", split, seed, index)
    sector = rng.choice(SECTORS)
    options = _name_options(difficulty)
    aims = _draw_aims(rng, difficulty) if difficulty >= FIXED_AIMS_FROM else None
    for _ in range(MAX_TRIES):
        architectures = _draw_architectures(rng, difficulty)
        found = [figures(architecture) for architecture in architectures]
        limits = _draw_limits(rng, found, difficulty, aims or _draw_aims(rng, difficulty))
        if limits is not None:
            break
    else:
        raise RuntimeError(f"no cto scenario in {MAX_TRIES} tries")
    feasible = {option: f for option, f in zip(options, found, strict=True) if not _broken(f, limits)}
    best = min(feasible, key=lambda option: feasible[option].cost)
    facts = {"architectures": dict(zip(options, architectures, strict=True)), "limits": limits}
    total, parts = blind_baseline([f.cost for f in feasible.values()], difficulty, lower_is_better=True)
    return Scenario(
        family="cto",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="cto",
        brief=write_brief(sector, facts, choose_form("cto", split, seed, index, difficulty)),
        facts=facts,
        truth={
            "option": best,
            "cost": feasible[best].cost,
            "reference": total / parts,  # cost of a blind choice among the feasible options
            "figures": {option: asdict(f) for option, f in zip(options, found, strict=True)},
        },
        optimal_tool_calls=NUM_OPTIONS[difficulty - 1],
    )


def rephrase(scenario: Scenario, form: Form) -> str:
    """The brief in another surface form: same facts, same truth."""
    return write_brief(find_sector(scenario), scenario.facts, form)


def _answer(scenario: Scenario, option: str) -> dict[str, Any]:
    found = scenario.truth["figures"][option]
    return {"option": option, **{key: found[key] for key in ("cost", "latency", "availability")}}


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return _answer(scenario, scenario.truth["option"])


def verify(scenario: Scenario, text: str) -> Verdict:
    """Reward 0.6 cost head-room + 0.3 optimal option + 0.1 figures right; 0 where a requirement breaks."""
    try:
        answer = parse_answer(text, CtoAnswer)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    truth = scenario.truth
    if answer.option not in truth["figures"]:
        return rejected("unknown_id", f"unknown option; options are {' '.join(truth['figures'])}")
    found = Figures(**truth["figures"][answer.option])
    broken = _broken(found, scenario.facts["limits"])
    if broken:
        return rejected("infeasible", f"{answer.option} is infeasible: {', '.join(broken)}")
    exact = answer.option == truth["option"]
    room = truth["reference"] - truth["cost"]
    graded = 1.0 if exact else max(0.0, (truth["reference"] - found.cost) / room)
    right = [getattr(answer, name) == getattr(found, name) for name in ("cost", "latency", "availability")]
    parts = {"graded": graded, "exact": float(exact), "figures": sum(right) / len(right)}
    return Verdict(
        reward=(6 * parts["graded"] + 3 * parts["exact"] + parts["figures"]) / 10,
        parts=parts,
        exact=exact,
        feasible=True,
        explanation=f"{answer.option} at {found.cost} k$ (optimum {truth['option']} at {truth['cost']} k$), "
        f"{sum(right)} of {len(right)} figures right",
        failure=None if exact else "suboptimal",
    )


def certify(scenario: Scenario) -> tuple[float, float]:
    """Cost of the oracle's option, and the least feasible cost with all figures recomputed by networkx."""
    facts = scenario.facts
    again = [recheck_figures(architecture) for architecture in facts["architectures"].values()]
    least = min(found.cost for found in again if not _broken(found, facts["limits"]))
    return float(scenario.truth["cost"]), float(least)


def _describe(scenario: Scenario, option: str) -> str:
    architecture = scenario.facts["architectures"][option]
    lines = [
        f"{name} latency {part['latency']} availability {part['availability']} "
        f"throughput {part['throughput']} cost {part['cost']} replicas {part['replicas']}"
        for name, part in architecture["components"].items()
    ]
    return "\n".join([*lines, " ".join(f"{a}-{b}" for a, b in architecture["edges"])])


def _measure(scenario: Scenario, option: str) -> str:
    found = figures(scenario.facts["architectures"][option])
    last = "" if scenario.facts["limits"]["min_throughput"] is None else f" throughput {found.throughput}"
    return f"cost {found.cost} latency {found.latency} availability {found.availability}{last}"


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """measure(option) or describe(option); the letter of an option with builds asks about each of them.

    Raises:
        ToolError: unknown tool, other arguments than one option.
    """
    architectures = scenario.facts["architectures"]
    if call.name not in ("measure", "describe"):
        raise ToolError("unknown tool; tools are measure describe")
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != {"option"}:
        raise ToolError("arguments must be exactly: option")
    option = call.arguments["option"]
    asked = [name for name in architectures if isinstance(option, str) and option in (name, name[0])]
    if not asked:
        raise ToolError(f"unknown option; options are {' '.join(architectures)}")
    tell = _describe if call.name == "describe" else _measure
    if asked == [option]:
        return tell(scenario, option)
    return "\n".join(f"{name} {tell(scenario, name)}" for name in asked)


def demonstrate(scenario: Scenario, _rng: random.Random) -> tuple[Step, ...]:
    """Measure every option in turn, its cheapest build that will do after each, then the answer."""
    steps: list[Step] = []
    verdict = ""
    found = {option: Figures(**row) for option, row in scenario.truth["figures"].items()}
    for letter in dict.fromkeys(option[0] for option in found):
        steps.append(Step(text=verdict, call=ToolCall(name="measure", arguments={"option": letter})))
        fit = [o for o, f in found.items() if o[0] == letter and not _broken(f, scenario.facts["limits"])]
        best = min(fit, key=lambda option: found[option].cost, default=None)
        verdict = f"{best} ok {found[best].cost}" if best else f"{letter} no"
    return (*steps, Step(text=f"{verdict}\n{json.dumps(solve(scenario))}"))


def random_answer(scenario: Scenario, rng: random.Random) -> str:
    """Any option, any figures."""
    option = rng.choice(list(scenario.truth["figures"]))
    guess = {name: rng.randint(10, 99) for name in ("cost", "latency", "availability")}
    return json.dumps({"option": option, **guess})


def constant_answer(scenario: Scenario, _rng: random.Random) -> str:
    """Always the same option and typical figures."""
    option = "A" if scenario.difficulty < BUILDS_FROM else "A1"
    return json.dumps({"option": option, "cost": 64, "latency": 66, "availability": 87})


def greedy_answer(scenario: Scenario, _rng: random.Random) -> str:
    """The cheapest option that meets every requirement but availability, which it ignores."""
    limits = {**scenario.facts["limits"], "min_availability": 0}
    everything = scenario.truth["figures"]
    passing = [option for option, found in everything.items() if not _broken(Figures(**found), limits)]
    return json.dumps(_answer(scenario, min(passing, key=lambda option: everything[option]["cost"])))


def honest_answer(scenario: Scenario, _rng: random.Random) -> str:
    """The first option of the brief that meets every requirement, whatever it costs."""
    limits, everything = scenario.facts["limits"], scenario.truth["figures"]
    return json.dumps(
        _answer(scenario, next(o for o, found in everything.items() if not _broken(Figures(**found), limits)))
    )


FAMILY = Family(
    name="cto",
    role="cto",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    write_brief=rephrase,
    baselines={
        "random": random_answer,
        "constant": constant_answer,
        "greedy": greedy_answer,
        "honest": honest_answer,
    },
)
