"""A person rules on plans at the terminal, or plays a seat there or in the browser.

Who plays a seat reads what it reads, looks up, and answers. At the terminal a form asks for one field of the
answer's schema after the other; in the browser the review app shows it whole. An answer that the schema
refuses is asked again, so a slip of the hand is never held against the team. End of input at the terminal
leaves the seat, and so the case.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from roles.base import Answer, AnswerError, Tool, parse_answer
from roles.errors import InfrastructureError
from roles.team import guess_form, list_forms
from scenarios.base import ToolCall
from serving.review.request_view import render_request
from serving.review.turns import SeatDesk, make_turn
from simulator.chat import MessageChat, Said, read_opening
from simulator.engines.base import Completion, CompletionRequest
from simulator.governance.gate import TERMINAL
from simulator.governance.proposal import MAX_FEEDBACK_CHARS, ReviewRequest, ReviewResponse, Ruling
from simulator.terminal import STANDARD, Terminal, show
from simulator.tool_calls import format_tool_call

LOOK, RAW = "look", "json"
POLL_S = 0.1  # between two looks for an answer of the web app
HELP = """\
approve  the plan is carried out exactly as shown, once; nothing else is
edit     you name another option; its best plan is shown to you again before anything is carried out
reject   the team drafts anew without this option; you are asked why, and it reads your answer
help     shows this text
End of input (Ctrl-D) decides nothing: the case waits, and the same command asks you again.
Only the whole word counts. Your answer holds for the digest at the end of the request."""


class PersonEngine:
    """Completes turns with what a person at the terminal says; one question at a time.

    Transcripts are MessageChat's.
    """

    def __init__(self, terminal: Terminal = STANDARD) -> None:
        """See Terminal.require_person."""
        terminal.require_person("a seat played by `human` needs a terminal; give the seat another player")
        self._read_line, self._write = terminal.read_line, terminal.write
        self._chat, self._lock = MessageChat(), asyncio.Lock()
        self._num_shown: dict[str, int] = {}  # session -> messages that the person has read

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete.

        Raises:
            InfrastructureError: the person ended the input.
        """
        async with self._lock:
            try:
                text = await asyncio.to_thread(self._ask, request)
            except EOFError:
                raise InfrastructureError(f"the person who plays {request.policy} left") from None
        return _complete(request, self._chat, text)

    def end_session(self, session: str) -> None:
        """Forget what was shown of the transcript."""
        self._num_shown.pop(session, None)

    def _ask(self, request: CompletionRequest) -> str:
        """Show what is new and return the turn's text."""
        said = self._chat.read(request.prompt_ids)
        role, with_tools = read_opening(said[0].text)
        self._show(request, said, f"You play {role.title} in {request.session}.\n{role.mandate}")
        self._num_shown[request.session] = len(said) + 1  # and what the person now says
        tools = {tool.name: tool for tool in role.tools} if with_tools else {}
        forms = list_forms(request.policy)
        usual = guess_form(request.policy, [one.text for one in said if one.speaker == "user"])
        words = [*forms, *([LOOK] if tools else []), RAW]
        while True:
            word = self._read_line(f"{', '.join(words)} ({usual})? ").strip() or usual
            if word in forms:
                text = self._fill(forms[word])
            elif word == LOOK and tools:
                text = self._look(tools)
            elif word == RAW:
                text = self._read_line("one line of JSON: ")
                text = text if _is_any(text, forms) else self._refuse("no answer of this seat is so")
            else:
                text = self._refuse(f"{show(word)!r} is none of {', '.join(words)}")
            if text:
                return text

    def _show(self, request: CompletionRequest, said: list[Said], opening: str) -> None:
        known = self._num_shown.get(request.session, 0)
        if known == 0:
            self._write(f"\n{_show_lines(opening)}\n")
        for one in said[max(1, known) :]:
            self._write(_show_lines(one.text if one.speaker != "assistant" else f"(you said) {one.text}"))

    def _refuse(self, why: str) -> str:
        self._write(why)
        return ""

    def _fill(self, schema: type[Answer]) -> str:
        """Ask for all fields; return the answer as JSON, or "" where the schema refuses it."""
        whole = schema.model_json_schema()
        value = self._read_object(whole, whole.get("$defs", {}), "")
        text = json.dumps(value)
        try:
            parse_answer(text, schema)
        except AnswerError as error:
            return self._refuse(f"not an answer: {error}; once more")
        return text

    def _look(self, tools: Mapping[str, Tool]) -> str:
        """Ask for a tool and its arguments; return the call."""
        name = self._read_line(f"tool ({', '.join(tools)})? ").strip()
        if name not in tools:
            return self._refuse(f"{show(name)!r} is no tool here")
        parameters = tools[name].parameters
        self._write(tools[name].description)
        arguments = self._read_object(parameters, parameters.get("$defs", {}), "")
        return format_tool_call("", ToolCall(name=name, arguments=arguments))

    def _read_object(self, node: Mapping[str, Any], defs: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        return {
            name: self._read(part, defs, f"{prefix}{name}")
            for name, part in node.get("properties", {}).items()
        }

    def _read(self, node: Mapping[str, Any], defs: Mapping[str, Any], name: str) -> Any:
        if "$ref" in node:
            return self._read(defs[node["$ref"].rpartition("/")[2]], defs, name)
        if "anyOf" in node:  # of an object and nothing
            (kind,) = [one for one in node["anyOf"] if one.get("type") != "null"]
            return self._read(kind, defs, name) if self._is_yes(f"{name}: give one") else None
        match node.get("type"):
            case "object":
                return self._read_object(node, defs, f"{name}.")
            case "array":
                item = node["items"]
                if "$ref" in item or item.get("type") == "object":
                    rows: list[Any] = []
                    while self._is_yes(f"{name}: {'another' if rows else 'one'}"):
                        rows.append(self._read(item, defs, f"{name}[{len(rows) + 1}]"))
                    return rows
                line = self._read_line(f"{name} (with commas between)? ")
                return [word.strip() for word in line.split(",") if word.strip()]
            case "boolean":
                return self._is_yes(name)
            case "integer" | "number":
                return self._read_number(name)
            case _:
                known = f" ({', '.join(node['enum'])})" if "enum" in node else ""
                return self._read_line(f"{name}{known}? ").strip()

    def _is_yes(self, question: str) -> bool:
        while (word := self._read_line(f"{question} (yes or no)? ").strip().lower()) not in ("yes", "no", ""):
            self._write("yes or no")
        return word == "yes"

    def _read_number(self, name: str) -> int:
        while True:
            text = self._read_line(f"{name} (whole number)? ").strip()
            if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 12:
                return int(text)
            self._write(f"{show(text)!r} is no whole number")


class WebPersonEngine:
    """Completes turns with what people answer in the review app; the simulation waits, whoever else goes on.

    Transcripts are MessageChat's.
    """

    def __init__(self, store: Path, *, poll_s: float = POLL_S) -> None:
        """`store`: of the gate; the turns stand beside it."""
        self._desk, self._poll_s, self._chat = SeatDesk(store), poll_s, MessageChat()

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete."""
        said = self._chat.read(request.prompt_ids)
        most_chars = request.sampling.max_completion_tokens - 1
        turn = make_turn(request.session, request.policy, said, most_chars)
        self._desk.ask(turn)
        while (answer := self._desk.find_answer(turn.id)) is None:
            await asyncio.sleep(self._poll_s)
        return _complete(request, self._chat, answer.text)

    def end_session(self, session: str) -> None:
        """Keep everything: a turn may be asked again."""


def _complete(request: CompletionRequest, chat: MessageChat, text: str) -> Completion:
    ids = (*chat.encode(text), chat.end_id)
    most = request.sampling.max_completion_tokens
    return Completion(
        token_ids=ids[:most],
        logprobs=(0.0,) * min(len(ids), most),
        finish_reason="stop" if len(ids) <= most else "length",
        policy_version=f"{request.policy}@human",
    )


def _is_any(text: str, forms: Mapping[str, type[BaseModel]]) -> bool:
    for schema in forms.values():
        try:
            parse_answer(text, schema)  # type: ignore[type-var]
        except AnswerError:
            continue
        return True
    return False


def _show_lines(text: str) -> str:
    """Escape what could move the cursor or hide a line."""
    return "\n".join(map(show, text.splitlines()))


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
