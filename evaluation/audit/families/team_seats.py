"""Draws what one seat of a team case reads: its brief, the table of reports, the decision that it votes on.

Reports are those of experts of mixed habits, some of them silent; where value counts, every seat makes two
offers per option, its part of the optimum among them. Half of the decisions put to the vote are to be
objected to: most of these break the seat's own limit, which is moved for that where the case has no such
option.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from evaluation.scoring.team_players import check_reports, play_optimum, write_reports
from roles.team import RECONCILER, SPECIALISTS, Decision
from scenarios.base import Scenario, Split
from scenarios.company.domain import Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.records import CompanyCase, Plan
from scenarios.team.funding import list_fundings
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, Table, check_report, dump_report, is_needed
from scenarios.team.scenario import TeamScenario, generate, seat_team
from scenarios.team.value import funded_plan

SeatKind = Literal["report", "decision", "vote", "value"]

SILENT_SHARE = 0.1  # of specialists without a report
UNDECIDED_SHARE = 0.1  # of votes on no decision at all


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatScenario(Scenario):
    """One seat of a team case with everything that it reads."""

    case: TeamScenario  # of a vote its own seat may have another limit than the drawn case
    table: Table  # empty before reports are written
    decision: Decision | None  # what is voted on

    @property
    def plan(self) -> Plan | None:
        """Return what the decision carries out; None without one and where it escalates."""
        if self.decision is None or self.decision.escalate:
            return None
        return funded_plan(self.table, self.decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPart:
    """One part, measured by the second method of its domain.

    Example: PricedPart(choice=("spare gateway",), cost=9, worth=14, keeps_limit=True)
    """

    choice: tuple[str, ...]
    cost: int
    worth: int
    keeps_limit: bool


@lru_cache(maxsize=1024)
def _draw_case(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    return generate(split, seed, index, difficulty)


def case_of(scenario: Scenario) -> SeatScenario:
    """Return the seat's view of a scenario that one of these families made.

    Raises:
        TypeError: any other scenario.
    """
    if not isinstance(scenario, SeatScenario):
        raise TypeError(f"{scenario.key} is no seat of a team case")
    return scenario


def price_again(case: TeamScenario, seat: str, option: str) -> Sequence[PricedPart]:
    """Every part of the seat on the option by the domain's second method."""
    terms = tuple((name, tuple(of[seat].items())) for name, of in _terms_of(case.case))
    return _price_again((case.split, case.seed, case.index, case.difficulty), seat, option, terms)


def _terms_of(case: CompanyCase) -> tuple[tuple[str, Mapping[str, Mapping[str, int]]], ...]:
    return (("rates", case.rates), ("limits", case.limits))


@lru_cache(maxsize=20_000)
def _price_again(
    place: tuple[Split, int, int, int],
    seat: str,
    option: str,
    terms: tuple[tuple[str, tuple[tuple[str, int], ...]], ...],
) -> Sequence[PricedPart]:
    domain = DOMAINS[seat]
    of_seat = Terms(**{name: dict(values) for name, values in terms})
    structure = _draw_case(*place).case.structures[seat][option]
    _, nothing = domain.measure_again(structure, ())
    before = domain.value(of_seat, nothing)
    priced = []
    for choice in domain.list_choices(structure):
        cost, figures = domain.measure_again(structure, choice)
        priced.append(
            PricedPart(
                choice=choice,
                cost=cost,
                worth=domain.value(of_seat, figures) - before,
                keeps_limit=domain.keeps_limit(of_seat, figures),
            )
        )
    return priced


def _move_limit(case: TeamScenario, seat: str, option: str) -> TeamScenario | None:
    """The case with such a limit of the seat that the option needs a part of it; None where none is such."""
    parts = case.case.parts[seat][option]
    values = {value for part in parts for value in part.figures.values()}
    for name in case.case.limits[seat]:
        for moved in sorted({value + step for value in values for step in (-1, 0, 1)}):
            limits = {**case.case.limits[seat], name: moved}
            terms = Terms(rates=case.case.rates[seat], limits=limits)
            keeps = [DOMAINS[seat].keeps_limit(terms, part.figures) for part in parts]
            if not keeps[0] and any(keeps):
                return _with_limits(case, seat, terms)
    return None


