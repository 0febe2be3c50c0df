"""Cost family: the cheapest plan of tiers that keeps a quality floor.

A volume discount comes in at difficulty 4, a budget at 5. Oracle by enumeration; certified by CP-SAT.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.cost import CostAnswer
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
from scenarios.briefs.cost import write_brief
from scenarios.briefs.forms import choose_form, find_sector
from scenarios.briefs.sectors import SECTORS
from scenarios.headroom import blind_baseline
from scenarios.world.prices import NUM_TIERS, build_prices, plan_at, price_all_plans, price_plan

_MAX_DRAWS = 500
ONE_UPGRADE_UP_TO = 2  # difficulty up to which the best plan upgrades a single item


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One price list whose optimum is unique, by 3 k$ at difficulty 1 and 2 k$ at difficulty 2."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("cost", split, seed, index)
    sector = rng.choice(SECTORS)
    margin = {1: 3, 2: 2}.get(difficulty, 1)
    for _ in range(_MAX_DRAWS):
        facts = build_prices(rng, difficulty) | {"budget": None}
        totals, qualities = price_all_plans(facts)
        feasible = [total for total, have in zip(totals, qualities, strict=True) if have >= facts["floor"]]
        best = min(feasible)
        if difficulty >= 5:
            mean = sum(feasible) / len(feasible)
            facts["budget"] = best + int((mean - best) * rng.uniform(0.3, 1.4 - 0.1 * difficulty))
            feasible = [total for total in feasible if total <= facts["budget"]]
        if len(feasible) == 1 or sum(total < best + margin for total in feasible) != 1:
            continue
        optimum = next(
            place
            for place, (total, have) in enumerate(zip(totals, qualities, strict=True))
            if total == best and have >= facts["floor"]
        )
        plan = plan_at(optimum, len(facts["items"]))
        total, parts = blind_baseline(feasible, difficulty, lower_is_better=True)
        if difficulty <= ONE_UPGRADE_UP_TO and sum(tier > 1 for tier in plan) != 1:
            continue
        truth = {
            "tiers": _as_plan(facts, plan),
            "total": best,
            "reference": total / parts,  # total of a blind choice among the feasible plans
        }
        return Scenario(
            family="cost",
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            role="cost",
            brief=write_brief(sector, facts, choose_form("cost", split, seed, index, difficulty)),
            facts=facts,
            truth=truth,
            optimal_tool_calls=1,
        )
    raise RuntimeError(f"no cost scenario in {_MAX_DRAWS} draws at {split}/{seed}/{index}/{difficulty}")


def rephrase(scenario: Scenario, form: Form) -> str:
    """The brief in another surface form: same facts, same truth."""
    return write_brief(find_sector(scenario), scenario.facts, form)


def _as_plan(facts: Mapping[str, Any], tiers: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(facts["items"], tiers, strict=True))


def _read_plan(facts: Mapping[str, Any], plan: Any) -> list[int]:
    """The tiers in the order of the items.

    Raises:
        ToolError: `plan` is not exactly one tier 1 to 3 for every item.
    """
    items = list(facts["items"])
    if not isinstance(plan, Mapping) or set(plan) != set(items):
        raise ToolError(f"tiers must name each of {' '.join(items)} once")
    tiers = [plan[item] for item in items]
    if any(type(tier) is not int or not 1 <= tier <= NUM_TIERS for tier in tiers):
        raise ToolError(f"each tier must be an integer from 1 to {NUM_TIERS}")
    return tiers


def _judge(facts: Mapping[str, Any], tiers: list[int]) -> tuple[int, int, str]:
    """(total, quality, "ok" or which constraint fails)."""
    total, quality = price_plan(facts, tiers)
    if quality < facts["floor"]:
        return total, quality, f"short {facts['floor'] - quality}"
    if facts["budget"] is not None and total > facts["budget"]:
        return total, quality, "over budget"
    return total, quality, "ok"


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """One line: `total 61 quality 15 ok`, `... short 2` or `... over budget`.

    Raises:
        ToolError: unknown tool, wrong arguments.
    """
    if call.name != "price":
        raise ToolError("unknown tool; use price")
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != {"tiers"}:
        raise ToolError("price takes one argument: tiers")
    total, quality, judgement = _judge(scenario.facts, _read_plan(scenario.facts, call.arguments["tiers"]))
    return f"total {total} quality {quality} {judgement}"


def verify(scenario: Scenario, text: str) -> Verdict:
    """0.6 graded (head-room over the mean feasible total) + 0.3 exact + 0.1 right total; infeasible: 0."""
    try:
        answer = parse_answer(text, CostAnswer)
        tiers = _read_plan(scenario.facts, answer.tiers)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    except ToolError as error:
        return rejected("unknown_id", str(error))
    total, quality, judgement = _judge(scenario.facts, tiers)
    if judgement != "ok":
        return rejected("infeasible", f"total {total} quality {quality}: {judgement}")
    best, reference = scenario.truth["total"], scenario.truth["reference"]
    exact = total == best
    graded = max(0.0, (reference - total) / (reference - best))
    figures = float(answer.total == total)
    explanation = f"optimal: total {total}" if exact else f"total {total}, best possible {best}"
    return Verdict(
        reward=(6 * graded + 3 * exact + figures) / 10,
        parts={"graded": graded, "exact": float(exact), "figures": figures},
        exact=exact,
        feasible=True,
        explanation=explanation if figures else f"{explanation}; the stated total is wrong",
        failure=None if exact else "suboptimal",
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The one optimal plan and its total."""
    return {"tiers": dict(scenario.truth["tiers"]), "total": scenario.truth["total"]}


