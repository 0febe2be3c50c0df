"""ReconcileGPT's own family: four reports disagree; the fairest option that nobody vetoes wins.

Fairness is the weighted Nash product of the stakeholders' utilities, compared as exact integers; from
difficulty 3 the tool and the verdict also say how the choice stands by other notions of fairness
(`scenarios.world.bargaining`). Refused: picking an option under anybody's hard limit.
"""

import json
import random
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import Any, NamedTuple

from roles.base import AnswerError, parse_answer
from roles.reconcile import ReconcileAnswer
from roles.team import NO_OPTION, SPECIALISTS
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
from scenarios.briefs.forms import choose_form, find_sector
from scenarios.briefs.reconcile import write_brief
from scenarios.briefs.sectors import SECTORS
from scenarios.headroom import blind_baseline, share_of_room
from scenarios.world.bargaining import draw_limit, find_deadlock, nash_welfare
from scenarios.world.fairness import assess_fairness, recheck_fairness

OPTIONS = "ABCDEFGHIJ"
NUM_OPTIONS = (3, 3, 4, 5, 9, 9, 9, 10, 10, 10)  # by difficulty 1-10
FAIRNESS_FROM = 3  # difficulty from which the tool tells shares and places, and verdicts have more parts
ALL_PARTS_FROM = 5  # difficulty from which only an answer right in every part is exact
MOST_WEIGHT = (1, 1, 1, 2, 2, 2, 3, 3, 3, 3)
LEAST_GAP = (4, 3, 2, 1, 1, 1, 1, 1, 1, 1)  # of Nash welfare between the best and the second
VETO_SHARE = (0.2, 0.2, 0.2, 0.2, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25)  # of stakeholders with a veto
# share of cases whose fairest open option has fewer favourites than another one; 0: as it comes
FAVOURED_LOSES = (0, 0, 0.22, 0.3, 0.36, 0.39, 0.42, 0.45, 0.48, 0.51)
# share of cases whose option of the highest welfare is vetoed; 0: as it comes
VETO_DECIDES = (0, 0, 0.35, 0.45, 0.65, 0.67, 0.7, 0.73, 0.76, 0.78)
DEADLOCK_SHARE = 0.05  # of cases in which every option is vetoed
MOST_DRAWS = 3000
WORST_SCORE = 12


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


