"""Family coo: the plan (who does which work package, in which order) that finishes first.

Up to difficulty 3 the packages are numbered so that taking them in that order loses nothing; later the
order matters too. One assignment reaches the optimum; its packages may run in any order that keeps it.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

from roles.base import AnswerError, parse_answer
from roles.coo import CooAnswer
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
from scenarios.briefs.coo import write_brief
from scenarios.briefs.forms import choose_form, find_sector
from scenarios.briefs.sectors import SECTORS
from scenarios.headroom import blind_baseline
from scenarios.world.work import (
    PlanError,
    assignments,
    best_plans,
    build_work,
    fastest_plan,
    num_assignments,
    plan_finish,
    recheck_finish,
)

ORDER_FROM = 4  # difficulty from which package order may be worse than another order
MAX_ENUMERATED = 2000  # above it the reference is the mean of as many random assignments
LATEST = 99  # deadline, unless the optimum itself is later
MAX_TRIES = 1000


def _random_assignment(work: Mapping[str, Any], rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(list(package["hours"])) for name, package in work["packages"].items()}


def _blind_finish(work: Mapping[str, Any], rng: random.Random, difficulty: int) -> float:
    """Over all qualified assignments in package order, or over a sample where there are too many."""
    if num_assignments(work) <= MAX_ENUMERATED:
        finishes = [plan_finish(work, plan) for plan in assignments(work)]
    else:
        finishes = [plan_finish(work, _random_assignment(work, rng)) for _ in range(MAX_ENUMERATED)]
    total, parts = blind_baseline(finishes, difficulty, lower_is_better=True)
    return total / parts


def _unique_optimum(work: Mapping[str, Any], in_order: bool) -> dict[str, str] | None:
    """The one optimal assignment, in package order where that loses nothing; None if there are several."""
    finish, plans = best_plans(work, most=2)
    if len(plans) > 1:
        return None
    plan = {name: plans[0][name] for name in work["packages"]}
    if plan_finish(work, plan) == finish:
        return plan
    return None if in_order else plans[0]


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One scenario; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("coo", split, seed, index)
    sector = rng.choice(SECTORS)
    for _ in range(MAX_TRIES):
        work = build_work(rng, difficulty)
        plan = _unique_optimum(work, in_order=difficulty < ORDER_FROM)
        if plan is None:
            continue
        finish, reference = plan_finish(work, plan), _blind_finish(work, rng, difficulty)
        if reference > finish:
            break
    else:
        raise RuntimeError(f"no coo scenario in {MAX_TRIES} tries")
    slack = (2.2 - 0.15 * difficulty) * rng.uniform(0.8, 1.2)  # in head-rooms: tighter as difficulty rises
    deadline = finish + max(1, round((reference - finish) * slack))
    if finish < LATEST:
        deadline = min(deadline, LATEST)
    facts = {**work, "deadline": deadline}
    return Scenario(
        family="coo",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="coo",
        brief=write_brief(sector, facts, choose_form("coo", split, seed, index, difficulty)),
        facts=facts,
        truth={"assign": plan, "finish": finish, "reference": reference},
        optimal_tool_calls=1,
    )


def rephrase(scenario: Scenario, form: Form) -> str:
    """The brief in another surface form: same facts, same truth."""
    return write_brief(find_sector(scenario), scenario.facts, form)


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {"assign": dict(scenario.truth["assign"]), "finish": scenario.truth["finish"]}


def verify(scenario: Scenario, text: str) -> Verdict:
    """Reward 0.6 finish head-room + 0.3 optimal finish + 0.1 finish right; 0 for an illegal or late plan."""
    try:
        answer = parse_answer(text, CooAnswer)
        finish = plan_finish(scenario.facts, answer.assign)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    except PlanError as error:
        return rejected(error.kind, str(error))
    truth, deadline = scenario.truth, scenario.facts["deadline"]
    if finish > deadline:
        return rejected("infeasible", f"finish {finish} is after the deadline {deadline}")
    exact = finish == truth["finish"]
    right = answer.finish == finish
    graded = max(0.0, (truth["reference"] - finish) / (truth["reference"] - truth["finish"]))
    parts = {"graded": graded, "exact": float(exact), "figures": float(right)}
    return Verdict(
        reward=(6 * parts["graded"] + 3 * parts["exact"] + parts["figures"]) / 10,
        parts=parts,
        exact=exact,
        feasible=True,
        explanation=f"finish {finish} (optimum {truth['finish']}), stated {'right' if right else 'wrong'}",
        failure=None if exact else "suboptimal",
    )


def certify(scenario: Scenario) -> tuple[float, float]:
    """Finish of the oracle's plan, and the minimal finish by CP-SAT."""
    return float(plan_finish(scenario.facts, scenario.truth["assign"])), float(recheck_finish(scenario.facts))


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """check_assignment(assign).

    Raises:
        ToolError: unknown tool, other arguments than a complete legal plan.
    """
    if call.name != "check_assignment":
        raise ToolError("unknown tool; tools are check_assignment")
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != {"assign"}:
        raise ToolError("arguments must be exactly: assign")
    assign = call.arguments["assign"]
    if not isinstance(assign, Mapping) or not all(
        isinstance(name, str) and isinstance(person, str) for name, person in assign.items()
    ):
        raise ToolError("assign must map packages to people")
    try:
        finish = plan_finish(scenario.facts, assign)
    except PlanError as error:
        raise ToolError(str(error)) from None
    return f"finish {finish} {'on time' if finish <= scenario.facts['deadline'] else 'late'}"


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    """Either the optimal plan at once ("plan"), or each package's fastest person first ("fast", "better")."""
    best = dict(scenario.truth["assign"])
    fast = fastest_plan(scenario.facts)
    tries = [("plan", best)]
    if rng.random() < 0.5:
        tries = (
            [("fast", fast)]
            if list(fast.items()) == list(best.items())
            else [("fast", fast), ("better", best)]
        )
    steps = [
        Step(text=word, call=ToolCall(name="check_assignment", arguments={"assign": plan}))
        for word, plan in tries
    ]
    return (*steps, Step(text=f"best {scenario.truth['finish']}\n{json.dumps(solve(scenario))}"))


def _write_answer(scenario: Scenario, plan: Mapping[str, str]) -> str:
    return json.dumps({"assign": dict(plan), "finish": plan_finish(scenario.facts, plan)})


def random_answer(scenario: Scenario, rng: random.Random) -> str:
    """Any qualified person per package, in package order; any finish."""
    return json.dumps({"assign": _random_assignment(scenario.facts, rng), "finish": rng.randint(10, 99)})


def constant_answer(scenario: Scenario, _rng: random.Random) -> str:
    """People in turn (one fixed text per number of packages), a typical finish."""
    turns = {name: "BA"[i % 2] for i, name in enumerate(scenario.facts["packages"])}
    return json.dumps({"assign": turns, "finish": 32})


def greedy_answer(scenario: Scenario, _rng: random.Random) -> str:
    """Each package to its fastest person."""
    return _write_answer(scenario, fastest_plan(scenario.facts))


FAMILY = Family(
    name="coo",
    role="coo",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=call_tool,
    demonstrate=demonstrate,
    write_brief=rephrase,
    baselines={"random": random_answer, "constant": constant_answer, "greedy": greedy_answer},
)
