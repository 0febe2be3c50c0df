"""Mean value of teams of experts and of players that do not look, over many cases of one difficulty."""

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from roles.team import Decision
from scenarios.team.experts import REPORT_HABITS, best_decision, best_report, sample_habit
from scenarios.team.funding import list_fundings
from scenarios.team.offers import CheckedReport, Table, check_report
from scenarios.team.scenario import TeamScenario
from scenarios.team.value import decision_value

MIXED = "mixed"  # every seat draws its habit


def collect_reports(
    scenario: TeamScenario, habit: str, rng: random.Random
) -> dict[str, CheckedReport | None]:
    """The checked reports of experts of one habit, or of a habit drawn per seat."""
    table: dict[str, CheckedReport | None] = {}
    for seat in scenario.seats:
        chosen = sample_habit(rng, REPORT_HABITS) if habit == MIXED else habit
        table[seat] = check_report(scenario, seat, best_report(scenario, seat, chosen))
    return table


def mean_value(scenarios: Sequence[TeamScenario], reports: str, funding: str, *, seed: int = 0) -> float:
    """Mean V of a team whose seats report by one habit (or MIXED) and whose ReconcileGPT funds by another."""

    def decide(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
        return best_decision(scenario.public, table, funding)

    return _mean(scenarios, reports, decide, seed)


def mean_blind_value(scenarios: Sequence[TeamScenario], player: str, *, seed: int = 0) -> float:
    """Mean V of a ReconcileGPT that does not weigh its reports (BLIND_PLAYERS), on mixed reports."""
    return _mean(scenarios, MIXED, BLIND_PLAYERS[player], seed)


Decide = Callable[[TeamScenario, Table, random.Random], Decision | None]


def _mean(scenarios: Sequence[TeamScenario], reports: str, decide: Decide, seed: int) -> float:
    values = []
    for scenario in scenarios:
        rng = random.Random(f"{seed}/{scenario.key}")
        table = collect_reports(scenario, reports, rng)
        values.append(decision_value(scenario, table, decide(scenario, table, rng)))
    return fmean(values)


def _at_random(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    public = scenario.public
    option = rng.choice(scenario.options)
    plan = rng.choice(list_fundings(public, table, option) or [None])
    labels = [offer.label for offer in plan.offers] if plan else []
    return Decision(option=option, fund=labels, escalate=False)


def _first_option_all_offers(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    labels = [o.label for report in table.values() if report for o in report.offers if o.option == "A"]
    return Decision(option="A", fund=labels, escalate=False)


def _public_favourite(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    base = scenario.public.base
    return Decision(option=max(base, key=base.__getitem__), fund=[], escalate=False)


def _escalate(scenario: TeamScenario, table: Table, rng: random.Random) -> Decision:
    return Decision(option="none", fund=[], escalate=True)


BLIND_PLAYERS: Mapping[str, Decide] = {
    "random": _at_random,
    "first option, all offers": _first_option_all_offers,
    "public favourite, nothing funded": _public_favourite,
    "always escalate": _escalate,
    "silent": lambda scenario, table, rng: None,
}
