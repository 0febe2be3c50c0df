"""All texts at the table for small models that are trained on them: few words, no rules.

What a small model cannot work out by itself is given: a seat reads the steps of its efficient parts with a
word for what each returns, ReconcileGPT what every option is worth by each way of funding its offers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.team import Ask, Decision, Offer, OfferReply, Report, Vote
from scenarios.company.knapsack import list_efficient
from scenarios.company.records import Part
from scenarios.company.steps import count_tenths, rate_steps, write_figures, write_parts
from scenarios.team.frontier import budget_band, code_parts
from scenarios.team.funding import FUNDING_WAYS, rank_options
from scenarios.team.offers import (
    CheckedReport,
    Table,
    TabledOffer,
    find_part,
    is_needed,
    is_vetoed,
    offers_on,
)
from scenarios.team.playable import PlayableCase, PublicCase, Seat
from scenarios.team.questions import most_cost
from scenarios.team.texts.comparing import compare_options
from scenarios.team.texts.full import describe as describe
from scenarios.team.texts.full import title_of

REPORT_EXAMPLE = (
    '{"offers": [{"option": "A", "part": ["spare gateway"], "cost": 9, "worth": 14}], "needs": ["A"], '
    '"veto": [], "note": ""}'
)
DECISION_EXAMPLE = '{"option": "B", "fund": ["cto", "risk"], "escalate": false}'


def write_specialist_system(seat: Seat, public: PublicCase, *, with_tools: bool) -> str:
    """The system text of a specialist."""
    most = "one part" if public.offers_per_option == 1 else f"up to {public.offers_per_option} parts"
    return f"{title_of(seat.role)}. Offer {most} per option. Answer like {REPORT_EXAMPLE}"


def write_reconciler_system(public: PublicCase, *, with_tools: bool, most_questions: int) -> str:
    """The system text of ReconcileGPT."""
    return f"ReconcileGPT. Choose the plan of most worth within the budget. Answer like {DECISION_EXAMPLE}"


def write_report_brief(case: PlayableCase, seat: Seat, *, with_tools: bool) -> str:
    """Write what a specialist reads: its steps per option with a word for their return, tenths of the budget,
    code, cost and worth.

    Example: "Budget 40 tight.\\nA need: first 2 F 9 14, mid 3 G 15 22\\nB: high 1 H 4 9, low 2 I 9 12"
    """
    lines = [f"Budget {case.public.budget} {budget_band(case, seat.role)}."]
    return "\n".join([*lines, *write_seat_facts(case, seat, with_tools=with_tools)])


def write_public(public: PublicCase) -> str:
    """The case as all seats may read it.

    Example: "bank. Budget 40. A 30 B 26."
    """
    options = " ".join(f"{letter} {option.base}" for letter, option in public.options.items())
    return f"{public.sector}. Budget {public.budget}. {options}."


def write_seat_facts(case: PlayableCase, seat: Seat, *, with_tools: bool) -> list[str]:
    """The seat's steps, a line per option."""
    lines = [seat.facts["words"]] if "words" in seat.facts else []
    coded = code_parts(case, seat.role).items()
    for option in case.options:
        flag = ""
        if is_needed(case, seat.role, option):
            flag = " need"
        elif is_vetoed(case, seat.role, option):
            flag = " veto"
        codes = {code: part for code, part in coded if part.option == option}
        words = rate_steps(list_efficient(case.parts_of(seat.role, option) or ()))
        for part in codes.values():
            words[part.choice] += f" {count_tenths(part.cost, case.public.budget)}"
        lines.append(f"{option}{flag}: {write_parts(codes, words)}")
    return lines


def write_report(case: PlayableCase, seat: str, report: Report) -> str:
    """The report as a model in this style writes it: parts by their codes, no note."""
    offers = _code_offers(case, seat, report.offers)
    return json.dumps({"offers": offers, "needs": report.needs, "veto": report.veto})


def write_reply(case: PlayableCase, seat: str, reply: OfferReply) -> str:
    """The reply as a model in this style writes it: the part by its code."""
    offers = _code_offers(case, seat, [] if reply.offer is None else [reply.offer])
    return json.dumps({"offer": offers[0] if offers else None})


