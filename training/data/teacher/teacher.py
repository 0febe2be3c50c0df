"""A teacher model on an OpenAI-compatible endpoint plays lessons; a play is kept if it passes every check.

It is asked turn by turn, and its tool calls are executed for real. Calls are read in both shapes, native
`tool_calls` of the protocol and one <tool_call> in the text. The teacher is told more than the row keeps:
besides the mandate the schema of the answer and how to work. The row holds what an oracle's row holds
(mandate, brief, turns), so that students learn to do without being told, and what the teacher thought, where
that stands up to the check.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import UserError
from scenarios.base import Split, ToolCall
from scenarios.written.strict_yaml import read_settings
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import (
    BudgetSpentError,
    EndpointSettings,
    ToolShape,
    find_completions_url,
    read_api_key,
)
from simulator.engines.openai.reply import CUT, ChatReply, EndpointError, RequestedCall
from simulator.graph.concurrency import run_pool
from simulator.line_files import LineFile, read_lines
from simulator.tool_calls import OPEN, BadToolCallError, describe_tools, parse_tool_calls
from training.config.section import Section, StrictRecord
from training.data.folders.rows import Message, Row, list_tools
from training.data.teacher.checks import (
    PlayedTurn,
    PlayRejection,
    drop_reasoning,
    find_rejection,
    keep_sound_reasoning,
    list_answers,
    observe,
    write_messages,
    write_thoughts,
)
from training.data.teacher.lessons import Lesson

MAX_BRACKETS = 200  # of one call: deeper arguments could not be written back
FORMAT = "emads-teacher/1"  # of journals
NOT_SET_BY_KEY = ("url", "model", "api_key")  # options name the first two; a key is never an argument
_THOUGHTS = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


class TeachingRules(Section):
    """Rules of a teacher's play, and of keeping it. Example: TeachingRules(min_reward=0.9)"""

    min_reward: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Least reward of a kept answer; 1 keeps exact optima with right figures only."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 16
    """Most replies per scenario."""
    tool_shape: ToolShape = "native"
    """Offer of tools: `native` by the protocol, `text` in the system message."""
    reasoning: Literal["sound", "none"] = "sound"
    """Thoughts before a turn: `sound` keeps those that pass the chain check, `none` keeps none."""
    writes: Literal["play", "brief"] = "play"
    """Task of the teacher: `play` demonstrations, `brief` the oracle's brief in other words."""
    max_failures: Annotated[int, Field(ge=1)] = 10
    """Scenarios without a reply, one after another, that end the work."""


def resolve_teacher(
    url: str, model: str | None, overrides: Sequence[str] = ()
) -> tuple[EndpointSettings, TeachingRules]:
    """Return settings from address, model and overrides key=value; `api_key_env` names a variable.

    Raises:
        UserError: no model, unknown key, value out of range, limit without prices, no API key there.
    """
    values: dict[str, Any] = {"url": url, "model": model}
    if model is None:
        raise UserError("--teacher needs --model, the name under which the endpoint serves the model")
    find_completions_url(url)
    fields = [*EndpointSettings.model_fields, *TeachingRules.model_fields]
    known = [*(name for name in fields if name not in NOT_SET_BY_KEY), "api_key_env"]
    values |= read_settings(overrides, known, option="--teacher-set", what="teacher setting")
    variable = values.pop("api_key_env", None)
    if variable is not None:
        values["api_key"] = read_api_key(variable)
    rules = {key: values.pop(key) for key in TeachingRules.model_fields if key in values}
    try:
        return EndpointSettings(**values), TeachingRules(**rules)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][0]} {first['input']!r}: " if first["loc"] else ""
        raise UserError(where + first["msg"].removeprefix("Value error, ").lower()) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtLesson:
    """Result of one lesson: a row, a rejection, a failure, or (none of these) no end yet.

    Example: TaughtLesson(lesson=lesson, turns=turns, rejection=PlayRejection(reason="answer", detail="..."))
    """

    lesson: Lesson
    turns: tuple[PlayedTurn, ...] = ()
    row: Row | None = None
    rejection: PlayRejection | None = None
    failure: EndpointError | None = None

    @property
    def is_finished(self) -> bool:
        return self.row is not None or self.rejection is not None

    def describe_rejection(self) -> str:
        """A rejected play as one JSON line: key of the play, reason, detail, and what was said."""
        assert self.rejection is not None
        value = {
            "key": self.lesson.key,
            "reason": self.rejection.reason,
            "detail": self.rejection.detail,
            "messages": write_messages(self.turns),
        }
        return json.dumps(value)


