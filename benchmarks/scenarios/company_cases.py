"""Company cases by difficulty: simple policies, hidden profiles, seats that decide, exactness, speed.

    python -m benchmarks.scenarios.company_cases --count 200
    python -m benchmarks.scenarios.company_cases --exact 2000   # second methods; of texts: from_words

Times are CPU time of one process.
"""

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from statistics import fmean

from scenarios.company.case import generate_case
from scenarios.company.coordination import is_hidden_profile, reckon_worths
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import list_efficient, solve_options
from scenarios.company.optimum import (
    blind_worth,
    find_optimum,
    plan_parts,
    plan_worth,
    recheck_optimum,
    scale_worth,
)
from scenarios.company.records import CompanyCase, Part, Plan
from scenarios.company.setting import draw_setting, draw_structure
from scenarios.registry import FAMILIES

LEVELS = range(1, 11)


def seat_decides(case: CompanyCase, seat: str) -> bool:
    """Return whether another option looks best where this seat's parts and limit are unknown."""
    others = {name: own for name, own in case.parts.items() if name != seat}
    best = solve_options(others, list(case.options), case.budget)
    totals = {letter: case.options[letter].base + found.worth for letter, found in best.items()}
    optimum = find_optimum(case)
    return optimum is not None and max(totals, key=totals.__getitem__) != optimum.plan.option


def worth_without(case: CompanyCase, seat: str) -> int:
    """The greatest worth that is reachable when this seat has nothing funded; 0 where no option is open."""
    parts = {name: own for name, own in case.parts.items() if name != seat}
    parts[seat] = {letter: own[:1] for letter, own in case.parts[seat].items()}
    best = solve_options(parts, list(case.options), case.budget)
    return max((case.options[letter].base + found.worth for letter, found in best.items()), default=0)


def plan_value(case: CompanyCase, plan: Plan) -> float:
    """V in [0, 1]: 0 at a blind plan and below, 1 at the optimum, 0 over the budget or with a broken limit.

    Raises:
        ValueError: no option can be run within the budget.
    """
    optimum, blind = find_optimum(case), blind_worth(case)
    assert optimum is not None
    parts = plan_parts(case, plan)
    if not all(part.keeps_limit for part in parts) or sum(part.cost for part in parts) > case.budget:
        return 0.0
    return scale_worth(plan_worth(case, plan), blind, optimum.worth)


