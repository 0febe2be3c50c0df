"""Strict reading of what the seats write, and each seat's own verdict (role-local, not the team's)."""

from collections.abc import Mapping

from roles.base import AnswerError, parse_answer
from roles.table import MAX_NOTE_WORDS, AskMessage, OfferReply, PlanDecision, TableReport, TableVote
from roles.team import NO_OPTION
from scenarios.base import Verdict, rejected
from scenarios.company.knapsack import list_efficient
from scenarios.company.records import Plan
from scenarios.table.experts import best_vote
from scenarios.table.funding import PublicCase, choose_best, find_obstacle, list_all_fundings, make_funding
from scenarios.table.offers import (
    Table,
    check_report,
    find_part,
    is_needed,
    is_vetoed,
    offers_on,
)
from scenarios.table.scenario import TableScenario


def read_report(text: str) -> TableReport:
    """The report in the text.

    Raises:
        AnswerError: not strict JSON of the schema, or a note of more than MAX_NOTE_WORDS words.
    """
    report = parse_answer(text, TableReport)
    if len(report.note.split()) > MAX_NOTE_WORDS:
        raise AnswerError("schema", f"note: at most {MAX_NOTE_WORDS} words")
    return report


def read_decision(public: PublicCase, table: Table, text: str) -> PlanDecision:
    """The decision in the text, about options and offers that are on the table.

    Raises:
        AnswerError: malformed, an unknown option or label, two offers of one seat, or `escalate` that
            disagrees with the option.
    """
    decision = parse_answer(text, PlanDecision)
    if decision.option not in (*public.base, NO_OPTION):
        raise AnswerError("unknown_id", f"options are {' '.join(public.base)} {NO_OPTION}")
    if decision.escalate != (decision.option == NO_OPTION) or (decision.escalate and decision.fund):
        raise AnswerError(
            "inconsistent", f"escalate goes with option {NO_OPTION} and no funding, and only then"
        )
    seats: Mapping[str, str] = {offer.label: offer.seat for offer in offers_on(table, decision.option)}
    unknown = [label for label in decision.fund if label not in seats]
    if unknown:
        raise AnswerError("unknown_id", f"{unknown[0]!r} has no offer on {decision.option}")
    funded = [seats[label] for label in decision.fund]
    if len(set(funded)) != len(funded):
        raise AnswerError("duplicate_id", "fund names one seat twice")
    return decision


def read_ask(public: PublicCase, text: str) -> AskMessage | None:
    """The question in the text, or None where the text is none (then it is read as a decision)."""
    try:
        message = parse_answer(text, AskMessage)
    except AnswerError:
        return None
    asked = message.ask
    return message if asked.seat in public.seats and asked.option in public.base else None


def read_reply(text: str) -> OfferReply:
    """A seat's reply to a question.

    Raises:
        AnswerError: malformed.
    """
    return parse_answer(text, OfferReply)


def read_vote(text: str) -> TableVote | None:
    """The vote, or None where there is none."""
    try:
        return parse_answer(text, TableVote)
    except AnswerError:
        return None


def verify_report(scenario: TableScenario, seat: str, text: str) -> Verdict:
    """0.5 efficient offers + 0.2 an offer wherever there is something to gain + 0.3 needs and vetoes right.

    Any false claim earns 0. An offer is efficient where no cheaper part of the seat is worth as much.
    """
    try:
        report = read_report(text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    checked = check_report(scenario, seat, report)
    if checked.false_claims:
        return rejected("wrong_figures", f"false claim: {checked.false_claims[0]}")
    offered = {offer.option for offer in checked.offers}
    efficient = [
        find_part(scenario, seat, offer.option, list(offer.choice))
        in list_efficient(scenario.parts_of(seat, offer.option))
        for offer in checked.offers
    ]
    gainful = {option for option in scenario.options if _can_gain(scenario, seat, option)}
    flags = [option in checked.needs for option in scenario.options if is_needed(scenario, seat, option)]
    flags += [option in checked.veto for option in scenario.options if is_vetoed(scenario, seat, option)]
    parts = {
        "efficient": sum(efficient) / len(efficient) if efficient else float(not gainful),
        "coverage": len(offered & gainful) / len(gainful) if gainful else 1.0,
        "flags": sum(flags) / len(flags) if flags else 1.0,
    }
    exact = all(value == 1.0 for value in parts.values())
    return Verdict(
        reward=(5 * parts["efficient"] + 2 * parts["coverage"] + 3 * parts["flags"]) / 10
        if offered or not gainful
        else 0.0,
        parts=parts,
        exact=exact,
        feasible=True,
        explanation=f"{sum(efficient)} of {len(efficient)} offers efficient, {len(offered & gainful)} of "
        f"{len(gainful)} options covered",
        failure=None if exact else "suboptimal",
    )


def _can_gain(scenario: TableScenario, seat: str, option: str) -> bool:
    frontier = list_efficient(scenario.parts_of(seat, option))
    return bool(frontier) and bool(frontier[-1].choice)


def verify_decision(public: PublicCase, table: Table, text: str) -> Verdict:
    """By the reports: 1 for the best plan that can be run, 0 at the mean one and for a plan that cannot."""
    try:
        decision = read_decision(public, table, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    plans = list_all_fundings(public, table)
    best = choose_best(plans)
    if decision.escalate or best is None:
        right = decision.escalate and best is None
        if not right:
            why = "needless escalation" if best is not None else "no option can be run: escalate"
            return rejected("infeasible", why)
        return Verdict(reward=1.0, parts={"graded": 1.0}, exact=True, feasible=True, explanation="escalated")
    offers = [offer for offer in offers_on(table, decision.option) if offer.label in decision.fund]
    obstacle = find_obstacle(public, table, decision.option, offers)
    if obstacle is not None:
        return rejected("infeasible", obstacle)
    chosen = make_funding(public, decision.option, offers)
    mean = sum(plan.worth for plan in plans) / len(plans)
    exact = chosen.worth == best.worth
    graded = 1.0 if exact else max(0.0, (chosen.worth - mean) / (best.worth - mean))
    return Verdict(
        reward=graded,
        parts={"graded": graded, "exact": float(exact)},
        exact=exact,
        feasible=True,
        explanation=f"worth {chosen.worth} by the reports, best {best.worth}",
        failure=None if exact else "suboptimal",
    )


def verify_vote(scenario: TableScenario, seat: str, plan: Plan | None, escalated: bool, text: str) -> Verdict:
    """1 for the right vote: object where there is no decision or the plan breaks the seat's own limit."""
    try:
        vote = parse_answer(text, TableVote)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    wanted = best_vote(scenario, seat, plan, escalated=escalated).vote
    right = vote.vote == wanted
    return Verdict(
        reward=float(right),
        parts={"vote": float(right)},
        exact=right,
        feasible=True,
        explanation=f"the right vote is {wanted}",
        failure=None if right else "suboptimal",
    )