def certify(scenario: Scenario) -> tuple[float, float]:
    """The optimum by enumeration and by CP-SAT (one Boolean per item and tier, discounts as conditionals)."""
    from ortools.sat.python import cp_model

    facts = scenario.facts
    model = cp_model.CpModel()
    takes = {
        (item, tier): model.new_bool_var(f"{item}_{tier}")
        for item in facts["items"]
        for tier in range(NUM_TIERS)
    }
    total: Any = 0
    quality: Any = 0
    for item, tiers in facts["items"].items():
        model.add_exactly_one(takes[item, tier] for tier in range(NUM_TIERS))
        total += sum(takes[item, tier] * price for tier, (price, _) in enumerate(tiers))
        quality += sum(takes[item, tier] * points for tier, (_, points) in enumerate(tiers))
    if facts["discount"]:
        least, off = facts["discount"]["count"], facts["discount"]["off"]
        for tier in range(NUM_TIERS):
            count = sum(takes[item, tier] for item in facts["items"])
            granted = model.new_bool_var(f"granted_{tier}")
            reduction = model.new_int_var(0, off * len(facts["items"]), f"reduction_{tier}")
            model.add(count >= least).only_enforce_if(granted)
            model.add(count < least).only_enforce_if(~granted)
            model.add(reduction == off * count).only_enforce_if(granted)
            model.add(reduction == 0).only_enforce_if(~granted)
            total -= reduction
    model.add(quality >= facts["floor"])
    if facts["budget"] is not None:
        model.add(total <= facts["budget"])
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise RuntimeError(f"CP-SAT did not solve {scenario.key}")
    return float(scenario.truth["total"]), float(round(solver.objective_value))


def _missing_quality(facts: Mapping[str, Any]) -> int:
    """How far the plan of cheapest tiers is under the floor; at least 1."""
    floor: int = facts["floor"]
    lowest: int = sum(options[0][1] for options in facts["items"].values())
    return floor - lowest


def repair_greedily(facts: Mapping[str, Any]) -> dict[str, int]:
    """Cheapest tiers, then the upgrade by one tier with the most quality per price until the floor holds."""
    tiers = dict.fromkeys(facts["items"], 1)
    missing = _missing_quality(facts)
    while missing > 0:
        upgrades = []
        for place, (item, options) in enumerate(facts["items"].items()):
            if tiers[item] < NUM_TIERS:
                (price, points), (dearer, better) = options[tiers[item] - 1 : tiers[item] + 1]
                upgrades.append(((better - points) / (dearer - price), -place, item, better - points))
        _, _, item, gain = max(upgrades)
        tiers[item] += 1
        missing -= gain
    return tiers


def reach_alone(facts: Mapping[str, Any]) -> str:
    """Per item the lowest tier that makes up the missing quality by itself, and its surcharge; or "no".

    Example: "S1 3 19 S2 no S3 2 8"
    """
    missing = _missing_quality(facts)
    notes = []
    for item, ((price, points), *dearer) in facts["items"].items():
        enough = (
            f"{tier} {more - price}"
            for tier, (more, better) in enumerate(dearer, start=2)
            if better - points >= missing
        )
        notes.append(f"{item} {next(enough, 'no')}")
    return " ".join(notes)


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Weigh each item's upgrade and price the optimum; half of the experts price the basic plan first.

    The former reckon the missing quality themselves, the latter read it off the tool.
    """
    best = solve(scenario)
    weighed = f"need {_missing_quality(scenario.facts)} {reach_alone(scenario.facts)}"
    steps = [Step(text=weighed, call=_price(best["tiers"]))]
    if rng.random() < 0.5:
        steps.insert(0, Step(text="basic", call=_price(dict.fromkeys(best["tiers"], 1))))
    return *steps, Step(text=f"best {best['total']}\n{json.dumps(best)}")


def _price(plan: dict[str, int]) -> ToolCall:
    return ToolCall(name="price", arguments={"tiers": plan})


def _answer(facts: Mapping[str, Any], plan: dict[str, int]) -> str:
    return json.dumps({"tiers": plan, "total": price_plan(facts, list(plan.values()))[0]})


def _answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    """A random plan with its right total."""
    return _answer(scenario.facts, {item: rng.randint(1, NUM_TIERS) for item in scenario.facts["items"]})


def _answer_constantly(scenario: Scenario, rng: random.Random) -> str:
    """About the best plan that never changes: one dear item, or all in tier 2 once there is a discount."""
    first, *rest = scenario.facts["items"]
    tiers = {first: 3} | dict.fromkeys(rest, 1)
    if scenario.difficulty >= 4:
        tiers = dict.fromkeys(tiers, 2)
    return json.dumps({"tiers": tiers, "total": 50})


def _answer_greedily(scenario: Scenario, rng: random.Random) -> str:
    return _answer(scenario.facts, repair_greedily(scenario.facts))


FAMILY = Family(
    name="cost",
    role="cost",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    write_brief=rephrase,
    baselines={"random": _answer_randomly, "constant": _answer_constantly, "greedy": _answer_greedily},
)
