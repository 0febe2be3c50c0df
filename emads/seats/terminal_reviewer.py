"""A person at the terminal who rules on plans."""

import asyncio

from serving.review.request_view import render_request
from simulator.governance.gate import TERMINAL
from simulator.governance.proposal import MAX_FEEDBACK_CHARS, ReviewRequest, ReviewResponse, Ruling
from simulator.terminal import STANDARD, Terminal, show

HELP = """\
approve  the plan is carried out exactly as shown, once; nothing else is
edit     you name another option; its best plan is shown to you again before anything is carried out
reject   the team drafts anew without this option; you are asked why, and it reads your answer
help     shows this text
End of input (Ctrl-D) decides nothing: the case waits, and the same command asks you again.
Only the whole word counts. Your answer holds for the digest at the end of the request."""


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