def _code_offers(case: PlayableCase, seat: str, offers: Sequence[Offer]) -> list[dict[str, Any]]:
    """The offers as JSON values, parts by their codes where they have one."""
    codes = {(part.option, part.choice): code for code, part in code_parts(case, seat).items()}
    written = []
    for offer in offers:
        part = find_part(case, seat, offer.option, offer.part)
        code = None if part is None else codes.get((offer.option, part.choice))
        written.append(offer.model_dump() if code is None else {**offer.model_dump(), "part": [code]})
    return written


def write_decision(decision: Decision) -> str:
    """The decision as a model in this style writes it: no conflicts, no reason."""
    return json.dumps(decision.model_dump(include={"option", "fund", "escalate"}))


def write_measured(seat: Seat, part: Part) -> str:
    """The observation of the tool measure."""
    return write_figures(part)


def write_decision_brief(
    public: PublicCase, table: Table, ruled_out: Sequence[str] = (), *, may_ask: bool = False
) -> str:
    """Offers by option, and what they come to by every way of funding, best option first.

    Where ReconcileGPT may ask: also what an offer of each seat may cost on the best option that is left.

    Example: "A 30: cto 9 14 need, coo 7 10\\nB 26: risk 13 20\\nBudget 40.\\nexact\\nA 54: cto coo\\n..."
    """
    lines = []
    for option in public.options:
        if option in ruled_out:
            lines.append(f"{option} ruled out")
        else:
            lines.append(_write_option(public, table, option))
    lines += [f"{seat} no report" for seat in public.seats if table.get(seat) is None]
    lines.append(f"Budget {public.budget}.")
    for habit in FUNDING_WAYS:
        lines.append(habit)
        for option, plan in rank_options(public, table, habit):
            if option not in ruled_out:
                fund = " ".join(offer.label for offer in plan.offers) if plan else ""
                lines.append(f"{option} {plan.worth}: {fund or 'nothing'}" if plan else f"{option} no")
    left = {letter: option for letter, option in public.options.items() if letter not in ruled_out}
    leader = compare_options(replace(public, options=left), table)[1] if may_ask else None
    if leader is not None:
        room = ", ".join(f"{seat} {most_cost(public, leader, seat)}" for seat in public.seats)
        lines.append(f"{leader.option} left {public.budget - leader.cost}: {room}")
    return "\n".join(lines)


def _write_option(public: PublicCase, table: Table, option: str) -> str:
    reports = {seat: report for seat, report in table.items() if report is not None}
    offers = offers_on(table, option)
    offering = {offer.seat for offer in offers}
    words = [_write_offer(offer, reports[offer.seat]) for offer in offers]
    words += [f"{seat} veto" for seat, report in reports.items() if option in report.veto]
    words += [
        f"{seat} need"
        for seat, report in reports.items()
        if option in report.needs and seat not in offering and option not in report.veto
    ]
    return f"{option} {public.options[option].base}: {', '.join(words) or 'none'}"


def _write_offer(offer: TabledOffer, report: CheckedReport) -> str:
    return f"{offer.label} {offer.cost} {offer.worth}{' need' if offer.option in report.needs else ''}"


def write_ask(ask: Ask) -> str:
    """Write what a seat reads when ReconcileGPT asks it for another offer.

    Example: "Offer A at most 15."
    """
    return f"Offer {ask.option} at most {ask.cost_at_most}."


def write_vote_brief(
    public: PublicCase, decision: Decision | None, funded: Mapping[str, str], seat: str
) -> str:
    """Write what a seat reads before it votes.

    Example: "Decision B without your part. Vote."
    """
    if decision is None:
        return "No decision. Vote."
    if decision.escalate:
        return "Escalated. Vote."
    return f"Decision {decision.option} {'with' if seat in funded else 'without'} your part. Vote."


def write_objection_brief(objections: Mapping[str, Vote]) -> str:
    """Write what ReconcileGPT reads when seats object.

    Example: "Objections cost risk. Decide again."
    """
    return f"Objections {' '.join(objections)}. Decide again."
