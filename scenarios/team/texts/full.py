"""All texts at the table for any capable model: who it is, what is decided, every rule, the exact schema.

System texts hold what is the same in every case, briefs what belongs to one case. A seat's own structures are
written by its domain.
"""

import json
from collections.abc import Mapping, Sequence

from roles.limits import ANSWER_RULES, MAX_SEAT_CALLS, TOOL_RULES
from roles.registry import ROLES
from roles.team import (
    MAX_CONFLICTS,
    MAX_NOTE_CHARS,
    MAX_NOTE_WORDS,
    MAX_REASON_CHARS,
    MAX_REASON_WORDS,
    MOST_FIGURE,
    Ask,
    Decision,
    OfferReply,
    Report,
    Vote,
)
from scenarios.company.domain import Terms, write_terms
from scenarios.company.domains import DOMAINS
from scenarios.company.records import Part
from scenarios.team.listed_seat import is_listed, needed_on, upgrades_on
from scenarios.team.offers import MAX_NAME_CHARS, CheckedReport, Table, TabledOffer, find_part, offers_on
from scenarios.team.playable import PlayableCase, PublicCase, Seat

# By wording of the case:
NOTHING_BOUGHT = (
    "before any spending",
    "as it stands",
    "if nothing is bought for it",
    "without any spending",
    "with no part bought",
)
REQUESTS = (
    "Report to the table.",
    "What do you report to the table?",
    "Tell the table what you offer.",
    "Now make your report.",
    "The table waits for your report.",
)
OFFERS = ("offers", "proposes", "would buy", "puts forward", "asks for")
PLAN_RULES = (
    "The company chooses one option and funds at most one part per seat on it. The plan is worth the "
    "option's value before any spending plus the worth of the funded parts, in k$ a month. All parts "
    "together may cost at most the budget; unspent money is worth nothing. A plan over the budget, or one "
    "that breaks a hard limit of any seat, is worth 0."
)
PART_RULES = (
    "A part is any set of the upgrades on offer for one option. Its cost is the sum of the costs of its "
    "upgrades, unless a rule below says otherwise. Its worth is what your figures are worth with it, less "
    "what they are worth when nothing is bought."
)
LISTED_RULES = (
    "A part is any set of the upgrades on offer for one option; costs and worths of its upgrades add up."
)
WORDS_RULES = (
    "A part is anything in your field that you would buy to make an option better. No list of them is "
    "given: name a part in a few words and estimate its cost and its worth in k$ a month from what you know. "
    f"At most {MAX_NAME_CHARS} characters of a name are read."
)
REPORT_SCHEMA = (
    "Answer with one JSON object and nothing after it. Its keys: `offers`, a list with at most {most} per "
    "option, each {{option, part, cost, worth}}: the letter, the list of names of what you buy (at least "
    "one), its cost and its worth in whole k$ within {most_figure:,}; `needs`, the list of options that "
    "break your hard limit unless something is bought there; `veto`, the list of options that break it "
    "whatever you buy; `note` for ReconcileGPT, cut at {words} words ({chars} characters). What is malformed "
    "is struck out alone, and what else you report stands.{checks} Example of another case:\n"
    '{{"offers": [{{"option": "A", "part": ["spare gateway"], "cost": 9, "worth": 14}}], "needs": ["A"], '
    '"veto": [], "note": "A fails its limit without the spare gateway."}}'
)
CHECKS = (
    " Claims are checked: a false figure, need or veto is struck out, and so is an offer of a part that "
    "breaks your hard limit."
)
REPLY_SCHEMA = (
    "Answer with one JSON object: the best part of yours on this option that costs no more and keeps your "
    "hard limit, or null where there is none. It has the keys of an offer in your report. Example of another "
    "case:\n"
    '{"offer": {"option": "A", "part": ["faster switch"], "cost": 15, "worth": 22}}'
)
DECISION_SCHEMA = (
    'Answer with one JSON object and nothing after it. Its keys: `option`, the letter, or "none" to '
    "escalate; "
    "`fund`, the list of labels (in square brackets) of the offers on this option that you fund, at most "
    "one of each seat; `escalate`, true only where no option can be run within the budget (then `option` "
    "is "
    '"none" and `fund` is []); `conflicts`, a list of where the seats pull apart, a few words each, of which '
    f"{MAX_CONFLICTS} are kept; `reason`, one or two sentences, of which {MAX_REASON_CHARS} characters are "
    "kept; both may be left out. Example of another case:\n"
    '{"option": "B", "fund": ["cto", "risk"], "escalate": false, "conflicts": ["A looks better before the '
    'offers"], "reason": "B with both offers is worth 71 at cost 38 of 40."}'
)
ASK_RULE = (
    "Before you decide you may ask one seat for another offer, {most}; write this object alone instead of "
    "a "
    'decision, and you read the table again with its reply: {{"ask": {{"seat": "cto", "option": "A", '
    '"cost_at_most": 15}}}}. The cost is in whole k$, from 0 to {most_figure:,}.'
)
VOTE_SCHEMA = (
    "Vote on the decision. Object if it breaks your own hard limit as it is funded, or if there is no "
    "decision; accept otherwise, also where you would have preferred another plan or the case is handed to "
    "a person. Answer with one JSON object: "
    '{"vote": "accept"} or {"vote": "object", "reason": "one sentence"}. '
    f"ReconcileGPT reads the first {MAX_REASON_WORDS} words of a reason, at most {MAX_NOTE_CHARS} characters."
)
SEAT_TOOLS = (
    "Tools: describe(option) shows everything that you know of the option and what every upgrade does; "
    "measure(option, part) tells the exact figures, the cost and the worth of a part and whether your hard "
    f"limit holds. Measure a part before you offer it. You may call tools {MAX_SEAT_CALLS} times in all. "
    f"{TOOL_RULES}"
)
RECONCILER_TOOLS = (
    "Tools: total(option, fund) tells what an option costs and is worth with these offers and whether it "
    "can be run; sheet() does so for every option with its offers funded by worth per k$ while money "
    f"lasts, which is not always the best choice. You may call tools {MAX_SEAT_CALLS} times in all. "
    f"{TOOL_RULES}"
)


