"""The texts at the table in two styles: `full` for any capable model, `short` for models trained on them.

Each text holds every rule that the optimum depends on and, in `full`, the exact answer schema with a filled
example of another case. What a seat sees of its own structures is written by its domain.
"""

from collections.abc import Sequence
from typing import Literal

from roles.registry import ROLES
from roles.table import MAX_NOTE_WORDS, Ask, PlanDecision
from scenarios.company.records import CompanyCase
from scenarios.table.funding import PublicCase
from scenarios.table.offers import CheckedReport, Table, TabledOffer, offers_on

Style = Literal["full", "short"]

PLAN_RULES = (
    "The company chooses one option and funds at most one part per seat on it. The plan is worth the "
    "option's "
    "value before any spending plus the worth of the funded parts, in k$. All parts together may cost at "
    "most "
    "the budget; unspent money is worth nothing. A plan over the budget, or one that breaks a hard limit of "
    "any "
    "seat, is worth 0."
)
REPORT_SCHEMA = (
    "Answer with one JSON object and nothing after it. Its keys: `offers`, a list with at most {most} offers "
    "per option, each {{option, part, cost, worth}}: the letter, the names of what you buy, the cost and the "
    "worth in k$ exactly as measured; `needs`, the options that break your limit unless your part is funded; "
    "`veto`, the options that break your limit whatever you buy; `note`, at most {words} words for "
    "ReconcileGPT. "
    "Claims are checked: a false figure strikes the offer out. Example of another case:\n"
    '{{"offers": [{{"option": "A", "part": ["spare gateway"], "cost": 9, "worth": 14}}], "needs": ["A"], '
    '"veto": [], "note": "A fails its limit without the spare gateway."}}'
)
REPLY_SCHEMA = (
    "Answer with one JSON object: the best part of yours on this option that costs no more, or null where "
    "there "
    "is none. Example of another case:\n"
    '{"offer": {"option": "A", "part": ["faster switch"], "cost": 15, "worth": 22}}'
)
DECISION_SCHEMA = (
    'Answer with one JSON object and nothing after it. Its keys: `option`, the letter, or "none" to '
    "escalate; "
    "`fund`, the labels of the offers on this option that you fund, at most one of each seat; `escalate`, "
    "true "
    'only where no option can be run within the budget (then `option` is "none" and `fund` is empty); '
    "`conflicts`, where the seats pull apart, in a few words each; `reason`, one or two sentences. Example "
    "of "
    "another case:\n"
    '{"option": "B", "fund": ["cto", "risk"], "escalate": false, "conflicts": ["A looks better before the '
    'offers"], "reason": "B with both offers is worth 71 at cost 38 of 40."}'
)
ASK_RULE = (
    "Before you decide you may ask one seat for another offer, once: "
    '{"ask": {"seat": "cto", "option": "A", "cost_at_most": 15}}.'
)
VOTE_SCHEMA = (
    "Vote on the decision. Object if it breaks your own hard limit as it is funded, or if there is no "
    "decision; "
    "accept otherwise, also where you would have preferred another plan. Answer with one JSON object: "
    '{"vote": "accept"} or {"vote": "object", "reason": "one sentence"}.'
)


def _title(seat: str) -> str:
    """The seat as people say it; a seat of no built-in role by its name."""
    return ROLES[seat].title if seat in ROLES else seat


def public_of(case: CompanyCase) -> PublicCase:
    """What everybody at the table knows."""
    base = {letter: option.base for letter, option in case.options.items()}
    return PublicCase(base=base, budget=case.budget, seats=tuple(case.parts))


def write_public(case: CompanyCase, style: Style) -> str:
    """The case as all seats read it.

    Example (short): "bank. Budget 40. A 30 B 26."
    """
    if style == "short":
        options = " ".join(f"{letter} {option.base}" for letter, option in case.options.items())
        return f"{case.sector}. Budget {case.budget}. {options}."
    lines = [case.situation, ""]
    lines += [
        f"Option {letter}: {option.name}. Worth {option.base} k$ a month before any spending."
        for letter, option in case.options.items()
    ]
    lines.append(f"Budget for all seats together: {case.budget} k$ a month.")
    return "\n".join(lines)


def write_report_rules(offers_per_option: int) -> str:
    """The rules and the schema of a report, for the system message in `full`."""
    return f"{PLAN_RULES}\n\n{REPORT_SCHEMA.format(most=offers_per_option, words=MAX_NOTE_WORDS)}"


