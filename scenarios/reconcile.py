"""ReconcileGPT's own family: four reports disagree; the fairest option that nobody vetoes wins.

Fairness is the weighted Nash product of the stakeholders' utilities over a finite set (Nash 1950, with
weights as in Kalai 1977), compared as exact integers. Refused: picking an option under anybody's hard limit.
"""

import json
import random
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal, localcontext
from math import prod
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.reconcile import ReconcileAnswer
from roles.team import NO_OPTION, SPECIALISTS
from scenarios.base import (
    Family,
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
from scenarios.sectors import SECTORS

OPTIONS = "ABCDEF"
NUM_OPTIONS = (3, 3, 3, 4, 6, 6, 6, 6, 6, 6)  # by difficulty 1-10
MOST_WEIGHT = (1, 1, 1, 2, 2, 2, 3, 3, 3, 3)
LEAST_GAP = (4, 3, 2, 1, 1, 1, 1, 1, 1, 1)  # of Nash welfare between the best and the second
VETO_SHARE = (0.2, 0.2, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.32, 0.34)  # of stakeholders with a veto
DEADLOCK_SHARE = 0.05  # of cases in which every option is vetoed
MOST_DRAWS = 100
WORST_SCORE = 12


def nash_welfare(utilities: list[int], weights: list[int]) -> int:
    """Floor of the weighted geometric mean, exact."""
    product = prod(utility**weight for utility, weight in zip(utilities, weights, strict=True))
    total = sum(weights)
    root = int(product ** (1 / total))
    while root**total > product:
        root -= 1
    while (root + 1) ** total <= product:
        root += 1
    return root


def draw_limit(rng: random.Random, utilities: list[int], num_vetoes: int, *, clear_by: int = 0) -> int:
    """A hard limit that exactly the `num_vetoes` worst of the (distinct) utilities fall under.

    It keeps `clear_by` away from both neighbours where there is room, else it stands between them.
    """
    ordered = sorted(utilities)
    highest = ordered[num_vetoes]
    if not num_vetoes:
        return rng.randint(10, max(10, highest - clear_by))
    lowest = ordered[num_vetoes - 1] + 1
    middle = (lowest + highest) // 2
    return rng.randint(min(lowest + clear_by, middle), max(highest - clear_by, middle))


def find_deadlock(utilities: Mapping[str, list[int]]) -> list[str]:
    """The first two stakeholders whose favourites differ, or []: vetoing all else they leave nothing."""
    favourites = {name: row.index(max(row)) for name, row in utilities.items()}
    for first in favourites:
        for second in favourites:
            if favourites[first] != favourites[second]:
                return [first, second]
    return []


def assess(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that follows from the facts: welfare, lowest utility, favourites, vetoes and the optimum."""
    options, utilities = facts["options"], facts["utilities"]
    weights = [facts["weights"][name] for name in SPECIALISTS]
    rows = {option: [utilities[name][option] for name in SPECIALISTS] for option in options}
    nash = {option: nash_welfare(row, weights) for option, row in rows.items()}
    best = {
        option: [n for n in SPECIALISTS if utilities[n][option] == max(utilities[n].values())]
        for option in options
    }
    veto = {
        option: [n for n in SPECIALISTS if utilities[n][option] < facts["limits"][n]] for option in options
    }
    lowest = {option: min(row) for option, row in rows.items()}
    open_options = [option for option in options if not veto[option]]
    choice = max(open_options, key=lambda option: nash[option], default=NO_OPTION)
    return {
        "nash": nash,
        "lowest": lowest,
        "best": best,
        "veto": veto,
        "open": open_options,
        "option": choice,
        "contested": [option for option in options if best[option] and veto[option]],
        "score": WORST_SCORE if choice == NO_OPTION else risk_score(lowest[choice]),
    }


def risk_score(lowest_utility: int) -> int:
    """0 where the worst served stakeholder is well served, 11 where it is hardly served."""
    return (99 - lowest_utility) // 8


def _draw_facts(rng: random.Random, difficulty: int) -> dict[str, Any]:
    level = difficulty - 1
    options = list(OPTIONS[: NUM_OPTIONS[level]])
    rows = {name: rng.sample(range(10, 100), len(options)) for name in SPECIALISTS}
    num_vetoes = {}
    for name in SPECIALISTS:
        most = max(1, len(options) // 2)
        num_vetoes[name] = rng.randint(1, most) if rng.random() < VETO_SHARE[level] else 0
    if rng.random() < DEADLOCK_SHARE:
        num_vetoes |= dict.fromkeys(find_deadlock(rows), len(options) - 1)
    return {
        "options": options,
        "weights": {name: rng.randint(1, MOST_WEIGHT[level]) for name in SPECIALISTS},
        "limits": {name: draw_limit(rng, rows[name], num_vetoes[name]) for name in SPECIALISTS},
        "utilities": {name: dict(zip(options, rows[name], strict=True)) for name in SPECIALISTS},
    }


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One case; a case whose best two open options are too close is drawn again."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("reconcile", split, seed, index)
    sector = rng.choice(SECTORS)
    for _ in range(MOST_DRAWS):
        facts = _draw_facts(rng, difficulty)
        truth = assess(facts)
        ranked = sorted((truth["nash"][option] for option in truth["open"]), reverse=True)
        if len(ranked) < 2 or ranked[0] - ranked[1] >= LEAST_GAP[difficulty - 1]:
            break
    else:
        raise RuntimeError(f"no unique optimum in {MOST_DRAWS} draws")
    return Scenario(
        family="reconcile",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="reconcile",
        brief=_write_brief(sector, facts, truth),
        facts=facts,
        truth=truth,
        optimal_tool_calls=len(facts["options"]),
    )


def _write_brief(sector: str, facts: Mapping[str, Any], truth: Mapping[str, Any]) -> str:
    """The four reports; weights appear where they can differ."""
    weighted = any(weight != 1 for weight in facts["weights"].values())
    lines = [f"{sector.capitalize()} case. Options {' '.join(facts['options'])}."]
    for name in SPECIALISTS:
        favourite = next(option for option in facts["options"] if name in truth["best"][option])
        vetoed = [option for option in facts["options"] if name in truth["veto"][option]]
        weight = f" weight {facts['weights'][name]}" if weighted else ""
        lines.append(f"{name}{weight} best {favourite} veto {' '.join(vetoed) or NO_OPTION}")
    return "\n".join(lines)


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """`welfare(option)` -> "nash 42 min 31 best cto veto none".

    Raises:
        ToolError: unknown tool, arguments or option.
    """
    if call.name != "welfare":
        raise ToolError("unknown tool; the tool is welfare(option)")
    options, arguments = scenario.facts["options"], call.arguments
    if not isinstance(arguments, Mapping) or set(arguments) != {"option"}:
        raise ToolError("welfare takes exactly one argument: option")
    option = arguments["option"]
    if not isinstance(option, str) or option not in options:
        raise ToolError(f"unknown option; options are {' '.join(options)}")
    found = assess(scenario.facts)
    best, veto = (" ".join(found[key][option]) or NO_OPTION for key in ("best", "veto"))
    return f"nash {found['nash'][option]} min {found['lowest'][option]} best {best} veto {veto}"


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer, by enumeration of the options."""
    found = assess(scenario.facts)
    return {
        "option": found["option"],
        "contested": found["contested"],
        "score": found["score"],
        "escalate": found["option"] == NO_OPTION,
    }


def certify(scenario: Scenario) -> tuple[float, float]:
    """(Nash welfare of the oracle's option, the same by decimal logarithms); 0 where all are vetoed."""
    facts = scenario.facts
    choice = solve(scenario)["option"]
    oracle = scenario.truth["nash"][choice] if choice != NO_OPTION else 0
    total = sum(facts["weights"].values())
    logs = []
    with localcontext() as context:
        context.prec = 60
        for option in facts["options"]:
            view = [
                (Decimal(row[option]), facts["limits"][name], name)
                for name, row in facts["utilities"].items()
            ]
            if all(utility >= limit for utility, limit, _ in view):
                logs.append(sum(facts["weights"][name] * utility.ln() for utility, _, name in view) / total)
        if not logs:
            return float(oracle), 0.0
        second = (max(logs).exp() + Decimal("1e-50")).to_integral_value(ROUND_FLOOR)
    return float(oracle), float(second)


def verify(scenario: Scenario, text: str) -> Verdict:
    """0.6 welfare above the mean open option + 0.3 exact + 0.1 figures; 0 for a vetoed or unknown option."""
    try:
        answer = parse_answer(text, ReconcileAnswer)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    options, truth = scenario.facts["options"], scenario.truth
    if answer.option not in (*options, NO_OPTION) or not set(answer.contested) <= set(options):
        return rejected("unknown_id", f"options are {' '.join(options)}")
    if len(answer.contested) != len(set(answer.contested)):
        return rejected("duplicate_id", "contested names an option twice")
    if answer.option == NO_OPTION and truth["option"] != NO_OPTION:
        return rejected(
            "infeasible", f"no option is needless: {' '.join(truth['open'])} stand without a veto"
        )
    if answer.option != NO_OPTION and truth["veto"][answer.option]:
        return rejected(
            "infeasible", f"{answer.option} is vetoed by {' '.join(truth['veto'][answer.option])}"
        )
    exact = answer.option == truth["option"]
    graded = _grade(truth, answer.option)
    lowest = truth["lowest"].get(answer.option)
    right = (
        set(answer.contested) == set(truth["contested"]),
        answer.score == (WORST_SCORE if lowest is None else risk_score(lowest)),
        answer.escalate == (answer.option == NO_OPTION),
    )
    parts = {"graded": graded, "exact": float(exact), "figures": sum(right) / 3}
    perfect = exact and all(right)
    reward = 1.0 if perfect else 0.6 * graded + 0.3 * exact + 0.1 * parts["figures"]
    nash = truth["nash"]
    explanation = f"chose {answer.option} (nash {nash.get(answer.option, 0)}), optimum {truth['option']}"
    explanation += f" (nash {nash.get(truth['option'], 0)}); {sum(right)} of 3 figures right"
    failure = None if perfect else "wrong_figures" if exact else "suboptimal"
    return Verdict(
        reward=reward, parts=parts, exact=exact, feasible=True, explanation=explanation, failure=failure
    )


def _grade(truth: Mapping[str, Any], option: str) -> float:
    """Welfare as a share of the head-room over the mean open option, at least 0."""
    if option == truth["option"]:
        return 1.0
    values = [truth["nash"][name] for name in truth["open"]]
    above_mean: int = len(values) * truth["nash"][option] - sum(values)
    head_room: int = len(values) * max(values) - sum(values)
    return max(0.0, above_mean / head_room)


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Looks up every option in order, with a short verdict after each observation."""
    found = assess(scenario.facts)
    steps, said = [], ""
    for option in scenario.facts["options"]:
        steps.append(Step(text=said, call=ToolCall(name="welfare", arguments={"option": option})))
        said = f"{option} ok {found['nash'][option]}"
        if found["veto"][option]:
            said = f"{option} contested" if found["best"][option] else f"{option} no"
    return (*steps, Step(text=f"{said}\n{json.dumps(solve(scenario))}"))


def _random_answer(scenario: Scenario, rng: random.Random) -> str:
    options = scenario.facts["options"]
    contested = [option for option in options if rng.random() < 0.3]
    answer = {"option": rng.choice(options), "contested": contested, "score": rng.randint(0, WORST_SCORE)}
    return json.dumps(answer | {"escalate": False})


def _constant_answer(scenario: Scenario, rng: random.Random) -> str:
    return json.dumps({"option": "A", "contested": [], "score": 8, "escalate": False})


def _greedy_answer(scenario: Scenario, rng: random.Random) -> str:
    """Reads the brief, asks no tool: most favourites among the options without veto."""
    found = assess(scenario.facts)
    choice = max(found["open"], key=lambda option: len(found["best"][option]), default=NO_OPTION)
    answer = {
        "option": choice,
        "contested": found["contested"],
        "score": WORST_SCORE if choice == NO_OPTION else 8,
    }
    return json.dumps(answer | {"escalate": choice == NO_OPTION})


FAMILY = Family(
    name="reconcile",
    role="reconcile",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    baselines={"random": _random_answer, "constant": _constant_answer, "greedy": _greedy_answer},
)