def _draw_facts(rng: random.Random, difficulty: int, in_deadlock: bool | None) -> dict[str, Any]:
    """`in_deadlock` None: drawn with the rest."""
    level = difficulty - 1
    options = list(OPTIONS[: NUM_OPTIONS[level]])
    rows = {name: rng.sample(range(10, 100), len(options)) for name in SPECIALISTS}
    num_vetoes = {}
    for name in SPECIALISTS:
        most = max(1, len(options) // 2)
        num_vetoes[name] = rng.randint(1, most) if rng.random() < VETO_SHARE[level] else 0
    if rng.random() < DEADLOCK_SHARE if in_deadlock is None else in_deadlock:
        num_vetoes |= dict.fromkeys(find_deadlock(rows), len(options) - 1)
    return {
        "options": options,
        "weights": {name: rng.randint(1, MOST_WEIGHT[level]) for name in SPECIALISTS},
        "limits": {name: draw_limit(rng, rows[name], num_vetoes[name]) for name in SPECIALISTS},
        "utilities": {name: dict(zip(options, rows[name], strict=True)) for name in SPECIALISTS},
    }


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One case; drawn again while its best two open options are too close, or it is not of the kind drawn."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("reconcile", split, seed, index)
    sector = rng.choice(SECTORS)
    aims = _draw_aims(rng, difficulty)
    for _ in range(MOST_DRAWS):
        facts = _draw_facts(rng, difficulty, aims.in_deadlock)
        truth = assess(facts)
        ranked = sorted((truth["nash"][option] for option in truth["open"]), reverse=True)
        if len(ranked) > 1 and ranked[0] - ranked[1] < LEAST_GAP[difficulty - 1]:
            continue
        if _meets(truth, aims):
            break
    else:
        raise RuntimeError(f"no case of the kind drawn in {MOST_DRAWS} draws")
    if difficulty >= FAIRNESS_FROM:
        truth["fairness"] = assess_fairness(facts)
    return Scenario(
        family="reconcile",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="reconcile",
        brief=write_brief(sector, facts, choose_form("reconcile", split, seed, index, difficulty)),
        facts=facts,
        truth=truth,
        optimal_tool_calls=len(_options_to_ask(difficulty, truth)),
    )


class _Aims(NamedTuple):
    """What the case is to be; None: as it comes."""

    in_deadlock: bool | None = None  # every option is vetoed
    favoured_loses: bool | None = None  # another open option has more favourites than the best
    veto_decides: bool | None = None  # an option of higher welfare than the best is vetoed


def _draw_aims(rng: random.Random, difficulty: int) -> _Aims:
    favoured_loses, veto_decides = FAVOURED_LOSES[difficulty - 1], VETO_DECIDES[difficulty - 1]
    if not favoured_loses:
        return _Aims()
    return _Aims(rng.random() < DEADLOCK_SHARE, rng.random() < favoured_loses, rng.random() < veto_decides)


def _meets(truth: Mapping[str, Any], aims: _Aims) -> bool:
    """Whether the case is of the kind drawn."""
    if aims.in_deadlock is None or not truth["open"]:
        return aims.in_deadlock is not False
    choice, nash = truth["option"], truth["nash"]
    most = max(len(truth["best"][option]) for option in truth["open"])
    return (
        not aims.in_deadlock
        and aims.favoured_loses == (len(truth["best"][choice]) < most)
        and aims.veto_decides == (nash[choice] < max(nash.values()))
    )


def _options_to_ask(difficulty: int, truth: Mapping[str, Any]) -> list[str]:
    """All options; where they are many only those that the brief leaves open, in a deadlock the contested."""
    if difficulty < ALL_PARTS_FROM:
        return list(truth["nash"])
    return list(truth["open"] or truth["contested"])


def rephrase(scenario: Scenario, form: Form) -> str:
    """The brief in another surface form: same facts, same truth."""
    return write_brief(find_sector(scenario), scenario.facts, form)


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """`welfare(option)` -> "nash 42 min 31 best cto veto none".

    From difficulty 3 an open option has three figures more: "... share 61 kalai 1 leximin 2 best ...".

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
    fairness = ""
    if scenario.difficulty >= FAIRNESS_FROM and option in found["open"]:
        fairness = "".join(f" {k} {v[option]}" for k, v in assess_fairness(scenario.facts).items())
    return f"nash {found['nash'][option]} min {found['lowest'][option]}{fairness} best {best} veto {veto}"


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
    """(Nash welfare of the oracle's option, the same by decimal logarithms); 0 where all are vetoed.

    Raises:
        RuntimeError: the other solutions differ from those found by elimination.
    """
    facts = scenario.facts
    if scenario.difficulty >= FAIRNESS_FROM:
        recheck_fairness(facts, scenario.truth["fairness"])
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
    chosen = answer.option == truth["option"]
    graded = _grade(scenario, answer.option)
    lowest = truth["lowest"].get(answer.option)
    right = (
        set(answer.contested) == set(truth["contested"]),
        answer.score == (WORST_SCORE if lowest is None else risk_score(lowest)),
        answer.escalate == (answer.option == NO_OPTION),
    )
    perfect = chosen and all(right)
    exact = perfect if scenario.difficulty >= ALL_PARTS_FROM else chosen
    parts = {"graded": graded, "exact": float(exact), "figures": sum(right) / 3}
    reward = 1.0 if perfect else 0.6 * graded + 0.3 * exact + 0.1 * parts["figures"]
    if scenario.difficulty >= FAIRNESS_FROM:
        parts |= _fairness_parts(truth, answer)
    nash = truth["nash"]
    explanation = f"chose {answer.option} (nash {nash.get(answer.option, 0)}), optimum {truth['option']}"
    explanation += f" (nash {nash.get(truth['option'], 0)}); {sum(right)} of 3 figures right"
    failure = None if perfect else "wrong_figures" if chosen else "suboptimal"
    return Verdict(
        reward=reward, parts=parts, exact=exact, feasible=True, explanation=explanation, failure=failure
    )


def _grade(scenario: Scenario, option: str) -> float:
    """Welfare as a share of the head-room over a blind choice among the open options, at least 0."""
    truth = scenario.truth
    if option == truth["option"]:
        return 1.0
    values = [truth["nash"][name] for name in truth["open"]]
    return share_of_room(truth["nash"][option], max(values), blind_baseline(values, scenario.difficulty))


def _fairness_parts(truth: Mapping[str, Any], answer: ReconcileAnswer) -> dict[str, float]:
    """Shown, not paid: welfare over the optimum's, lowest share, F1 of contested, escalation right."""
    named, wanted = set(answer.contested), set(truth["contested"])
    decided = answer.option != NO_OPTION
    return {
        "fairness": truth["nash"][answer.option] / truth["nash"][truth["option"]] if decided else 1.0,
        "satisfaction": truth["fairness"]["share"][answer.option] / 100 if decided else 0.0,
        "conflicts": 2 * len(named & wanted) / len([*named, *wanted]) if named or wanted else 1.0,
        "escalation": float(answer.escalate != decided),
    }


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Looks up the options in order, with a short verdict after each observation."""
    found = assess(scenario.facts)
    steps, said = [], ""
    for option in _options_to_ask(scenario.difficulty, found):
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


def _honest_answer(scenario: Scenario, _rng: random.Random) -> str:
    """Asks the tool about the two open options with most favourites, and takes the fairer one."""
    found = assess(scenario.facts)
    asked = sorted(found["open"], key=lambda option: -len(found["best"][option]))[:2]
    choice = max(asked, key=lambda option: found["nash"][option], default=NO_OPTION)
    answer = {
        "option": choice,
        "contested": found["contested"],
        "score": WORST_SCORE if choice == NO_OPTION else risk_score(found["lowest"][choice]),
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
    write_brief=rephrase,
    baselines={
        "random": _random_answer,
        "constant": _constant_answer,
        "greedy": _greedy_answer,
        "honest": _honest_answer,
    },
)
