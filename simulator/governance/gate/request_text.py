"""Writes a request as text for a person at a terminal, from what is signed."""

import textwrap
from collections.abc import Iterator

from roles.team import NO_OPTION
from simulator.governance.gate.approvals import Proposal, ReportLine
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
edit     you name another option; its plan is shown to you again before anything is carried out
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
    for paragraph in proposal.words.context.splitlines():
        yield from textwrap.wrap(paragraph, WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield "Options (percent of the seats' pressing that is behind each)"
    for option, score in proposal.option_scores.items():
        mark = "->" if option == proposal.option else "  "
        meaning = proposal.words.meanings.get(option, "no words were given")
        yield f"  {mark} {option} {score:3} %  {meaning}"
    yield f"Proposal, attempt {proposal.attempt + 1}, revision {proposal.revision}: {_say_option(proposal)}"
    yield f"  {TYPES[proposal.decision_type]}; risk {proposal.risk_score} of 12"
    yield f"  accountable: {proposal.accountable}"
    yield "Reports"
    for role, report in proposal.reports.items():
        yield f"  {role} {_spell_report(report)}"
    for conflict in proposal.conflicts:
        against = f", {' '.join(conflict.ruled_out_by)} rule it out" if conflict.is_hard else ""
        yield f"  conflict over {conflict.option}: {' '.join(conflict.wanted_by)} want it{against}"
    yield from (f"  condition: {condition}" for condition in proposal.conditions)
    yield "Carried out if you approve" if proposal.parts else "Nothing is carried out if you approve"
    for part in proposal.parts:
        yield f"  {part.role}: {part.action} (alert under {part.kpi_floor} percent of its hard limit)"
    if proposal.changes:
        yield "Changed since the last proposal"
        yield from (f"  {change}" for change in proposal.changes)
    yield from (f"Similar case before: {case}" for case in proposal.precedents)
    if request.refusal:
        yield f"The answer before did not count: {request.refusal}"
    yield f"Digest of the proposal: {proposal.digest}"


def _say_option(proposal: Proposal) -> str:
    if proposal.option == NO_OPTION:
        return "no option"
    meaning = proposal.words.meanings.get(proposal.option)
    return f"option {proposal.option}" + (f", {meaning}" if meaning else "")


def _spell_report(report: ReportLine | None) -> str:
    if report is None:
        return "reports nothing valid"
    vetoes = f"rules out {' '.join(report.veto)}" if report.veto else "rules out nothing"
    return f"wants {report.pick} (presses {report.flag} of 3), {vetoes}"