def title_of(role: str) -> str:
    """The seat as people say it."""
    return ROLES[role].title if role in ROLES else role.replace("_", " ").capitalize()


def write_specialist_system(seat: Seat, public: PublicCase, *, with_tools: bool) -> str:
    """The system text of a specialist; it depends on the seat's kind alone, not on the case."""
    domain = DOMAINS[seat.role] if "structures" in seat.facts else None
    is_checked = domain is not None or is_listed(seat)
    rules = [LISTED_RULES if is_listed(seat) else WORDS_RULES]
    if domain is not None:
        rules = [PART_RULES, f"Rules of the figures. {domain.rules}"]
    return "\n\n".join(
        text
        for text in (
            f"You are {title_of(seat.role)} at a table of specialists who decide with ReconcileGPT how "
            f"a company acts. You alone see the {domain.subject if domain else 'facts'} of your field. For "
            "each option you may offer a part to the table. ReconcileGPT sees only what you report. It "
            "spends one budget over all seats, so an offer that is too dear may not be funded, and one "
            "that is too small wastes the option.",
            PLAN_RULES,
            *rules,
            SEAT_TOOLS if with_tools else "",
            REPORT_SCHEMA.format(
                most=public.offers_per_option,
                most_figure=MOST_FIGURE,
                words=MAX_NOTE_WORDS,
                chars=MAX_NOTE_CHARS,
                checks=CHECKS if is_checked else "",
            ),
            ANSWER_RULES,
        )
        if text
    )


