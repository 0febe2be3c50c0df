"""Mean V of simple, expert and exact players of the team's cases, and whether every seat is needed.

    python -m benchmarks.scenarios.team_tables --count 500

Test cases of difficulty 1-10 as a Markdown table. Ends with status 1 where a blind player passes .35, where
the best reachable with the allowed offers is under .85, or where adding up the experts' reports loses more
than .05 against the best funding of them.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean

from benchmarks.scenarios.company_cases import seat_decides, worth_without
from emads.cli.options import parse_difficulties
from evaluation.scoring.baselines import (
    Chair,
    TablePlayer,
    check_reports,
    decide_at_random,
    decide_by_majority,
    decide_richest,
    favourite_option,
    play_best_habits,
    play_chair,
    play_experts,
    play_one_head,
    play_optimum,
)
from roles.team import Decision
from scenarios.company.coordination import is_hidden_profile
from scenarios.company.optimum import blind_worth, scale_worth
from scenarios.team.experts import REPORT_HABITS
from scenarios.team.funding import fund_in_order
from scenarios.team.offers import Table, offers_on
from scenarios.team.scenario import TeamScenario, generate
from scenarios.team.value import decision_value

SEATS = ("cto", "coo", "risk", "cost")
MOST_BLIND, LEAST_REACHABLE, MOST_LOST_BY_ARITHMETIC = 0.35, 0.85, 0.05
BLIND = ("random", "constant: option A, all offers")
BEST_SEAT = "option of the best single seat"


def decide_first(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
    """The first option with all that is offered on it, whatever it costs."""
    option = scenario.options[0]
    first = {offer.seat: offer.label for offer in reversed(offers_on(table, option))}
    return Decision(option=option, fund=[first[seat] for seat in table if seat in first], escalate=False)


def follow_seat(seat: str) -> Chair:
    """The option that one seat favours, funded by return while money lasts."""

    def decide(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
        option = favourite_option(scenario, seat)
        plan = fund_in_order(scenario.public, table, option, by_return=True)
        fund = [offer.label for offer in plan.offers] if plan else []
        return Decision(option=option, fund=fund, escalate=False)

    return decide


PLAYERS: Mapping[str, TablePlayer] = {
    BLIND[0]: play_chair(decide_at_random),
    BLIND[1]: play_chair(decide_first),
    "greedy: richest on paper": play_chair(decide_richest),
    "majority of the seats": play_chair(decide_by_majority),
    **{f"option of {seat}": play_chair(follow_seat(seat)) for seat in SEATS},
    **{f"experts {habit}": play_experts(habit, "exact") for habit in REPORT_HABITS},
    "experts mixed": play_experts(None, None),
    "experts measured, by return": play_experts("measured", "return"),
    "best habit of every seat in hindsight": play_best_habits,
    "one head that sees all, by return": play_one_head,
    "best reachable with one offer per option": play_optimum,
}


def play_value(scenario: TeamScenario, player: TablePlayer, name: str) -> float:
    """V of the player on the case."""
    play = player(scenario, random.Random(f"{name}/{scenario.key}"))
    return decision_value(scenario, check_reports(scenario, play.reports), play.decision)


def measure_level(difficulty: int, count: int) -> dict[str, float]:
    """One column: mean V by player, then shares of the cases that can be run."""
    cases = [generate("test", 0, index, difficulty) for index in range(count)]
    column = {
        name: fmean(play_value(case, player, name) for case in cases) for name, player in PLAYERS.items()
    }
    column[BEST_SEAT] = max(column.pop(f"option of {seat}") for seat in SEATS)
    open_cases = [case for case in cases if case.optimum is not None]
    column["cases to escalate"] = 1 - len(open_cases) / len(cases)
    column["hidden profiles"] = fmean(is_hidden_profile(case.case) for case in open_cases)
    for seat in SEATS:
        column[f"{seat} decides"] = fmean(seat_decides(case.case, seat) for case in open_cases)
    for seat in SEATS:
        column[f"V without offers of {seat}"] = fmean(_value_without(case, seat) for case in open_cases)
    return column


def _value_without(scenario: TeamScenario, seat: str) -> float:
    """V of the best plan that funds nothing of this seat."""
    optimum = scenario.optimum
    assert optimum is not None
    return scale_worth(worth_without(scenario.case, seat), blind_worth(scenario.case), optimum.worth)


def find_faults(columns: Mapping[int, Mapping[str, float]]) -> Iterator[str]:
    """Return what is not as it should be, one line each."""
    for level, column in columns.items():
        for name in BLIND:
            if column[name] > MOST_BLIND:
                yield f"{name} earns {column[name]:.3f} at {level}, bound {MOST_BLIND}"
        if (reached := column["best reachable with one offer per option"]) < LEAST_REACHABLE:
            yield f"only {reached:.3f} is reachable at {level}"
        lost = column["experts measured"] - column["experts measured, by return"]
        if lost > MOST_LOST_BY_ARITHMETIC:
            yield f"arithmetic loses {lost:.3f} at {level}"


def render_table(columns: Mapping[int, Mapping[str, float]]) -> str:
    """Rows are players and shares, columns are levels."""
    names: Sequence[str] = list(next(iter(columns.values())))
    lines = [["mean V", *map(str, columns)], ["---"] * (1 + len(columns))]
    lines += [[name, *(f"{column[name]:.2f}" for column in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Players of the team's cases by difficulty.")
    parser.add_argument("--count", type=int, default=500, help="cases per difficulty")
    parser.add_argument("--difficulties", default="1-10", help="as 1,2 or 1-3")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    levels = parse_difficulties(arguments.difficulties)
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        found = {level: pool.submit(measure_level, level, arguments.count) for level in levels}
        columns = {level: column.result() for level, column in found.items()}
    print(render_table(columns))
    faults = list(find_faults(columns))
    print("\n".join(faults) or "no faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
