"""Reviewers at the gate: a person at the terminal, a simulated one, an absent one; a request as their text.

A reviewer only says what it thinks of what it is shown; the desk keeps the answer. Every line of words that
a seat, ReconcileGPT or the case's author wrote begins with a bar, so that none of them looks like a line of
the gate's.
"""

import asyncio
import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Protocol

from roles.errors import UserError
from roles.team import NO_OPTION
from simulator.conflicts import Conflict
from simulator.governance.gate import SIMULATED, TERMINAL, WEB
from simulator.governance.proposal import (
    MAX_FEEDBACK_CHARS,
    OptionLine,
    Proposal,
    ReportLine,
    ReviewRequest,
    ReviewResponse,
    Ruling,
)
from simulator.terminal import STANDARD, Terminal

POLL_S = 0.1  # between two looks for an answer of the web app
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
Only the whole word counts. Your answer holds for the digest at the end of the request."""


class Reviewer(Protocol):
    """Answers proposals; under any name but "simulated" it stands for a person, registered with the desk."""

    name: str

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        """Answer the request; None where there is no answer yet, and the case waits."""
        ...


class AbsentReviewer:
    """Never answers: cases wait at the gate until the review desk has an answer, as of a web reviewer."""

    name = "absent"

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        return None


class WebReviewer:
    """Waits until people have answered a request in the browser; the desk then finds their answer.

    It signs nothing: the web app hands answers to the desk of its own process, on the same store.
    """

    name = WEB

    def __init__(self, find_answer: Callable[[str], object | None], *, poll_s: float = POLL_S) -> None:
        """`find_answer` looks an answer up in the store, by interrupt."""
        self._find_answer, self._poll_s = find_answer, poll_s

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        """Return None once the store holds an answer."""
        while self._find_answer(request.interrupt_id) is None:
            await asyncio.sleep(self._poll_s)
        return None


class SimulatedReviewer:
    """A scored policy with a stated error rate.

    It scores the proposed plan and the best plan of every other option, approves a proposal that comes close
    enough to the best of them, sends a worse one back, and edits an escalation into the best option where
    one can be run. With probability `error_rate`, drawn from seed and plan, it does the opposite: approves
    what it should send back, and the other way round.
    """

    name = SIMULATED

    def __init__(
        self,
        score: Callable[[ReviewRequest, str], float],
        *,
        error_rate: float = 0.0,
        seed: int = 0,
        least_share: float = 1.0,
    ) -> None:
        """`score` values an option's plan ("none": handing the case on), the greater the better.

        Raises:
            UserError: error_rate or least_share outside [0, 1].
        """
        for name, value in (("error_rate", error_rate), ("least_share", least_share)):
            if not 0 <= value <= 1:
                raise UserError(f"{name} must be 0 to 1, got {value}")
        self._score, self._error_rate, self._seed = score, error_rate, seed
        self._least_share = least_share  # of the best score that a proposal must reach

    async def review(self, request: ReviewRequest) -> ReviewResponse:
        """See Reviewer.review."""
        rng = random.Random(f"reviewer/{self._seed}/{request.proposal.plan_digest}")
        is_sound, best = self._weigh(request)
        if is_sound != (rng.random() < self._error_rate):
            return ReviewResponse(decision="approve")
        if request.proposal.option == NO_OPTION and best != NO_OPTION:
            return ReviewResponse(decision="edit", option=best)
        return ReviewResponse(decision="reject", feedback=f"{request.proposal.option} does not convince.")

    def _weigh(self, request: ReviewRequest) -> tuple[bool, str]:
        """Return whether the proposal is worth enough, and the best option that can be run."""
        options = [line.option for line in request.proposal.options if line.worth is not None]
        scores = {option: self._score(request, option) for option in (*options, NO_OPTION)}
        best = max(scores, key=scores.__getitem__)
        proposed = scores.get(request.proposal.option, scores[NO_OPTION])
        return proposed >= self._least_share * scores[best], best


def score_by_worth(request: ReviewRequest, option: str) -> float:
    """Score an option without the truth: k$ of its plan by the reports, 0 for handing the case on.

    The proposed option counts with the plan that is proposed, another one with its best plan.
    """
    proposal = request.proposal
    if option == NO_OPTION:
        return 0.0
    if option == proposal.option:
        return float(proposal.worth)
    return float(next((line.worth or 0 for line in proposal.options if line.option == option), 0))


class TerminalReviewer:
    """A person at the terminal. Only the exact words count; anything else is asked again."""

    name = TERMINAL

    def __init__(self, terminal: Terminal = STANDARD) -> None:
        """See Terminal.require_person."""
        terminal.require_person("--reviewer terminal needs a terminal; choose --reviewer simulated")
        self._read_line, self._write = terminal.read_line, terminal.write

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        """See Reviewer.review; end of input leaves the case waiting."""
        self._write(render_request(request))
        try:
            return await asyncio.to_thread(self._ask, request)
        except EOFError:
            return None

    def _ask(self, request: ReviewRequest) -> ReviewResponse:
        rulings: dict[str, Ruling] = {"approve": "approve", "edit": "edit", "reject": "reject"}
        while (word := self._read_line("approve, edit, reject or help? ").strip()) not in rulings:
            is_help = word in ("help", "?")
            self._write(HELP if is_help else f"{show(word)!r} is none of approve, edit, reject, help")
        if word == "edit":
            options = [line.option for line in request.proposal.options if line.worth is not None]
            while (option := self._read_line(f"option ({' '.join(options)})? ").strip()) not in options:
                self._write(f"{show(option)!r} is no option that can be run")
            return ReviewResponse(decision="edit", option=option)
        feedback = self._read_line("why? ").strip() if word == "reject" else ""
        return ReviewResponse(decision=rulings[word], feedback=feedback[:MAX_FEEDBACK_CHARS])


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