def write_reconciler_system(public: PublicCase, *, with_tools: bool, most_questions: int) -> str:
    """The system text of ReconcileGPT; it does not depend on the case."""
    times = "once" if most_questions == 1 else f"at most {most_questions} times"
    return "\n\n".join(
        text
        for text in (
            "You are ReconcileGPT. Specialists have reported on the same options; each of them sees its "
            "own field alone, and you see their reports alone. You decide for the company: one option, and "
            "which offers on it are funded from one budget.",
            PLAN_RULES,
            "An offer that is marked as needed keeps a hard limit of its seat: without it, or another "
            "offer of the same seat, the option cannot be run. A vetoed option cannot be run at all. "
            "Decide for the plan of the greatest worth; of equal worth the cheaper one.",
            RECONCILER_TOOLS if with_tools else "",
            ASK_RULE.format(most=times, most_figure=MOST_FIGURE) if most_questions else "",
            DECISION_SCHEMA,
            ANSWER_RULES,
        )
        if text
    )


def write_public(public: PublicCase) -> str:
    """The case as all seats read it."""
    lines = [public.situation, ""] if public.situation else []
    lines += [
        f"Option {letter}: {option.name}. Worth {option.base} k$ a month {NOTHING_BOUGHT[public.wording]}."
        for letter, option in public.options.items()
    ]
    lines.append(f"Budget for all seats together: {public.budget} k$ a month.")
    return "\n".join(lines)


def write_report_brief(case: PlayableCase, seat: Seat, *, with_tools: bool) -> str:
    """Write what a specialist reads of the case: public facts, its terms, what can be bought, the request."""
    facts = write_seat_facts(case, seat, with_tools=with_tools)
    return "\n".join([write_public(case.public), "", *facts, REQUESTS[case.public.wording]])


def write_seat_facts(case: PlayableCase, seat: Seat, *, with_tools: bool) -> list[str]:
    """Write what the seat alone knows, line by line; without tools all that they would describe."""
    lines = []
    if "words" in seat.facts:
        lines.append(f"What you know: {seat.facts['words']}")
    if "structures" in seat.facts:
        domain, structures = DOMAINS[seat.role], seat.facts["structures"]
        terms = Terms(rates=seat.facts["rates"], limits=seat.facts["limits"])
        lines.append(write_terms(domain, terms, case.public.wording, structures.values()))
        for option in case.options:
            lines += _write_now(case, seat, option)
            offered = domain.write_upgrades(structures[option])
            lines.append(f"Upgrades on option {option}, with their cost: {offered}.")
        if not with_tools:
            lines += [f"Option {option} in full.\n{describe(seat, option)}" for option in case.options]
    elif is_listed(seat):
        lines += [describe(seat, option) for option in case.options]
    return lines


def _write_now(case: PlayableCase, seat: Seat, option: str) -> list[str]:
    """A line on the figures while nothing is bought, by which a need shows; none where nobody can tell."""
    nothing = find_part(case, seat.role, option, [])
    return [] if nothing is None else [f"Option {option} as it is: {_write_figures(seat, nothing)}."]


def write_report(case: PlayableCase, seat: str, report: Report) -> str:
    """The report as a model in this style writes it."""
    return json.dumps(report.model_dump())


def write_decision(decision: Decision) -> str:
    """The decision as a model in this style writes it."""
    return json.dumps(decision.model_dump(mode="json"))


def describe(seat: Seat, option: str) -> str:
    """Everything that the seat knows of one option."""
    if "structures" in seat.facts:
        return DOMAINS[seat.role].describe(seat.facts["structures"][option])
    upgrades = upgrades_on(seat, option)
    listed = ", ".join(f"{name} (cost {u['cost']}, worth {u['worth']})" for name, u in upgrades.items())
    limit = ""
    if option in seat.facts.get("veto", ()):
        limit = " It breaks your hard limit whatever you buy."
    elif needed := needed_on(seat, option):
        limit = f" It breaks your hard limit unless you buy {' and '.join(needed)}."
    return f"Option {option}: upgrades {listed or 'none'}.{limit}"


def write_measured(seat: Seat, part: Part) -> str:
    """The observation of the tool measure."""
    return _write_figures(seat, part, f"cost {part.cost}, worth {part.worth}; ")


def _write_figures(seat: Seat, part: Part, costs: str = "") -> str:
    figures = f"{DOMAINS[seat.role].write_figures(part.figures)}; " if "structures" in seat.facts else ""
    return f"{figures}{costs}hard limit {'holds' if part.keeps_limit else 'BREAKS'}"


