"""Draws what one seat of a team case reads (brief, reports, decision), and measures its parts anew.

Reports are those of experts of mixed habits, some of them silent; where value counts, every seat makes two
offers per option, its part of the optimum among them. Half of the decisions put to the vote are to be
objected to: most of these break the seat's own limit, which is moved for that where the case has no such
option.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from evaluation.audit.text_solvers import PricedPart
from evaluation.scoring.team_players import check_reports, play_optimum
from roles.team import RECONCILER, SPECIALISTS, Decision, Report
from scenarios.base import Scenario, Split
from scenarios.company.domain import Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.optimum import best_over_money
from scenarios.company.records import Plan
from scenarios.team.experts import ASKED_HABITS, best_report, sample_habit
from scenarios.team.funding import list_fundings
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, Table, check_report, dump_report, is_needed, offers_on
from scenarios.team.playable import PublicCase
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

    @property
    def own_parts(self) -> Mapping[str, Sequence[PricedPart]]:
        """Return the seat's parts by option, measured again."""
        return {option: price_again(self.case, self.role, option) for option in self.case.options}


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
    rates, limits = (tuple(of[seat].items()) for of in (case.case.rates, case.case.limits))
    return _price_again((case.split, case.seed, case.index, case.difficulty), seat, option, rates, limits)


@lru_cache(maxsize=20_000)
def _price_again(
    place: tuple[Split, int, int, int],
    seat: str,
    option: str,
    rates: tuple[tuple[str, int], ...],
    limits: tuple[tuple[str, int], ...],
) -> Sequence[PricedPart]:
    domain, terms = DOMAINS[seat], Terms(rates=dict(rates), limits=dict(limits))
    structure = _draw_case(*place).case.structures[seat][option]
    _, nothing = domain.measure_again(structure, ())
    before = domain.value(terms, nothing)
    priced = []
    for choice in domain.list_choices(structure):
        cost, figures = domain.measure_again(structure, choice)
        worth = domain.value(terms, figures) - before
        priced.append(PricedPart(choice, cost, worth, domain.keeps_limit(terms, figures)))
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
    limits, parts = {**case.case.limits, seat: terms.limits}, {**case.case.parts, seat: own}
    return seat_team(replace(case.case, limits=limits, parts=parts))


def _write_reports(case: TeamScenario, rng: random.Random) -> dict[str, Report]:
    """Reports of experts of mixed habits, whose shares do not follow what teams learn from."""
    return {seat: best_report(case, seat, sample_habit(rng, ASKED_HABITS)) for seat in case.seats}


def _draw_table(case: TeamScenario, rng: random.Random) -> dict[str, CheckedReport | None]:
    """Reports of mixed experts, some of them silent."""
    table = check_reports(case, _write_reports(case, rng))
    return {seat: None if rng.random() < SILENT_SHARE else report for seat, report in table.items()}


def _draw_rich_table(case: TeamScenario, rng: random.Random) -> dict[str, CheckedReport | None]:
    """Reports of two offers per option, in any order, among which the optimum's are."""
    sides = [_write_reports(case, rng), _write_reports(case, rng)]
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


def _draw_vote(
    case: TeamScenario, seat: str, rng: random.Random
) -> tuple[TeamScenario, Table, Decision | None]:
    """Case, table and decision put to the seat's vote: to accept, to object to, or none."""
    kind = rng.choices(("none", "broken", "kept"), weights=(UNDECIDED_SHARE, 0.5 - UNDECIDED_SHARE, 0.5))[0]
    option = rng.choice(case.options)
    if kind == "broken" and not is_needed(case, seat, option):
        case = _move_limit(case, seat, option) or case
    table = check_reports(case, _write_reports(case, rng))
    if kind == "none":
        return case, table, None
    plans = list_fundings(case.public, table, option)  # that can be run by the reports
    fund = [offer.label for offer in rng.choice(plans).offers] if plans else []
    fund = [label for label in fund if kind != "broken" or label != seat]
    return case, table, Decision(option=option, fund=fund, escalate=False)


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


