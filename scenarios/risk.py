"""Risk family: the controls within a budget that leave the least loss, and the two assets most exposed.

Oracle by enumeration of control sets over exact propagation (`scenarios.world.threats`); certified by
inclusion-exclusion over networkx paths and CP-SAT.
"""

import json
import random
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.risk import RiskAnswer
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
from scenarios.briefs.risk import write_brief
from scenarios.briefs.sectors import SECTORS
from scenarios.headroom import blind_baseline
from scenarios.world.threats import (
    build_threats,
    cost_step,
    exposures,
    loss_table,
    savings,
    total_cost,
    total_exposure,
)

MAX_SCORE = 12
# share of cases in which buying controls by saving per cost misses the best set, because savings overlap or
# money is left; 0 (difficulty 1-3): as it comes
MISLED_SHARE = (0, 0, 0, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55)
_MAX_DRAWS = 500


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One threat graph and a budget whose best control set is unique, by a margin at difficulty 1 and 2."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("risk", split, seed, index)
    sector = rng.choice(SECTORS)
    margin = {1: 6, 2: 3}.get(difficulty, 1)
    share = MISLED_SHARE[difficulty - 1]
    misleads = rng.random() < share if share else None
    for _ in range(_MAX_DRAWS):
        facts = build_threats(rng, difficulty)
        costs = [control["cost"] for control in facts["controls"].values()]
        facts["budget"] = rng.randrange(min(costs), min(sum(costs), 100), cost_step(difficulty))
        facts["score_step"] = score_step(difficulty)
        sets = affordable_sets(facts)
        residuals = [total_exposure(facts, controls) for controls in sets]
        best = min(residuals)
        if len(sets) < 3 or sum(residual < best + margin for residual in residuals) != 1:
            continue
        if difficulty <= 3 and not 10 <= best <= 99:
            continue
        if misleads is not None and misleads != (total_exposure(facts, buy_greedily(facts)) > best):
            continue
        before = exposures(facts)
        total, parts = blind_baseline(residuals, difficulty, lower_is_better=True)
        truth = {
            "top_risks": sorted(before, key=lambda asset: -before[asset])[:2],
            "controls": list(sets[residuals.index(best)]),
            "residual": best,
            "score": score_loss(facts, best),
            "reference": total / parts,  # residual of a blind choice among the affordable sets
        }
        return Scenario(
            family="risk",
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            role="risk",
            brief=write_brief(sector, facts, choose_form("risk", split, seed, index, difficulty)),
            facts=facts,
            truth=truth,
            optimal_tool_calls=3,
        )
    raise RuntimeError(f"no risk scenario in {_MAX_DRAWS} draws at {split}/{seed}/{index}/{difficulty}")


def rephrase(scenario: Scenario, form: Form) -> str:
    """The brief in another surface form: same facts, same truth."""
    return write_brief(find_sector(scenario), scenario.facts, form)