def write_decision_brief(
    public: PublicCase, table: Table, ruled_out: Sequence[str] = (), *, may_ask: bool = False
) -> str:
    """All that ReconcileGPT learns: public facts, offers by option, needs, vetoes and notes.

    `may_ask` changes nothing here: the system text says what may be asked, and a tool shows the sheet.
    """
    lines = [public.situation] if public.situation else []
    for option in public.options:
        if option in ruled_out:
            lines.append(f"Option {option} is ruled out.")
        else:
            lines += _write_option(public, table, option)
    lines += [
        f"{title_of(seat)} gave no report that can be read." for seat in public.seats if not table.get(seat)
    ]
    for seat, report in table.items():
        if report is not None and report.note:
            lines.append(f"Note of {title_of(seat)}: {report.note}")
        if report is not None and report.false_claims:
            lines.append(
                f"{title_of(seat)}: claims that were struck out as false: {len(report.false_claims)}."
            )
    lines.append(f"Budget: {public.budget} k$ a month.")
    return "\n".join(lines)


def _write_option(public: PublicCase, table: Table, option: str) -> list[str]:
    reports = {seat: report for seat, report in table.items() if report is not None}
    offers = offers_on(table, option)
    offering = {offer.seat for offer in offers}
    facts = public.options[option]
    lines = [f"Option {option}: {facts.name}. Worth {facts.base} k$ {NOTHING_BOUGHT[public.wording]}."]
    lines += [_write_offer(offer, reports[offer.seat], OFFERS[public.wording]) for offer in offers]
    for seat, report in reports.items():
        if option in report.veto:
            lines.append(f"- {title_of(seat)} vetoes it: its limit breaks whatever it buys.")
        elif option in report.needs and seat not in offering:
            lines.append(f"- {title_of(seat)} needs a part on it and offers none: it cannot be run.")
    return lines if len(lines) > 1 else [*lines, "- no offers."]


def _write_offer(offer: TabledOffer, report: CheckedReport, offers: str) -> str:
    needed = offer.option in report.needs
    return (
        f"- [{offer.label}] {title_of(offer.seat)} {offers} {', '.join(offer.choice)}: cost {offer.cost} k$, "
        f"worth {offer.worth} k$.{' Needed: the limit of this seat breaks without it.' if needed else ''}"
    )


def write_ask(ask: Ask) -> str:
    """Write what a seat reads when ReconcileGPT asks it for another offer."""
    return (
        f"ReconcileGPT asks you for another offer on option {ask.option} that costs at most "
        f"{ask.cost_at_most} k$. {REPLY_SCHEMA}"
    )


def write_reply(case: PlayableCase, seat: str, reply: OfferReply) -> str:
    """The reply as a model in this style writes it."""
    return json.dumps(reply.model_dump())


def write_vote_brief(
    public: PublicCase, decision: Decision | None, funded: Mapping[str, str], seat: str
) -> str:
    """Write what a seat reads before it votes; `funded` maps seats to what is funded of theirs, in words."""
    if decision is None:
        outcome = "ReconcileGPT came to no decision that can be read."
    elif decision.escalate:
        outcome = "ReconcileGPT hands the case to a person."
    else:
        own = f"Your part is funded: {funded[seat]}." if seat in funded else "No part of yours is funded."
        others = [f"{title_of(other)}: {part}" for other, part in funded.items() if other != seat]
        outcome = f"The decision is option {decision.option}. {own}"
        if others:
            outcome += f" Funded of the other seats: {'; '.join(others)}."
    return f"{outcome} {VOTE_SCHEMA}"


def write_objection_brief(objections: Mapping[str, Vote]) -> str:
    """Write what ReconcileGPT reads when seats object to its decision."""
    lines = [
        f"{title_of(seat)} objects{f': {vote.reason}' if vote.reason else '.'}"
        for seat, vote in objections.items()
    ]
    return "\n".join([*lines, f"Decide again. {DECISION_SCHEMA}"])
