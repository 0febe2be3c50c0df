"""The whole jobs by level: rewards of simple players, and answers that change when a rule is left out.

    python -m benchmarks.scenarios.whole_jobs

Markdown tables on test cases of seed 0, as docs/explanation/whole-jobs.md shows them.
"""

import argparse
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from scenarios.base import Scenario
from scenarios.jobs import allocation, architecture, bill, threats, tradeoff
from scenarios.jobs.job import NoCaseError
from scenarios.tasks.registry import JOBS, TASK_FAMILIES

Facts = dict[str, Any]
LEVELS = range(1, 11)
PLAYERS = ("random", "constant", "greedy")


def score(name: str, baseline: str, cases: Sequence[Scenario], seed: int = 0) -> list[float]:
    """Rewards of a baseline of the family on the cases."""
    family = TASK_FAMILIES[name]
    play = family.baselines[baseline]
    return [family.verify(case, play(case, random.Random(f"{seed}/{case.index}"))).reward for case in cases]


def _edit(change: Callable[[Facts], None]) -> Callable[[Facts], Facts]:
    def edited(facts: Facts) -> Facts:
        changed = copy.deepcopy(facts)
        change(changed)
        return changed

    return edited


def _each(group: str, change: Callable[[Facts], Any]) -> Callable[[Facts], Facts]:
    def change_all(facts: Facts) -> None:
        for entry in facts[group] if isinstance(facts[group], list) else facts[group].values():
            change(entry)

    return _edit(change_all)


def best_architecture(facts: Facts) -> Any:
    for cost, letter, counts in architecture.list_by_cost(facts):
        if cost > facts["budget"]:
            return None
        if architecture.find_availability(facts, letter, counts) >= facts["target"]:
            return letter, counts
    return None


def best_allocation(facts: Facts) -> Any:
    try:
        tried, best = allocation.search(facts, 400)
    except NoCaseError:
        return "several"
    return None if best is None else (tried[best][1], tried[best][2])


def best_threats(facts: Facts) -> Any:
    risks = threats.find_risks(facts)
    found = threats.rank_kept(facts, threats.list_affordable(facts, risks))
    return risks, found[0][2] if found else None


def best_bill(facts: Facts) -> Any:
    try:
        _, (cost, choice) = bill.search(facts, 3000)
    except NoCaseError:
        return "several"
    return choice if cost <= facts["budget"] else None


def best_tradeoff(facts: Facts) -> Any:
    outcomes = tradeoff.list_open(facts)
    return tradeoff.rank(facts, outcomes)[0][1] if outcomes else None


def _drop_failover(facts: Facts) -> None:
    for design in facts["designs"].values():
        design["steps"] = [step[:1] for step in design["steps"]]


# (job, level from which the rule is there, the rule, the case without it)
RULES = [
    ("architecture", 3, "load", _each("loads", lambda load: load.update(requests=1))),
    ("architecture", 3, "latency", _edit(lambda facts: facts.update(latency=10**6))),
    ("architecture", 3, "budget", _edit(lambda facts: facts.update(budget=10**6))),
    ("architecture", 6, "failover", _edit(_drop_failover)),
    ("architecture", 8, "cache", _each("loads", lambda load: load.update(cached=0))),
    ("allocation", 3, "deadlines", _each("packages", lambda package: package.pop("deadline", None))),
    ("allocation", 3, "order", _each("packages", lambda package: package.update(after=[]))),
    ("allocation", 3, "free from", _each("people", lambda person: person.update({"from": 1}))),
    ("allocation", 6, "absence", _each("people", lambda person: person.pop("absent", None))),
    ("allocation", 8, "sites", _each("packages", lambda package: package.pop("site", None))),
    ("threats", 3, "appetite", _edit(lambda facts: facts.update(appetite=12))),
    ("threats", 3, "budget", _edit(lambda facts: facts.update(budget=10**6))),
    ("threats", 3, "incidents", _each("assets", lambda asset: asset.update(incidents=0))),
    ("threats", 7, "covering", _edit(lambda facts: facts.pop("covers", None))),
    ("threats", 8, "spreading", _each("threats", lambda threat: threat.pop("spreads", None))),
    ("bill", 3, "floors", _each("services", lambda service: service.update(floor=0))),
    ("bill", 3, "average", _edit(lambda facts: facts.update(average=0))),
    ("bill", 4, "commitments", _each("services", lambda service: service.pop("commit", None))),
    ("bill", 4, "fees", _each("services", lambda service: service.pop("present", None))),
    ("bill", 6, "rebates", _edit(lambda facts: facts.pop("rebates", None))),
    ("bill", 9, "steps", _each("services", lambda service: service.pop("step", None))),
    ("tradeoff", 4, "vetoes", _each("seats", lambda seat: seat.pop("vetoes", None))),
    ("tradeoff", 4, "validity", _each("seats", lambda seat: seat.update(limit=-1) if "limit" in seat else 0)),
    ("tradeoff", 4, "walk-away", _each("seats", lambda seat: seat.update(leaves_below=0))),
    ("tradeoff", 6, "weights", _each("seats", lambda seat: seat.pop("weight", None))),
    ("tradeoff", 6, "budget", _edit(lambda facts: facts.update(budget=10**6))),
]
SOLVERS = {
    "architecture": best_architecture,
    "allocation": best_allocation,
    "threats": best_threats,
    "bill": best_bill,
    "tradeoff": best_tradeoff,
}


def count_changed(name: str, leave_out: Callable[[Facts], Facts], cases: Sequence[Scenario]) -> int:
    """Cases whose best answer is another one without the rule."""
    solver = SOLVERS[name]
    return sum(solver(leave_out(dict(case.facts))) != solver(dict(case.facts)) for case in cases)


def _draw(name: str, level: int, count: int) -> list[Scenario]:
    return [TASK_FAMILIES[name].generate("test", 0, index, level) for index in range(count)]


def render_players(count: int) -> Iterator[str]:
    """Rows of a table: mean reward of every player by level."""
    yield f"| family | player | {' | '.join(map(str, LEVELS))} |"
    yield "|---|---" + "|---" * len(LEVELS) + "|"
    for name in JOBS:
        cases = [_draw(name, level, count) for level in LEVELS]
        for player in PLAYERS:
            means = [f"{fmean(score(name, player, of_level)):.2f}" for of_level in cases]
            yield f"| `{name}` | {player} | {' | '.join(means)} |"


def render_rules(count: int) -> Iterator[str]:
    """Rows of a table: share of the cases in which a rule that is left out changes the best answer."""
    yield "| family | rule | level | share |"
    yield "|---|---|---|---|"
    for name, level, rule, leave_out in RULES:
        share = count_changed(name, leave_out, _draw(name, level, count)) / count
        yield f"| `{name}` | {rule} | {level} | {share:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole jobs by level and by rule.")
    parser.add_argument("--count", type=int, default=150, help="cases per level")
    arguments = parser.parse_args()
    print("\n".join([*render_players(arguments.count), "", *render_rules(arguments.count)]))


if __name__ == "__main__":
    main()