def affordable_sets(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Every set of controls within the budget, the empty one first."""
    names = list(facts["controls"])
    return [
        controls
        for size in range(len(names) + 1)
        for controls in combinations(names, size)
        if total_cost(facts, controls) <= facts["budget"]
    ]


def score_step(difficulty: int) -> int:
    """Loss per point of the risk score: larger companies carry more loss for the same score."""
    return 8 if difficulty <= 3 else 12 if difficulty <= 5 else 18


def score_loss(facts: Mapping[str, Any], residual: int) -> int:
    """The risk score, 0 to 12, of a residual loss."""
    return min(MAX_SCORE, residual // int(facts["score_step"]))


def _read_controls(facts: Mapping[str, Any], controls: Any) -> list[str]:
    """The controls as given.

    Raises:
        ToolError: not a list of different known controls.
    """
    known = list(facts["controls"])
    if not isinstance(controls, list) or any(
        not isinstance(name, str) or name not in known for name in controls
    ):
        raise ToolError(f"controls must be a list out of {' '.join(known)}")
    if len(set(controls)) < len(controls):
        raise ToolError("each control counts once; the list repeats one")
    return controls


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """One line: `A 45 B 12 C 71`, `K1 23 K2 31 K3 10` or `residual 34 cost 40 score 4`.

    Raises:
        ToolError: unknown tool, wrong arguments.
    """
    facts = scenario.facts
    if call.name not in ("exposures", "savings", "residual"):
        raise ToolError("unknown tool; use exposures, savings or residual")
    expected = {"controls"} if call.name == "residual" else set()
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != expected:
        raise ToolError(f"{call.name} takes {'one argument: controls' if expected else 'no arguments'}")
    if call.name == "exposures":
        return " ".join(f"{asset} {loss}" for asset, loss in exposures(facts).items())
    if call.name == "savings":
        return " ".join(f"{name} {saving}" for name, saving in savings(facts).items())
    controls = _read_controls(facts, call.arguments["controls"])
    residual, cost = total_exposure(facts, controls), total_cost(facts, controls)
    over = " over budget" if cost > facts["budget"] else ""
    return f"residual {residual} cost {cost} score {score_loss(facts, residual)}{over}"


def verify(scenario: Scenario, text: str) -> Verdict:
    """0.6 graded + 0.3 exact + 0.1 figures; a set over budget, an unknown or a repeated name earns 0.

    graded = 0.7 * loss avoided + 0.3 * top risks found, each as head-room over a blind choice: over the mean
    affordable set, and over the F1 that two assets picked at random have.
    """
    facts, truth = scenario.facts, scenario.truth
    try:
        answer = parse_answer(text, RiskAnswer)
        controls = _read_controls(facts, answer.controls)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    except ToolError as error:
        return rejected("unknown_id", str(error))
    named = set(answer.top_risks)
    if len(named) < 2 or not named <= facts["impacts"].keys():
        return rejected("unknown_id", f"top_risks must be two of {' '.join(facts['impacts'])}")
    cost, residual = total_cost(facts, controls), total_exposure(facts, controls)
    if cost > facts["budget"]:
        return rejected("infeasible", f"cost {cost} over the budget {facts['budget']}")

    best, reference = truth["residual"], truth["reference"]
    avoided = max(0.0, (reference - residual) / (reference - best))
    blind = 2 / len(facts["impacts"])
    found = max(0.0, (len(named & set(truth["top_risks"])) / 2 - blind) / (1 - blind))
    graded = (7 * avoided + 3 * found) / 10
    exact = residual == best and answer.top_risks == truth["top_risks"]
    score = score_loss(facts, residual)
    figures = ((answer.residual == residual) + (answer.score == score)) / 2
    explanation = f"residual {residual} score {score} cost {cost}, best possible residual {best}"
    if answer.top_risks != truth["top_risks"]:
        explanation += f"; the top risks are {' '.join(truth['top_risks'])}"
    return Verdict(
        reward=(6 * graded + 3 * exact + figures) / 10,
        parts={"graded": graded, "exact": float(exact), "figures": figures},
        exact=exact,
        feasible=True,
        explanation=explanation if figures == 1 else f"{explanation}; a stated figure is wrong",
        failure=None if exact else "suboptimal",
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The unique best controls, with the top risks, the loss left and its score."""
    truth = scenario.truth
    return {
        "top_risks": list(truth["top_risks"]),
        "controls": list(truth["controls"]),
        "residual": truth["residual"],
        "score": truth["score"],
    }


def certify(scenario: Scenario) -> tuple[float, float]:
    """The least residual by enumeration, and by CP-SAT over losses computed from networkx paths."""
    from ortools.sat.python import cp_model

    facts = scenario.facts
    model = cp_model.CpModel()
    buys = {name: model.new_bool_var(name) for name in facts["controls"]}
    losses: list[Any] = []
    for asset, impact in facts["impacts"].items():
        relevant, rows = loss_table(facts, asset)
        loss = model.new_int_var(0, impact, asset)
        model.add_allowed_assignments([*(buys[name] for name in relevant), loss], rows)
        losses.append(loss)
    cost: Any = sum(buys[name] * control["cost"] for name, control in facts["controls"].items())
    model.add(cost <= facts["budget"])
    model.minimize(sum(losses))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise RuntimeError(f"CP-SAT did not solve {scenario.key}")
    return float(scenario.truth["residual"]), float(round(solver.objective_value))


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Look at the exposures, then at the savings, price the best set, answer. One style."""
    best = solve(scenario)
    return (
        Step(text="", call=ToolCall(name="exposures", arguments={})),
        Step(text=f"top {' '.join(best['top_risks'])}", call=ToolCall(name="savings", arguments={})),
        Step(
            text=f"take {' '.join(best['controls'])}",
            call=ToolCall(name="residual", arguments={"controls": best["controls"]}),
        ),
        Step(text=f"best {best['residual']}\n{json.dumps(best)}"),
    )


def buy_greedily(facts: Mapping[str, Any]) -> list[str]:
    """Controls by saving (alone) per cost, each bought while the budget lasts."""
    left, bought = facts["budget"], []
    saved = savings(facts)
    for name in sorted(saved, key=lambda name: -saved[name] / facts["controls"][name]["cost"]):
        if facts["controls"][name]["cost"] <= left:
            left -= facts["controls"][name]["cost"]
            bought.append(name)
    return sorted(bought)


def _answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    """A random affordable set, two random assets, guessed figures: what the brief alone allows."""
    residual = rng.randint(10, 99)
    return json.dumps(
        {
            "top_risks": rng.sample(list(scenario.facts["impacts"]), 2),
            "controls": list(rng.choice(affordable_sets(scenario.facts))),
            "residual": residual,
            "score": score_loss(scenario.facts, residual),
        }
    )


def _answer_constantly(scenario: Scenario, rng: random.Random) -> str:
    """Two of everything: about the best answer that is always the same."""
    return json.dumps({"top_risks": ["A", "B"], "controls": ["K1", "K2"], "residual": 50, "score": 6})


def _answer_greedily(scenario: Scenario, rng: random.Random) -> str:
    """Right top risks and figures; controls by saving per cost."""
    controls = buy_greedily(scenario.facts)
    residual = total_exposure(scenario.facts, controls)
    score = score_loss(scenario.facts, residual)
    top_risks = scenario.truth["top_risks"]
    return json.dumps({"top_risks": top_risks, "controls": controls, "residual": residual, "score": score})


FAMILY = Family(
    name="risk",
    role="risk",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    write_brief=rephrase,
    baselines={"random": _answer_randomly, "constant": _answer_constantly, "greedy": _answer_greedily},
)