def fund_quarters(case: CompanyCase, option: str) -> Plan:
    """Every seat its best part within a quarter of the budget, or the cheapest that keeps its limit."""
    funded = {}
    for seat, own in case.parts.items():
        efficient = list_efficient(own[option])
        within = [part for part in efficient if part.cost <= case.budget // len(case.parts)]
        if efficient:
            funded[seat] = (within[-1] if within else efficient[0]).choice
    return Plan(option=option, funded=funded)


def fund_by_return(case: CompanyCase, option: str) -> tuple[int, Plan] | None:
    """Parts that limits need, then the step of the greatest return that the money still allows; "
    "None: too dear."""
    taken: dict[str, Part] = {}
    for seat, own in case.parts.items():
        efficient = list_efficient(own[option])
        if not efficient:
            return None
        taken[seat] = efficient[0]
    if sum(part.cost for part in taken.values()) > case.budget:
        return None
    while True:
        left = case.budget - sum(part.cost for part in taken.values())
        steps = [
            (Fraction(part.worth - taken[seat].worth, part.cost - taken[seat].cost), seat, part)
            for seat, own in case.parts.items()
            for part in list_efficient(own[option])
            if taken[seat].cost < part.cost <= taken[seat].cost + left
        ]
        if not steps:
            break
        _, seat, part = max(steps, key=lambda step: step[0])
        taken[seat] = part
    worth = case.options[option].base + sum(part.worth for part in taken.values())
    return worth, Plan(option=option, funded={seat: part.choice for seat, part in taken.items()})


def play_favourite(case: CompanyCase) -> Plan:
    """The option of the greatest base value, quarters for all."""
    return fund_quarters(case, max(case.options, key=lambda letter: case.options[letter].base))


def play_underdog(case: CompanyCase) -> Plan:
    """The option of the least base value, quarters for all."""
    return fund_quarters(case, min(case.options, key=lambda letter: case.options[letter].base))


def play_seat(seat: str) -> Callable[[CompanyCase], Plan]:
    """The option that the bases and this seat's parts within a quarter favour, quarters for all."""

    def play(case: CompanyCase) -> Plan:
        worths = reckon_worths(case.parts[seat], case.budget // len(case.parts))
        totals = {letter: case.options[letter].base + worth for letter, worth in worths.items()}
        return fund_quarters(case, max(totals, key=totals.__getitem__, default=next(iter(case.options))))

    return play


def play_optimal_option(case: CompanyCase) -> Plan:
    """The optimal option, quarters for all: what is left to gain by sharing the money well."""
    optimum = find_optimum(case)
    assert optimum is not None
    return fund_quarters(case, optimum.plan.option)


def play_by_return(case: CompanyCase) -> Plan:
    """Everything known, money spent greedily by return on every option, the best of these plans."""
    plans = [plan for letter in case.options if (plan := fund_by_return(case, letter))]
    return max(plans, key=lambda plan: plan[0])[1]


POLICIES: dict[str, Callable[[CompanyCase], Plan]] = {
    "favourite": play_favourite,
    "underdog": play_underdog,
    **{f"{seat} picks": play_seat(seat) for seat in DOMAINS},
    "optimal option": play_optimal_option,
    "by return": play_by_return,
}


def measure_level(difficulty: int, count: int) -> dict[str, float]:
    """One row of the table."""
    start = time.process_time()
    cases = [generate_case("test", 0, index, difficulty) for index in range(count)]
    optima = [find_optimum(case) for case in cases]
    row = {"ms": (time.process_time() - start) / count * 1000}
    row |= {name: fmean(plan_value(case, play(case)) for case in cases) for name, play in POLICIES.items()}
    blind = [
        fmean(plan_value(case, fund_quarters(case, letter)) for letter in case.options) for case in cases
    ]
    row["random option"] = fmean(blind)
    row["hidden"] = fmean(map(is_hidden_profile, cases))
    for seat in DOMAINS:
        row[f"{seat} decides"] = fmean(seat_decides(case, seat) for case in cases)
        lost = [
            float((optimum.worth - max(zero, Fraction(worth_without(case, seat)))) / (optimum.worth - zero))
            for case, optimum in zip(cases, optima, strict=True)
            if optimum is not None
            for zero in (blind_worth(case),)
        ]
        row[f"V lost without {seat}"] = fmean(lost)
    return row


def count_mismatches(count: int) -> dict[str, int]:
    """Cases and parts on which two methods differ, `count` of each kind over all difficulties."""
    wrong = dict.fromkeys(("optimum", *(f"{seat} parts" for seat in DOMAINS), *FAMILIES), 0)
    for index in range(count):
        difficulty = 1 + index % 10
        case = generate_case("train", 1, index, difficulty)
        optimum = find_optimum(case)
        wrong["optimum"] += optimum is None or recheck_optimum(case) != optimum.worth
        for seat, domain in DOMAINS.items():
            structure, parts = draw_structure(draw_setting("train", 1, index, difficulty), seat, "A")
            for part in parts[:: max(1, len(parts) // 6)]:
                again = domain.measure_again(structure, part.choice)
                wrong[f"{seat} parts"] += again != (part.cost, dict(part.figures))
            family = FAMILIES[seat]
            scenario = family.generate("train", 1, index, difficulty)
            value, second = family.certify(scenario)
            wrong[seat] += value != second
        family = FAMILIES["reconcile"]
        scenario = family.generate("train", 1, index, difficulty)
        value, second = family.certify(scenario)
        wrong["reconcile"] += value != second
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="cases per difficulty of the table")
    parser.add_argument("--exact", type=int, default=0, help="compare methods on this many cases instead")
    options = parser.parse_args()
    if options.exact:
        print(json.dumps(count_mismatches(options.exact)))
        return
    rows = {difficulty: measure_level(difficulty, options.count) for difficulty in LEVELS}
    print(f"| difficulty | {' | '.join(map(str, rows))} |")
    print(f"|---|{'---|' * len(rows)}")
    for name in rows[1]:
        digits = 1 if name == "ms" else 2
        print(f"| {name} | {' | '.join(f'{row[name]:.{digits}f}' for row in rows.values())} |")


if __name__ == "__main__":
    main()