class Heading(StrictRecord):
    """The first line of a journal: what the replies answer.

    Example: Heading(author="teacher:qwen2.5-72b", family="cto", split="train", seed=0, difficulties=(1, 2),
                     generator="5c...")
    """

    kind: Literal["heading"] = "heading"
    format: str = FORMAT
    author: str
    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    generator: str  # see `training.data.folders.datasets.compute_generator_digest`


class JournalReply(StrictRecord):
    """A reply to a scenario; its replies are written in the order of their turns."""

    kind: Literal["reply"] = "reply"
    key: str  # of the scenario
    turn: int  # from 0; one that does not follow on the replies before it is not used
    reply: ChatReply


class JournalFailure(StrictRecord):
    """A request that got no reply; it is asked again in the next run."""

    kind: Literal["failure"] = "failure"
    key: str
    failure: str
    cost: float


_LINE: TypeAdapter[Heading | JournalReply | JournalFailure] = TypeAdapter(
    Annotated[Heading | JournalReply | JournalFailure, Field(discriminator="kind")]
)


class Journal:
    """The replies in a file; after `begin` one process at a time can add to it."""

    def __init__(self, path: Path) -> None:
        """Read the whole lines of a journal; a last line that a kill cut short is left out.

        Raises:
            UserError: a damaged line, named by its number.
        """
        self._path = path
        self.heading: Heading | None = None
        self.replies: dict[str, tuple[ChatReply, ...]] = {}  # by scenario key
        self.cost = 0.0  # of replies and failures
        for number, line in enumerate(read_lines(path), start=1):
            try:
                record = _LINE.validate_json(line)
            except ValidationError:
                raise UserError(
                    f"{path}:{number}: damaged line; delete it to have its reply asked again"
                ) from None
            if isinstance(record, Heading) != (number == 1):
                raise UserError(f"{path}:{number}: the heading must be the first line, and only the first")
            if isinstance(record, Heading):
                self.heading = record
            elif isinstance(record, JournalReply):
                self._take(record.key, record.turn, record.reply)
            else:
                self.cost += record.cost

    def begin(self, heading: Heading) -> None:
        """Open it to go on with this request; a new journal gets its heading with its first line.

        Raises:
            UserError: it is of another request.
        """
        found = self.heading
        if found is not None and found != heading:
            if found.model_copy(update={"generator": heading.generator}) == heading:
                other = f"answers another version of the scenarios of {found.family}"
            else:
                difficulties = ",".join(map(str, found.difficulties))
                other = f"holds replies of {found.author}, seed {found.seed}, difficulties {difficulties}"
            raise UserError(f"{self._path} {other}; choose another --out")
        self._first = [] if found else [heading]
        self._file = LineFile(self._path)

    def close(self) -> None:
        """Close the file of a journal that was begun."""
        self._file.close()

    def note_reply(self, key: str, turn: int, reply: ChatReply) -> None:
        """Append a reply; it is on disk when this returns. Raises OSError where the disk is full."""
        self._add(JournalReply(key=key, turn=turn, reply=reply))
        self._take(key, turn, reply)

    def note_failure(self, key: str, failure: str, cost: float) -> None:
        """Append a request without a reply; raises as `note_reply`."""
        self._add(JournalFailure(key=key, failure=failure, cost=cost))
        self.cost += cost

    def count_tokens(self) -> tuple[int, int]:
        """(prompt tokens, completion tokens) of all replies, as far as the endpoint said."""
        replies = [reply for several in self.replies.values() for reply in several]
        return sum(one.prompt_tokens or 0 for one in replies), sum(
            one.completion_tokens or 0 for one in replies
        )

    def _take(self, key: str, turn: int, reply: ChatReply) -> None:
        self.cost += reply.cost
        before = self.replies.get(key, ())
        if turn == len(before):
            self.replies[key] = (*before, reply)

    def _add(self, line: StrictRecord) -> None:
        self._file.add(*(one.model_dump_json().encode() for one in (*self._first, line)))
        self._first = []


