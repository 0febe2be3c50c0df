"""Players of a whole table without an engine: blind, heuristic, expert and exact ones.

A player writes every seat's report and the decision. What those are worth is the verifier's business.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from roles.team import NO_OPTION, Decision, Report
from scenarios.company.coordination import reckon_worths
from scenarios.company.knapsack import combine, list_efficient
from scenarios.company.records import Part, Plan
from scenarios.team.experts import (
    FUNDING_HABITS,
    REPORT_HABITS,
    best_decision,
    best_report,
    choose_part,
    make_offer,
    sample_habit,
)
from scenarios.team.funding import Funding, fund_in_order, list_fundings
from scenarios.team.offers import CheckedReport, Table, check_report, is_needed, is_vetoed, offers_on
from scenarios.team.playable import PublicCase
from scenarios.team.scenario import TeamScenario

BEST_HABITS = ("measured", "exact")  # of those written by hand, the pair that serves the team best
BEST_SHOWN = ("rising", "exact")  # of those that demonstrations show


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlay:
    """Everything that is written at one table before the vote.

    Example: TablePlay(reports={"cto": report, ...}, decision=decision)
    """

    reports: Mapping[str, Report]
    decision: Decision


TablePlayer = Callable[[TeamScenario, random.Random], TablePlay]
Chair = Callable[[TeamScenario, Table, random.Random], Decision]


def check_reports(scenario: TeamScenario, reports: Mapping[str, Report]) -> dict[str, CheckedReport]:
    """Every report with its claims checked."""
    return {seat: check_report(scenario, seat, report) for seat, report in reports.items()}


def write_reports(scenario: TeamScenario, habit: str | None, rng: random.Random) -> dict[str, Report]:
    """Reports of experts of one habit; with None every seat draws its own."""
    return {
        seat: best_report(scenario, seat, habit or sample_habit(rng, REPORT_HABITS))
        for seat in scenario.seats
    }


def play_experts(report_habit: str | None, funding_habit: str | None) -> TablePlayer:
    """Experts of these habits; with None each draws its own."""

    def play(scenario: TeamScenario, rng: random.Random) -> TablePlay:
        reports = write_reports(scenario, report_habit, rng)
        habit = funding_habit or sample_habit(rng, FUNDING_HABITS)
        return TablePlay(
            reports=reports,
            decision=best_decision(scenario.public, check_reports(scenario, reports), habit),
        )

    return play


def play_chair(chair: Chair) -> TablePlayer:
    """Experts of mixed habits report; this chair decides."""

    def play(scenario: TeamScenario, rng: random.Random) -> TablePlay:
        reports = write_reports(scenario, None, rng)
        decision = chair(scenario, check_reports(scenario, reports), rng)
        return TablePlay(reports=reports, decision=decision)

    return play


def play_plan(scenario: TeamScenario, plan: Plan | None) -> TablePlay:
    """Every seat offers what the plan funds and ReconcileGPT funds it; None: the case is escalated."""
    reports = {}
    for seat in scenario.seats:
        choice = plan.funded.get(seat, ()) if plan else ()
        offered = [
            make_offer(part)
            for part in (scenario.parts_of(seat, plan.option) if plan else ())
            if part.choice and part.choice == choice
        ]
        reports[seat] = Report(
            offers=offered,
            needs=[option for option in scenario.options if is_needed(scenario, seat, option)],
            veto=[option for option in scenario.options if is_vetoed(scenario, seat, option)],
        )
    if plan is None:
        return TablePlay(reports=reports, decision=_escalate())
    tabled = offers_on(check_reports(scenario, reports), plan.option)
    return TablePlay(reports=reports, decision=_decide(plan.option, [offer.label for offer in tabled]))


def _decide(option: str, fund: Sequence[str]) -> Decision:
    return Decision(option=option, fund=list(fund), escalate=False)


def _escalate() -> Decision:
    return Decision(option=NO_OPTION, fund=[], escalate=True)


def _fund(plan: Funding | None, option: str) -> Decision:
    return _decide(option, [offer.label for offer in plan.offers] if plan else [])


def decide_at_random(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    """Any option with any funding that can be run by the reports."""
    option = rng.choice(scenario.options)
    plans = list_fundings(scenario.public, table, option)
    return _fund(rng.choice(plans) if plans else None, option)


def decide_richest(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
    """The option that looks richest if all offers could be paid, funded by worth while money lasts."""
    public = scenario.public
    totals = {
        option: base + sum(offer.worth for offer in offers_on(table, option))
        for option, base in public.base.items()
    }
    return _spend(public, table, max(totals, key=totals.__getitem__), by_return=False)


def decide_by_majority(scenario: TeamScenario, table: Table, _rng: random.Random) -> Decision:
    """The option that most seats favour by what each knows alone, then the one of the larger base."""
    votes = dict.fromkeys(scenario.options, 0)
    for seat in scenario.seats:
        votes[favourite_option(scenario, seat)] += 1
    public = scenario.public
    option = max(scenario.options, key=lambda letter: (votes[letter], public.base[letter]))
    return _spend(public, table, option, by_return=True)


def favourite_option(scenario: TeamScenario, seat: str) -> str:
    """The option of the greatest base plus the seat's own best worth within its share of the budget."""
    case = scenario.case
    worths = reckon_worths(case.parts[seat], case.budget // len(case.parts))
    totals = {letter: case.options[letter].base + worth for letter, worth in worths.items()}
    base = {letter: option.base for letter, option in case.options.items()}
    return max(totals or base, key=(totals or base).__getitem__)


def _spend(public: PublicCase, table: Table, option: str, *, by_return: bool) -> Decision:
    return _fund(fund_in_order(public, table, option, by_return=by_return), option)


def play_one_head(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """One head that sees all: on each option it buys by return while money lasts, then it compares."""
    plans = [plan for option in scenario.options if (plan := _buy_by_return(scenario, option))]
    best = max(plans, key=lambda found: found[0], default=None)
    return play_plan(scenario, best[1] if best else None)


def _buy_by_return(scenario: TeamScenario, option: str) -> tuple[int, Plan] | None:
    """Worth and plan: what the limits need, then the step of the greatest return; None: too dear."""
    case = scenario.case
    frontiers = {seat: list_efficient(own[option]) for seat, own in case.parts.items()}
    if not all(frontiers.values()):
        return None
    taken: dict[str, Part] = {seat: frontier[0] for seat, frontier in frontiers.items()}
    left = case.budget - sum(part.cost for part in taken.values())
    if left < 0:
        return None
    while True:
        steps = [
            (Fraction(part.worth - taken[seat].worth, part.cost - taken[seat].cost), seat, part)
            for seat, frontier in frontiers.items()
            for part in frontier
            if 0 < part.cost - taken[seat].cost <= left
        ]
        if not steps:
            break
        _, seat, part = max(steps, key=lambda step: step[0])
        left -= part.cost - taken[seat].cost
        taken[seat] = part
    worth = case.options[option].base + sum(part.worth for part in taken.values())
    return worth, Plan(option=option, funded={seat: part.choice for seat, part in taken.items()})


def play_best_habits(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """Each seat's best habit in hindsight, option by option, funded exactly: what the habits could reach."""
    case = scenario.case
    best: tuple[int, Plan] | None = None
    for option in scenario.options:
        frontiers = []
        for seat, own in case.parts.items():
            nothing = own[option][0]
            offered = [choose_part(scenario, seat, option, habit) for habit in REPORT_HABITS]
            frontiers.append(list_efficient([nothing, *(part for part in offered if part is not None)]))
        found = combine(frontiers, case.budget)
        if found and (best is None or case.options[option].base + found[-1].worth > best[0]):
            funded = {part.seat: part.choice for part in found[-1].list_parts()}
            best = (case.options[option].base + found[-1].worth, Plan(option=option, funded=funded))
    return play_plan(scenario, best[1] if best else None)


def play_optimum(scenario: TeamScenario, _rng: random.Random) -> TablePlay:
    """Every seat offers its part of the optimum; that one offer per option allows it is thereby shown."""
    return play_plan(scenario, scenario.optimum.plan if scenario.optimum else None)
