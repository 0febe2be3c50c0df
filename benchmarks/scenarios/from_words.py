"""Solvers that read the text of a case alone, and import nothing of the oracles, against the oracles.

    python -m benchmarks.scenarios.from_words --count 1000

Six families: the five whole jobs by brute force (`scenarios.jobs.from_words`), and the seats' and
ReconcileGPT's questions of the table by `evaluation.audit.text_solvers`. Every solver is tried with one rule
misread, too: its mismatches show that the rule would be missed.
"""

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

from evaluation.audit.text_solvers import list_parts_from_text, read_report_text
from roles.team import SPECIALISTS
from scenarios.base import Family, ToolCall
from scenarios.jobs import from_words
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import JOBS, TASK_FAMILIES

SEATS = "seats"
MISREAD = {**from_words.MISREAD, SEATS: "milestones, caps, standby branches and bundles are overlooked"}


def solve_seat(family: Family, scenario: Any, misread: bool = False) -> dict[str, Any]:
    """The best part, or ReconcileGPT's best plan, from the texts of a question of the table."""
    if family.role == "reconcile":
        text = read_report_text(scenario.brief)
        if text.best is None:
            return {"option": "none", "fund": [], "escalate": True, "conflicts": []}
        option, fund = text.best.option, [offer.label for offer in text.best.offers]
        conflicts = text.list_conflicts(option)
        return {"option": option, "fund": fund, "escalate": False, "conflicts": conflicts}
    call = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
    described = family.call_tool(scenario, call)
    if misread:
        described = re.sub(r"(Milestone|Cap):\n.*\n", "", described)
        described = re.sub(r" / .*", "", described)
        described = re.sub(r"costs \d+ less", "costs 0 less", described)
    amount, parts = list_parts_from_text(family.role, scenario.brief, described)
    kept = (part for part in parts if part.keeps_limit and part.cost <= amount)
    best = max(kept, key=lambda part: (part.worth, -part.cost), default=None)
    if best is None:  # as it was misread
        return {"part": [], "cost": 0, "worth": 0}
    return {"part": list(best.choice), "cost": best.cost, "worth": best.worth}


def list_mismatches(name: str, count: int, seed: int, misread: bool = False) -> Iterator[str]:
    """Keys of the first `count` validation cases, over all difficulties, that the solver gets wrong."""
    for index in range(count):
        seat = (*SPECIALISTS, "reconcile")[index % 5]
        family = FAMILIES[seat] if name == SEATS else TASK_FAMILIES[name]
        level = 1 + index % 10 if name != SEATS else 1 + index // 5 % 10
        scenario = family.generate("validation", seed, index, level)
        if name == SEATS:
            answer = solve_seat(family, scenario, misread)
        else:
            answer, _ = from_words.READERS[name](scenario.brief, misread)
        if family.verify(scenario, json.dumps(answer)).reward != 1.0:
            yield scenario.key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="cases per family")
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--misread", type=int, default=100, help="cases that are solved with a rule misread")
    options = parser.parse_args()
    for name in (*JOBS, SEATS):
        wrong = list(list_mismatches(name, options.count, options.seed))
        missed = list(list_mismatches(name, options.misread, options.seed, misread=True))
        print(f"{name}: {len(wrong)} of {options.count} differ {wrong[:3]}", flush=True)
        print(f"  misread ({MISREAD[name]}): {len(missed)} of {options.misread} differ", flush=True)


if __name__ == "__main__":
    main()