def worth_by_reports(public: PublicCase, table: Table, option: str, fund: Sequence[str]) -> int | None:
    """k$ of the option with these labels funded; None where the reports say that it cannot be run."""
    if option not in public.options:
        return None
    known = {offer.label: offer for offer in offers_on(table, option)}
    if not set(fund) <= set(known) or len({known[label].seat for label in fund}) < len(fund):
        return None
    paid = {known[label].seat for label in fund}
    for seat, report in table.items():
        if report and (option in report.veto or (option in report.needs and seat not in paid)):
            return None
    if sum(known[label].cost for label in fund) > public.budget:
        return None
    return public.options[option].base + sum(known[label].worth for label in fund)


def list_worths(public: PublicCase, table: Table) -> list[int]:
    """k$ of every plan that can be run by the reports."""
    worths = []
    for option in public.options:
        labels = [offer.label for offer in offers_on(table, option)]
        for bits in range(2 ** len(labels)):
            fund = [label for place, label in enumerate(labels) if bits >> place & 1]
            worth = worth_by_reports(public, table, option, fund)
            worths += [] if worth is None else [worth]
    return worths


def best_by_structures(case: TeamScenario) -> int | None:
    """k$ of the optimum over parts that are measured again; None where nothing can be run."""
    found = []
    for option, facts in case.public.options.items():
        priced = [price_again(case, seat, option) for seat in case.seats]
        offered = [[(part.cost, part.worth) for part in parts if part.keeps_limit] for parts in priced]
        found.append(best_over_money(facts.base, offered, case.public.budget))
    return max((best[0] for best in found if best is not None), default=None)


def _list_plan_worths(
    case: TeamScenario, buy: Callable[[Sequence[PricedPart]], PricedPart | None]
) -> list[int | None]:
    """k$ of every option where each seat buys by itself; None where a seat cannot or the money runs out."""
    worths: list[int | None] = []
    for option, facts in case.public.options.items():
        bought = [buy(price_again(case, seat, option)) for seat in case.seats]
        parts = [part for part in bought if part is not None]
        is_open = len(parts) == len(bought) and sum(part.cost for part in parts) <= case.public.budget
        worths.append(facts.base + sum(part.worth for part in parts) if is_open else None)
    return worths


def blind_by_structures(case: TeamScenario) -> Fraction:
    """k$ of a blind plan: per option each seat buys its best part within an equal share of the budget.

    A seat for which all that keeps its limit costs more buys the cheapest of it. Options that cannot be run
    so count as the least of the others; where none can, the blind plan is the poorest that can be run.
    """
    share = case.public.budget // len(case.seats)

    def buy(parts: Sequence[PricedPart]) -> PricedPart | None:
        keeping = [part for part in parts if part.keeps_limit]
        within = [part for part in keeping if part.cost <= share]
        if within:
            return max(within, key=lambda part: (part.worth, -part.cost))
        return min(keeping, key=lambda part: (part.cost, -part.worth), default=None)

    def buy_poorest(parts: Sequence[PricedPart]) -> PricedPart | None:
        keeping = (part for part in parts if part.keeps_limit)
        return min(keeping, key=lambda part: (part.cost, part.worth), default=None)

    worths = _list_plan_worths(case, buy)
    known = [worth for worth in worths if worth is not None]
    if known:
        return Fraction(sum(min(known) if worth is None else worth for worth in worths), len(worths))
    return Fraction(min(worth for worth in _list_plan_worths(case, buy_poorest) if worth is not None))


def value_by_structures(case: TeamScenario, option: str, choices: Mapping[str, Sequence[str]]) -> float:
    """V of an option with these choices by seat, measured again; 0 where nothing can be run."""
    best = best_by_structures(case)
    if best is None:
        return 0.0
    cost, worth = 0, case.public.options[option].base
    for seat in case.seats:
        wanted = sorted(choices.get(seat, ()))
        part = next(part for part in price_again(case, seat, option) if sorted(part.choice) == wanted)
        if not part.keeps_limit:
            return 0.0
        cost, worth = cost + part.cost, worth + part.worth
    if cost > case.public.budget:
        return 0.0
    blind = blind_by_structures(case)
    return max(0.0, min(1.0, float((worth - blind) / (best - blind))))