def write_decision_brief(public: PublicCase, table: Table, style: Style, *, may_ask: bool = False) -> str:
    """All that ReconcileGPT learns of the reports: offers by option, needs, vetoes and notes.

    Example (short): "A 30: cto 9 14 need, coo 7 10\\nB 26: risk 13 20\\nBudget 40."
    """
    lines = []
    for option in public.base:
        offers = offers_on(table, option)
        lines += _option_lines(public, table, option, offers, style)
    missing = [seat for seat in public.seats if table.get(seat) is None]
    if style == "short":
        lines += [f"{seat} no report" for seat in missing]
        lines.append(f"Budget {public.budget}.")
        return "\n".join(lines)
    lines += [f"{_title(seat)} gave no report that can be read." for seat in missing]
    lines += [
        f"Note of {_title(seat)}: {report.note}"
        for seat, report in table.items()
        if report is not None and report.note
    ]
    lines += [
        f"{_title(seat)}: {len(report.false_claims)} claims were struck out as false."
        for seat, report in table.items()
        if report is not None and report.false_claims
    ]
    lines.append(f"Budget: {public.budget} k$ a month.")
    if may_ask:
        lines.append(ASK_RULE)
    return "\n".join(lines)


def _option_lines(
    public: PublicCase, table: Table, option: str, offers: Sequence[TabledOffer], style: Style
) -> list[str]:
    reports = {seat: report for seat, report in table.items() if report is not None}
    vetoers = [seat for seat, report in reports.items() if option in report.veto]
    if style == "short":
        words = [_short_offer(offer, reports[offer.seat]) for offer in offers]
        words += [f"{seat} veto" for seat in vetoers]
        words += [f"{seat} need" for seat in _needs_without_offer(reports, option, offers)]
        return [f"{option} {public.base[option]}: {', '.join(words) or 'none'}"]
    lines = [f"Option {option}, worth {public.base[option]} k$ before any spending:"]
    for offer in offers:
        needed = (
            " Needed: the option breaks this seat's limit without it."
            if option in reports[offer.seat].needs
            else ""
        )
        lines.append(
            f"- [{offer.label}] {_title(offer.seat)} offers {', '.join(offer.choice)}: "
            f"cost {offer.cost} k$, worth {offer.worth} k$.{needed}"
        )
    lines += [f"- {_title(seat)} vetoes it: its limit breaks whatever it buys." for seat in vetoers]
    lines += [
        f"- {_title(seat)} needs a part on it and offers none: it cannot be run."
        for seat in _needs_without_offer(reports, option, offers)
    ]
    if len(lines) == 1:
        lines.append("- no offers.")
    return lines


def _short_offer(offer: TabledOffer, report: CheckedReport) -> str:
    return f"{offer.label} {offer.cost} {offer.worth}{' need' if offer.option in report.needs else ''}"


def _needs_without_offer(
    reports: dict[str, CheckedReport], option: str, offers: Sequence[TabledOffer]
) -> list[str]:
    offering = {offer.seat for offer in offers}
    return [seat for seat, report in reports.items() if option in report.needs and seat not in offering]


def write_ask(ask: Ask, style: Style) -> str:
    """What a seat reads when ReconcileGPT asks it for another offer.

    Example (short): "Offer A at most 15."
    """
    if style == "short":
        return f"Offer {ask.option} at most {ask.cost_at_most}."
    return (
        f"ReconcileGPT asks you for another offer on option {ask.option} that costs at most "
        f"{ask.cost_at_most} k$. {REPLY_SCHEMA}"
    )


def write_vote_brief(decision: PlanDecision | None, seat: str, funded: Sequence[str], style: Style) -> str:
    """What a seat reads before it votes; `funded` are the names of its own part that is funded.

    Example (short): "Decision B without your part. Vote."
    """
    if decision is None:
        outcome = "No decision." if style == "short" else "ReconcileGPT came to no decision that can be read."
    elif decision.escalate:
        outcome = "Escalated." if style == "short" else "ReconcileGPT hands the case to a person."
    elif style == "short":
        outcome = f"Decision {decision.option} {'with' if funded else 'without'} your part."
    else:
        own = f"Your part is funded: {', '.join(funded)}." if funded else "No part of yours is funded."
        outcome = f"The decision is option {decision.option}. {own}"
    return f"{outcome} Vote." if style == "short" else f"{outcome} {VOTE_SCHEMA}"
