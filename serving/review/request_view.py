"""A request at the gate as its page and the terminal show it: what is signed, and what the seats wrote.

Request and transcripts come from the store's sealed log. At the terminal every line of words that a seat,
ReconcileGPT or the case's author wrote begins with a bar, so that none of them looks like
a line of the gate's.
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluation.minutes.governed import (
    STATUS,
    find_ruling,
    list_option_lines,
    say_condition,
    say_duties,
    say_entry,
    say_money,
    say_time,
)
from evaluation.minutes.meeting import SeatRow, ShownOffer
from evaluation.minutes.words import MAX_BRIEF_CHARS, Tone, say_call, say_conflict, say_titles, visible
from roles.registry import ROLES
from roles.team import NO_OPTION
from simulator.conflicts import Conflict
from simulator.governance.proposal import Proposal, ReportLine, ReviewRequest
from simulator.governance.resolution import MAX_RISK
from simulator.governance.runner import GovernanceServices
from simulator.terminal import show

WIDTH = 100  # of the terminal
TYPES = {
    "routine": "routine: low risk, no hard conflict",
    "contested": "contested: seats disagree",
    "critical": "critical: high risk",
    "escalation": "handed to you: the team has no plan",
}
STEPS = {"report": "reports", "reply": "replies", "vote": "votes", "reconcile": "drafts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """Progress of a request.

    Example: RequestState(word="approved", tone="good", told="by ann")
    """

    word: str
    tone: Tone
    told: str = ""
    next_id: str | None = None  # of the request that came after it in its case
    is_open: bool = False  # it can be ruled on
    is_over: bool = False  # nothing more will happen here


def show_request(request: ReviewRequest) -> dict[str, Any]:
    """Put a request into words, by their names on its page; none of them can hide anything."""
    proposal = request.proposal
    values = proposal.model_dump()
    plan = "First plan" if proposal.attempt == 0 else f"Re-plan {proposal.attempt}"
    meanings = {letter: _tell(words) for letter, words in proposal.words.meanings.items()}
    lines = [
        replace(line, meaning=meanings.get(option.option, ""))
        for option, line in zip(
            proposal.options, list_option_lines(values, proposal.words.meanings, ROLES), strict=True
        )
    ]
    return {
        "digest": proposal.digest,
        "case": visible(proposal.case),
        "title": visible(proposal.words.title),
        "context": _tell(proposal.words.context),
        "plan": plan + (f", revision {proposal.revision}" if proposal.revision else ""),
        "option": "" if proposal.option == NO_OPTION else visible(proposal.option),
        "meaning": meanings.get(proposal.option, ""),
        "money": say_money(values),
        "budget": _say_budget(proposal),
        "duties": say_duties(values, ROLES),
        "kind": TYPES[proposal.decision_type],
        "risk": proposal.risk_score,
        "reason": _tell(proposal.reason),
        "letters": [visible(line.option) for line in proposal.options],
        "options": lines,
        # letter and words of those that an edit may choose
        "open_options": [
            (line.option, f"{line.option}. {meanings.get(line.option, '')}: {shown.best}")
            for line, shown in zip(proposal.options, lines, strict=True)
            if line.worth is not None and line.option != proposal.option
        ],
        "rows": [_make_row(role, proposal.reports[role], proposal) for role in _list_seats(proposal)],
        "notes": list(_list_notes(proposal)),
        "conflicts": [
            say_conflict(Conflict.model_validate({**one.model_dump(), "option": visible(one.option)}), ROLES)
            for one in proposal.conflicts
        ],
        "conditions": [say_condition(one, list(proposal.reports), ROLES) for one in proposal.conditions],
        # as they would be carried out
        "parts": [
            {
                "title": say_titles([part.role], ROLES),
                "action": visible(part.action),
                "bill": f"cost {part.cost}, worth {part.worth}" if part.choice else "-",
                "alarm": f"under {part.kpi_floor} % of its limit, or over {part.most_lost} k$ lost",
            }
            for part in proposal.parts
        ],
        "changes": [visible(change) for change in proposal.changes],
        "precedents": [visible(case) for case in proposal.precedents],
        "refusal": visible(request.refusal),
    }


def _tell(text: str) -> str:
    return visible(text, max_chars=MAX_BRIEF_CHARS)


def render_request(request: ReviewRequest) -> str:
    """Write the request as text for a terminal; nothing in it can move the cursor or hide a line."""
    return "\n".join(map(show, _write_lines(show_request(request))))


def _write_lines(view: Mapping[str, Any]) -> Iterator[str]:
    yield f"Case {view['case']}: {view['title']}"
    yield from _quote(view["context"])
    yield "Options and their best plans by the reports"
    for line in view["options"]:
        yield f"  {'->' if line.note else '  '} {line.letter}: {line.base} k$ before spending; {line.best}"
        yield from _quote(line.meaning or "no words were given", indent=7)
    option = f"option {view['option']}" if view["option"] else "no option"
    yield f"{view['plan']}: {option}. {view['money']} {view['budget']}"
    yield f"  {view['kind']}; risk {view['risk']} of {MAX_RISK}. {view['duties']}"
    if view["reason"]:
        yield "  ReconcileGPT's reason"
        yield from _quote(view["reason"], indent=4)
    yield "Offers of each seat (* is funded)"
    for row in view["rows"]:
        for letter, (offers, obstacle) in zip(view["letters"], row.cells, strict=True):
            for one in offers:
                price = f"cost {one.cost}, worth {one.worth}{', needed' if one.is_needed else ''}"
                yield f" {'*' if one.is_funded else ' '} {row.title} on {letter}: {one.part}; {price}"
            if obstacle:
                yield f"   {row.title} on {letter}: {obstacle}"
    for seat, words, is_own in view["notes"]:
        yield f"  {seat} notes" if is_own else f"  {seat}: {words}"
        yield from _quote(words if is_own else "", indent=4)
    yield from (f"  conflict: {words}" for _, words in view["conflicts"])
    yield from (f"  condition: {condition}" for condition in view["conditions"])
    yield "Carried out if you approve" if view["parts"] else "Nothing is carried out if you approve"
    yield from (f"  {part['title']}: {part['action']} (alert {part['alarm']})" for part in view["parts"])
    if view["changes"]:
        yield "Changed since the last proposal"
        yield from (f"  {change}" for change in view["changes"])
    yield from (f"Similar case before: {case}" for case in view["precedents"])
    if view["refusal"]:
        yield f"The answer before did not count: {view['refusal']}"
    yield f"Digest of the proposal: {view['digest']}"


def _quote(text: str, *, indent: int = 2) -> Iterator[str]:
    """Yield words of others in lines that fit a terminal, a bar before each."""
    bar = " " * indent + "| "
    for paragraph in text.splitlines():
        yield from textwrap.wrap(paragraph, WIDTH, initial_indent=bar, subsequent_indent=bar)


def find_state(services: GovernanceServices, request: ReviewRequest) -> RequestState:
    """Return how far a request is, as the gate tells."""
    standing = services.gate.stand(request.thread)
    display = standing.find(request.interrupt_id)
    assert display is not None
    status, latest = standing.status, standing.latest.interrupt_id
    next_id = None if latest == request.interrupt_id else latest
    if display.ruling == "waiting":
        if status or next_id is not None:
            return RequestState(word="superseded", tone="", next_id=next_id, is_over=True)
        names = [visible(str(answer.body["reviewer"])) for answer in display.answers]
        told = f"{names[0]} approved; a second reviewer is needed" if names else ""
        return RequestState(word="waits for a ruling", tone="warn", told=told, is_open=True)
    who = visible(str(display.answer.body["reviewer"])) if display.answer is not None else ""
    word, tone = find_ruling(display.ruling)
    if display.refusal:
        who = f"{who}: {visible(display.refusal)}".strip(": ")
    told = f"by {who}" if who else ""
    if status and next_id is None:
        told += f". {STATUS.get(status, (status, ''))[0]}"
    elif next_id is None:
        told += "; its case goes on when it is played"
    is_over = next_id is not None or status is not None
    return RequestState(word=word, tone=tone, told=told, next_id=next_id, is_over=is_over)


def list_work(services: GovernanceServices, thread: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """(title, turns) of every seat: what it was told, looked up and answered, as far as the case has come."""
    said: dict[str, list[dict[str, Any]]] = {}
    for entry in services.log.find(thread, "opened", "said"):
        if entry.kind == "opened":
            said = {role: [] for role in entry.body["seats"]}
        else:
            said.setdefault(entry.body["role"], []).append(_show_said(entry.body))
    return [(say_titles([role], ROLES), turns) for role, turns in said.items()]


def list_history(services: GovernanceServices, thread: str) -> list[tuple[str, str, str]]:
    """(time, entry, words) of all that was logged of a case."""
    return [
        (say_time(entry.at_s), entry.kind, visible(say_entry(entry.kind, entry.body)))
        for entry in services.log.read(thread)
        if entry.kind != "said"
    ]


def _show_said(body: Mapping[str, Any]) -> dict[str, Any]:
    texts = [str(turn["text"]) for turn in body["turns"]]
    return {
        "step": STEPS[body["step"]],
        "heard": _tell(body["message"]),
        "calls": [say_call(text) for text in texts[:-1]],
        "text": _tell(body["text"] or (texts[-1] if texts else "")),
    }


def _say_budget(proposal: Proposal) -> str:
    if proposal.attempt:
        return f"{proposal.budget} k$ are left, the reserve included."
    return "The reserve is for what nobody foresaw." if proposal.reserve else ""


def _list_seats(proposal: Proposal) -> list[str]:
    """Return the seats in the order of their parts: a sealed request has its reports in order of name."""
    return list(dict.fromkeys([*(role for role in ROLES if role in proposal.reports), *proposal.reports]))


def _make_row(role: str, report: ReportLine | None, proposal: Proposal) -> SeatRow:
    if report is None:
        silent = tuple(((), "no valid report") for _ in proposal.options)
        return SeatRow(title=say_titles([role], ROLES), cells=silent)
    cells = []
    for line in proposal.options:
        offers = tuple(
            ShownOffer(
                option=offer.option,
                part=visible(", ".join(offer.part)),
                cost=offer.cost,
                worth=offer.worth,
                is_needed=offer.option in report.needs,
                is_funded=offer.is_funded,
            )
            for offer in report.offers
            if offer.option == line.option
        )
        obstacle = "vetoed" if line.option in report.veto else ""
        if not obstacle and not offers and line.option in report.needs:
            obstacle = "needs a part, offers none"
        cells.append((offers, obstacle))
    return SeatRow(title=say_titles([role], ROLES), cells=tuple(cells))


def _list_notes(proposal: Proposal) -> Iterator[tuple[str, str, bool]]:
    for role in _list_seats(proposal):
        report = proposal.reports[role]
        if report is None:
            continue
        title = say_titles([role], ROLES)
        if report.note:
            yield title, _tell(report.note), True
        if report.num_false_claims:
            claims = "claim was" if report.num_false_claims == 1 else "claims were"
            yield title, f"{report.num_false_claims} {claims} struck out as false.", False
