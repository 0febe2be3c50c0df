"""The value that the team can still reach when one specialist's report is missing, by difficulty.

Two chairs decide: `reports`, by short reports as the best pair of house practices writes and weighs them, and
`facts`, who knows stakes, utilities and limits of every seat that reports and nothing of the missing one.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from roles.team import NO_OPTION, SPECIALISTS, Decision
from scenarios import team
from scenarios.team.practices import best_decision, best_report

LEAST_LOSS = 0.1
NOBODY = "-"

Chair = Callable[[team.TeamScenario, str], Decision]


def decide_by_reports(case: team.TeamScenario, missing: str, report_practice: str, way: str) -> Decision:
    """What house practices lead to; the missing seat has no report."""
    reports = {
        role: None if role == missing else best_report(seat, report_practice)
        for role, seat in case.seats.items()
    }
    return best_decision(case.options, reports, way)


def decide_by_facts(case: team.TeamScenario, missing: str) -> Decision:
    """Return the open option of the greatest stakes-weighted utility over the seats that are there."""
    seats = [seat.facts for role, seat in case.seats.items() if role != missing]
    worth = {
        option: sum(facts["stakes"] * facts["utilities"][option] for facts in seats)
        for option in case.options
        if all(facts["utilities"][option] >= facts["limit"] for facts in seats)
    }
    best = max(worth, key=worth.__getitem__, default=NO_OPTION)
    return Decision(option=best, escalate=best == NO_OPTION)


def measure_chairs(cases: Sequence[team.TeamScenario]) -> Iterator[tuple[str, dict[str, float]]]:
    """Chair -> mean value with nobody missing (`-`) and with each specialist missing."""

    def reach(decide: Chair, missing: str) -> float:
        return fmean(team.decision_value(case, decide(case, missing)) for case in cases)

    pairs = [(report, way) for report in team.HOUSE.reports for way in team.HOUSE.decisions]
    chairs: list[Chair] = [
        lambda case, missing, pair=pair: decide_by_reports(case, missing, *pair)  # type: ignore[misc]
        for pair in pairs
    ]
    who = (NOBODY, *SPECIALISTS)
    yield "reports", {missing: max(reach(chair, missing) for chair in chairs) for missing in who}
    yield "facts", {missing: reach(decide_by_facts, missing) for missing in who}


def measure(count: int, difficulties: Sequence[int]) -> Iterator[tuple[int, str, dict[str, float]]]:
    for difficulty in difficulties:
        cases = [team.generate("test", 0, index, difficulty) for index in range(count)]
        for chair, found in measure_chairs(cases):
            yield difficulty, chair, found


def mean_loss(found: dict[str, float]) -> float:
    """What a missing report costs, mean over the specialists."""
    return fmean(found[NOBODY] - found[role] for role in SPECIALISTS)