def _with_limits(case: TeamScenario, seat: str, terms: Terms) -> TeamScenario:
    structures = case.case.structures[seat]
    own = {
        option: price_parts(DOMAINS[seat], structure, terms, option)
        for option, structure in structures.items()
    }
    return seat_team(
        replace(
            case.case,
            limits={**case.case.limits, seat: terms.limits},
            parts={**case.case.parts, seat: own},
        )
    )


def _draw_table(case: TeamScenario, rng: random.Random) -> dict[str, CheckedReport | None]:
    """Reports of mixed experts, some of them silent."""
    table = check_reports(case, write_reports(case, None, rng))
    return {seat: None if rng.random() < SILENT_SHARE else report for seat, report in table.items()}


def _draw_rich_table(case: TeamScenario, rng: random.Random) -> dict[str, CheckedReport | None]:
    """Reports of two offers per option, in any order, among which the optimum's are."""
    sides = [write_reports(case, None, rng), write_reports(case, None, rng)]
    best = play_optimum(case, rng).reports
    table: dict[str, CheckedReport | None] = {}
    for seat, report in best.items():
        offers = list(report.offers)
        for offer in [offer for side in sides for offer in side[seat].offers]:
            standing = [known for known in offers if known.option == offer.option]
            if len(standing) < 2 and offer not in standing:
                offers.append(offer)
        rng.shuffle(offers)
        table[seat] = check_report(case, seat, report.model_copy(update={"offers": offers}))
    return table


def _draw_decision(case: TeamScenario, table: Table, option: str, rng: random.Random) -> Decision:
    """A decision that can be run by the reports, or the option with nothing funded."""
    plans = list_fundings(case.public, table, option)
    fund = [offer.label for offer in rng.choice(plans).offers] if plans else []
    return Decision(option=option, fund=fund, escalate=False)


def _draw_vote(
    case: TeamScenario, seat: str, rng: random.Random
) -> tuple[TeamScenario, Table, Decision | None]:
    """Case, table and decision put to the seat's vote: to accept, to object to, or none."""
    kind = rng.choices(("none", "broken", "kept"), weights=(UNDECIDED_SHARE, 0.5 - UNDECIDED_SHARE, 0.5))[0]
    option = rng.choice(case.options)
    if kind == "broken" and not is_needed(case, seat, option):
        case = _move_limit(case, seat, option) or case
    table = check_reports(case, write_reports(case, None, rng))
    if kind == "none":
        return case, table, None
    decision = _draw_decision(case, table, option, rng)
    if kind == "broken":
        decision = decision.model_copy(update={"fund": [label for label in decision.fund if label != seat]})
    return case, table, decision


def seat_generator(kind: SeatKind) -> Callable[..., Scenario]:
    """`generate(split, seed, index, difficulty)` of the family `team-<kind>`."""

    def generate_seat(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        case = _draw_case(split, seed, index, difficulty)
        rng = random.Random(f"audit/{kind}/{case.key}")
        seat = rng.choice(SPECIALISTS) if kind in ("report", "vote") else RECONCILER
        table: Table = {}
        decision = None
        if kind == "vote":
            case, table, decision = _draw_vote(case, seat, rng)
        elif kind != "report":
            case = replace(case, offers_per_option=2) if kind == "value" else case
            table = (_draw_rich_table if kind == "value" else _draw_table)(case, rng)
        return SeatScenario(
            family=f"team-{kind}",
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            role=seat,
            brief=_write_prompt(case, kind, seat, table, decision),
            facts={"options": list(case.options)},
            truth=case.truth,
            optimal_tool_calls=0,
            case=case,
            table=table,
            decision=decision,
        )

    return generate_seat


def _write_prompt(
    case: TeamScenario, kind: SeatKind, seat: str, table: Table, decision: Decision | None
) -> str:
    """All that the seat reads, system message first."""
    game = PlanGame(case=case, style="full")
    reports = {name: None if report is None else dump_report(report) for name, report in table.items()}
    parsed = None if decision is None else decision.model_dump(mode="json")
    if kind == "report":
        brief = game.write_report_brief(seat)
    elif kind == "vote":
        brief = f"{game.write_report_brief(seat)}\n{game.write_vote_brief(parsed, seat, reports)}"
    else:
        brief = game.write_decision_brief(reports)
    return f"{game.prompt_role(seat).mandate}\n{brief}"
