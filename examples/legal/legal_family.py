"""Legal's own family and its seat in the team's cases. It would stand in scenarios/legal.py."""

import json
import random
import statistics
from collections.abc import Mapping
from typing import Any

from legal_role import LegalAnswer

from roles.base import AnswerError, parse_answer
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
from scenarios.company.sectors import SECTORS


def build_contract(rng: random.Random, difficulty: int = 1) -> dict[str, int]:
    return {"fee": rng.randrange(10, 50), "liability": rng.randrange(10, 50)}


def contract_total(contract: Mapping[str, int]) -> int:
    return contract["fee"] + contract["liability"]


def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("legal", split, seed, index, difficulty)
    sector = rng.choice(list(SECTORS))
    names = "ABCDE"[: 3 + difficulty // 4]
    contracts: dict[str, dict[str, int]] = {}
    totals = [0, 0]
    while totals.count(min(totals)) > 1:  # until one contract is best
        contracts = {name: build_contract(rng) for name in names}
        totals = [contract_total(contract) for contract in contracts.values()]
    fees = " ".join(f"{name} {contract['fee']}" for name, contract in contracts.items())
    return Scenario(
        family="legal",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="legal",
        brief=f"{sector.capitalize()} case. Contracts {fees}.",
        facts={"contracts": contracts},
        truth={"totals": dict(zip(names, totals, strict=True))},
        optimal_tool_calls=len(names),
    )


def verify(scenario: Scenario, text: str) -> Verdict:
    try:
        answer = parse_answer(text, LegalAnswer)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    totals: dict[str, int] = scenario.truth["totals"]
    if answer.contract not in totals:
        return rejected("unknown_id", f"contracts are {' '.join(totals)}")
    total, best, mean = totals[answer.contract], min(totals.values()), statistics.fmean(totals.values())
    parts = {
        "graded": max(0.0, (mean - total) / (mean - best)),
        "exact": float(total == best),
        "figures": float(answer.total == total),
    }
    return Verdict(
        reward=(6 * parts["graded"] + 3 * parts["exact"] + parts["figures"]) / 10,
        parts=parts,
        exact=total == best,
        feasible=True,
        explanation=f"{answer.contract} at {total}, best possible {best}",
        failure=None if total == best else "suboptimal",
    )


def review(scenario: Scenario, call: ToolCall) -> str:
    contracts = scenario.facts["contracts"]
    name = call.arguments.get("contract") if isinstance(call.arguments, dict) else None
    if call.name != "review" or not isinstance(name, str) or name not in contracts or len(call.arguments) > 1:
        raise ToolError(f"review takes one contract out of {' '.join(contracts)}")
    return f"liability {contracts[name]['liability']}"


def answer_with(scenario: Scenario, name: str) -> dict[str, Any]:
    return {"contract": name, "total": scenario.truth["totals"][name]}


def solve(scenario: Scenario) -> dict[str, Any]:
    totals = scenario.truth["totals"]
    return answer_with(scenario, min(totals, key=totals.__getitem__))


def certify(scenario: Scenario) -> tuple[float, float]:
    """The oracle's total, and the first of all totals sorted."""
    ordered = sorted(sum(contract.values()) for contract in scenario.facts["contracts"].values())
    return float(solve(scenario)["total"]), float(ordered[0])


def demonstrate(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    steps, said = [], ""
    for name, total in scenario.truth["totals"].items():
        steps.append(Step(text=said, call=ToolCall(name="review", arguments={"contract": name})))
        said = f"{name} {total}"
    return (*steps, Step(text=f"{said}\n{json.dumps(solve(scenario))}"))


def answer_lowest_fee(scenario: Scenario, rng: random.Random) -> str:
    contracts = scenario.facts["contracts"]
    return json.dumps(answer_with(scenario, min(contracts, key=lambda name: contracts[name]["fee"])))


def answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    return json.dumps(
        {"contract": rng.choice(list(scenario.facts["contracts"])), "total": rng.randint(20, 99)}
    )


FAMILY = Family(
    name="legal",
    role="legal",
    generate=generate,
    verify=verify,
    solve=solve,
    certify=certify,
    call_tool=review,
    demonstrate=demonstrate,
    baselines={
        "random": answer_randomly,
        "constant": lambda scenario, rng: '{"contract": "A", "total": 60}',
        "greedy": answer_lowest_fee,
    },
)