class Halt:
    """End of all requests: a spent budget, an endpoint that is down, a mistake of the user."""

    def __init__(self, max_failures: int) -> None:
        self.reason: BudgetSpentError | UserError | None = None
        self._max_failures = max_failures
        self._num_failures = 0

    def count_success(self) -> None:
        self._num_failures = 0

    def count_failure(self, error: EndpointError) -> None:
        self._num_failures += 1
        if self._num_failures >= self._max_failures and self.reason is None:
            self.reason = UserError(
                f"the endpoint failed on {self._num_failures} scenarios in a row, the last time with "
                f"{error}; what was answered is kept, run the same command again to go on"
            )


class _HaltedError(Exception):
    """This scenario is left as it is."""


async def write_demonstrations(
    lessons: Sequence[Lesson],
    client: ChatClient,
    *,
    author: str,
    rules: TeachingRules,
    halt: Halt,
    journal: Journal | None = None,
    concurrency: int = 8,
    report: Callable[[TaughtLesson], None] = lambda taught: None,
) -> list[TaughtLesson]:
    """Let the teacher play every lesson; results in the order of `lessons`, rows as the oracle's are.

    Replies that the journal holds are not asked for again. A halt leaves the rest unasked. `report` hears of
    each result as it comes.
    """

    async def teach(lesson: Lesson) -> TaughtLesson:
        asker = _Asker(client, lesson, rules, journal, halt)
        try:
            turns, fault = await _play(lesson, asker, rules)
        except _HaltedError:
            taught = TaughtLesson(lesson=lesson)
        except EndpointError as error:
            taught = TaughtLesson(lesson=lesson, failure=error)
        else:
            turns = (
                keep_sound_reasoning(lesson, turns) if rules.reasoning == "sound" else drop_reasoning(turns)
            )
            rejection = fault or find_rejection(lesson, turns, rules.min_reward)
            row = None
            if rejection is None:
                row = lesson.build_row(write_messages(turns), list_answers(turns), author)
            taught = TaughtLesson(lesson=lesson, turns=turns, row=row, rejection=rejection)
        report(taught)
        return taught

    return await run_pool([partial(teach, lesson) for lesson in lessons], concurrency=concurrency)


class _Asker:
    """Answers the requests of one lesson: from the journal first, then by the endpoint."""

    def __init__(
        self, client: ChatClient, lesson: Lesson, rules: TeachingRules, journal: Journal | None, halt: Halt
    ) -> None:
        self._client, self._key, self._journal, self._halt = client, lesson.key, journal, halt
        self._tools = list_tools(lesson.role) if rules.tool_shape == "native" else []
        self._recorded: Iterator[ChatReply] = iter(journal.replies.get(lesson.key, ()) if journal else ())
        self._num_replies = 0

    async def ask(self, conversation: Sequence[Message]) -> ChatReply:
        reply = next(self._recorded, None)
        if reply is None:
            reply = await self._request(conversation)
            if self._journal is not None:
                self._journal.note_reply(self._key, self._num_replies, reply)
        self._num_replies += 1
        return reply

    async def _request(self, conversation: Sequence[Message]) -> ChatReply:
        if self._halt.reason is not None:
            raise _HaltedError
        try:
            reply = await self._client.complete(conversation, self._tools)
        except (BudgetSpentError, UserError) as error:
            self._halt.reason = self._halt.reason or error
            if isinstance(error, BudgetSpentError) and error.cost > 0 and self._journal is not None:
                self._journal.note_failure(self._key, str(error), error.cost)
            raise _HaltedError from None
        except EndpointError as error:
            if self._journal is not None:
                self._journal.note_failure(self._key, str(error), error.cost)
            self._halt.count_failure(error)
            raise
        self._halt.count_success()
        return reply


