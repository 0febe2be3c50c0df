"""Writes a request as text for a person at a terminal, from what is signed.

Every line of words that a seat, ReconcileGPT or the case's author wrote begins with a bar, so that none of
them looks like a line of the gate's.
"""

import textwrap
from collections.abc import Iterator

from roles.team import NO_OPTION
from simulator.conflicts import Conflict
from simulator.governance.gate.approvals import OptionLine, Proposal, ReportLine
from simulator.governance.gate.request_form import ReviewRequest

WIDTH = 100
TYPES = {
    "routine": "routine: low risk, no hard conflict",
    "contested": "contested: seats disagree",
    "critical": "critical: high risk",
    "escalation": "handed to you: the team has no plan",
}
HELP = """\
approve  the plan is carried out exactly as shown, once; nothing else is
edit     you name another option; its best plan is shown to you again before anything is carried out
reject   the team drafts anew without this option; you are asked why, and it reads your answer
help     shows this text
End of input (Ctrl-D) decides nothing: the case waits, and the same command asks you again.
Only the whole word counts. Your answer is signed for the digest at the end of the request."""


def render_request(request: ReviewRequest) -> str:
    """Write the request as text for a terminal; nothing in it can move the cursor or hide a line."""
    return "\n".join(map(show, _write_lines(request)))


def show(text: str) -> str:
    """Escape unprintable characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_lines(request: ReviewRequest) -> Iterator[str]:
    proposal = request.proposal
    yield f"Case {proposal.case}: {proposal.words.title}"
    yield from _quote(proposal.words.context)
    yield f"Money: {_say_money(proposal)}"
    yield "Options and their best plans by the reports, in k$"
    for line in proposal.options:
        mark = "->" if line.option == proposal.option else "  "
        yield f"  {mark} {line.option}: {_say_option_line(line)}"
        yield from _quote(proposal.words.meanings.get(line.option, "no words were given"), indent=7)
    yield f"Proposal, attempt {proposal.attempt + 1}, revision {proposal.revision}: {_say_option(proposal)}"
    yield f"  {TYPES[proposal.decision_type]}; risk {proposal.risk_score} of 12"
    if proposal.reason:
        yield "  ReconcileGPT's reason"
        yield from _quote(proposal.reason, indent=4)
    yield (
        f"  responsible: {' '.join(proposal.responsible)}; accountable: {proposal.accountable}; "
        f"consulted: {' '.join(proposal.consulted) or 'nobody else'}"
    )
    yield "Offers of each seat (* is funded)"
    for role, report in proposal.reports.items():
        yield from _spell_report(role, report)
    for conflict in proposal.conflicts:
        yield f"  conflict over {conflict.option}: {_say_conflict(conflict)}"
    yield from (f"  condition: {condition}" for condition in proposal.conditions)
    yield "Carried out if you approve" if proposal.parts else "Nothing is carried out if you approve"
    for part in proposal.parts:
        yield (
            f"  {part.role}: {part.action} (alert under {part.kpi_floor} percent of its hard limit, or over "
            f"{part.most_lost} k$ lost)"
        )
    if proposal.changes:
        yield "Changed since the last proposal"
        yield from (f"  {change}" for change in proposal.changes)
    yield from (f"Similar case before: {case}" for case in proposal.precedents)
    if request.refusal:
        yield f"The answer before did not count: {request.refusal}"
    yield f"Digest of the proposal: {proposal.digest}"


def _quote(text: str, *, indent: int = 2) -> Iterator[str]:
    """Yield words of others in lines that fit a terminal, a bar before each."""
    bar = " " * indent + "| "
    for paragraph in text.splitlines():
        yield from textwrap.wrap(paragraph, WIDTH, initial_indent=bar, subsequent_indent=bar)


def _say_money(proposal: Proposal) -> str:
    if proposal.attempt:
        return f"{proposal.budget} k$ are left, the reserve included"
    return f"budget {proposal.budget} k$, reserve {proposal.reserve} k$ for what nobody foresaw"


def _say_option_line(line: OptionLine) -> str:
    if line.worth is None:
        return f"Cannot be run: {line.obstacle}"
    return (
        f"{line.base} before spending, {line.worth} with {' '.join(line.fund) or 'nothing'} for {line.cost}"
    )


def _say_option(proposal: Proposal) -> str:
    if proposal.option == NO_OPTION:
        return "no option"
    return (
        f"option {proposal.option}; cost {proposal.cost} of {proposal.budget} k$, worth {proposal.worth} k$"
    )


def _spell_report(role: str, report: ReportLine | None) -> Iterator[str]:
    if report is None:
        yield f"  {role}: reports nothing valid"
        return
    for offer in report.offers:
        mark = "*" if offer.is_funded else " "
        needed = ", needed" if offer.option in report.needs else ""
        price = f"cost {offer.cost}, worth {offer.worth}{needed}"
        yield f" {mark} {role} on {offer.option}: {', '.join(offer.part)}; {price}"
    if report.veto:
        yield f"  {role} vetoes {' '.join(report.veto)}"
    if report.note:
        yield f"  {role} notes"
        yield from _quote(report.note, indent=4)
    if report.num_false_claims:
        yield f"  {role}: {report.num_false_claims} claims were struck out as false"
    if not report.offers and not report.veto:
        yield f"  {role} offers nothing"


def _say_conflict(conflict: Conflict) -> str:
    if conflict.is_hard:
        return f"{' '.join(conflict.ruled_out_by)} rule it out"
    return f"the offers of {' '.join(conflict.wanted_by)} cost {conflict.over_budget} k$ more than there is"