async def _play(
    lesson: Lesson, asker: _Asker, rules: TeachingRules
) -> tuple[tuple[PlayedTurn, ...], PlayRejection | None]:
    """Ask until the teacher answers, calls a tool in vain, is cut off, or has had `max_turns` turns.

    Returns its turns, and why they ended without an answer that could be checked. A failed call ends the work
    at once: no check would let the play pass, so nothing more is paid for it.
    """
    system = f"{lesson.role.mandate}\n\n{lesson.instructions}".rstrip()
    if rules.tool_shape == "text" and lesson.role.tools:
        system += f"\n\n{describe_tools(list_tools(lesson.role))}"
    conversation: list[Message] = [
        {"role": "system", "content": system},
        {"role": "user", "content": lesson.brief},
    ]
    turns: list[PlayedTurn] = []
    asked = ""
    for _ in range(rules.max_turns):
        reply = await asker.ask(conversation)
        thoughts, text = _split_thoughts(reply)
        if reply.finish_reason in CUT:
            return tuple(turns), PlayRejection(reason="answer", detail=f"turn cut off: {reply.finish_reason}")
        try:
            calls = [_read_call(call) for call in reply.calls]
            if not calls:
                if OPEN in text:
                    _refuse_depth(text)
                calls = list(parse_tool_calls(text))
        except BadToolCallError as error:
            return tuple(turns), PlayRejection(reason="tools", detail=str(error))
        if not calls:
            turns.append(PlayedTurn(text=thoughts + text, asked=asked))
            message = lesson.follow_up(list_answers(turns))
            if message is None:
                return tuple(turns), None
            asked = message
            conversation += [_echo(text, ()), {"role": "user", "content": message}]
            continue
        conversation.append(_echo(text, reply.calls))
        words = thoughts + (text if reply.calls else text[: text.index(OPEN)].rstrip())
        for position, call in enumerate(calls):  # calls made in one breath become turns of their own
            observation, is_accepted = observe(lesson, turns, call)
            said = "" if position else words
            turns.append(PlayedTurn(text=said, call=call, observation=observation, asked=asked))
            asked = ""
            if not is_accepted:
                return tuple(turns), None
            conversation.append(_tell(observation, reply.calls[position] if reply.calls else None))
    return tuple(turns), PlayRejection(reason="answer", detail=f"no answer in {rules.max_turns} turns")


def _split_thoughts(reply: ChatReply) -> tuple[str, str]:
    """Return what the teacher thought, in <think> marks and "" without, and what it said.

    Servers send thoughts in a field of their own or at the beginning of the text.
    """
    thoughts, text = reply.reasoning, reply.text
    found = _THOUGHTS.match(text)
    if found is not None:
        thoughts, text = thoughts or found[1], text[found.end() :]
    return (write_thoughts(thoughts) if thoughts.strip() else ""), text


def _refuse_depth(text: str) -> None:
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        raise BadToolCallError(f"a call with more than {MAX_BRACKETS} brackets")


def _read_call(call: RequestedCall) -> ToolCall:
    _refuse_depth(call.arguments)
    try:
        arguments = parse_strict_json(call.arguments or "{}")
    except AnswerError as error:
        raise BadToolCallError(f"arguments of {call.name[:40]!r}: {error}") from None
    if not isinstance(arguments, dict):
        raise BadToolCallError(f"arguments of {call.name[:40]!r} are not an object")
    return ToolCall(name=call.name, arguments=arguments)


def _echo(text: str, calls: Sequence[RequestedCall]) -> Message:
    """The teacher's own turn, as it is shown to it from then on."""
    made = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments or "{}"},
        }
        for call in calls
    ]
    return {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})


def _tell(observation: str, call: RequestedCall | None) -> Message:
    """Message with the tool's result; a teacher that calls in its text is answered in text."""
    if call is None:
        return {"role": "user", "content": f"<tool_response>\n{observation}\n</tool_response>"}
    return {"role": "tool", "tool_call_id": call.id, "content": observation}
