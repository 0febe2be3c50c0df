"""Demonstrations by a teacher model on an OpenAI-compatible endpoint, kept only if they pass every check."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from roles.errors import UserError
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import BudgetSpentError
from simulator.engines.openai.reply import ChatReply, EndpointError
from simulator.engines.openai.wire import ToolShape
from simulator.graph.concurrency import run_pool
from training.data.folders.columns import Message
from training.data.folders.rows import (
    Row,
    list_tools,
)
from training.data.teacher.checks import (
    PlayedTurn,
    Rejection,
    drop_reasoning,
    find_rejection,
    keep_sound_reasoning,
    list_answers,
    write_messages,
)
from training.data.teacher.journal import Answered, Failed, Journal
from training.data.teacher.lessons import Lesson
from training.data.teacher.play import play_lesson


class TeachingRules(BaseModel):
    """Rules of a teacher's play, and of keeping it. Example: TeachingRules(min_reward=0.9)"""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one lesson: a row, a rejection, a failure, or (none of these) no end yet.

    Example: Outcome(lesson=lesson, turns=turns, rejection=Rejection(reason="answer", detail="..."))
    """

    lesson: Lesson
    turns: tuple[PlayedTurn, ...] = ()
    row: Row | None = None
    rejection: Rejection | None = None
    failure: EndpointError | None = None

    @property
    def is_finished(self) -> bool:
        return self.row is not None or self.rejection is not None


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
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Let the teacher play every lesson; outcomes in the order of `lessons`, rows as the oracle's are.

    Replies that the journal holds are not asked for again. A halt leaves the rest unasked. `report` hears of
    each outcome as it comes.
    """

    async def teach(lesson: Lesson) -> Outcome:
        endpoint = _RecordedEndpoint(
            client=client,
            tools=list_tools(lesson.role) if rules.tool_shape == "native" else [],
            key=lesson.key,
            recorded=iter(() if journal is None else journal.replies.get(lesson.key, ())),
            journal=journal,
            halt=halt,
        )
        outcome = await _teach(lesson, endpoint, author, rules)
        report(outcome)
        return outcome

    return await run_pool([partial(teach, lesson) for lesson in lessons], concurrency=concurrency)


@dataclass(slots=True, kw_only=True)
class _RecordedEndpoint:
    """Answers the requests of one lesson: from the journal first, then by the endpoint."""

    client: ChatClient
    tools: list[dict[str, Any]]
    key: str
    recorded: Iterator[ChatReply]
    journal: Journal | None
    halt: Halt
    num_replies: int = 0

    async def ask(self, conversation: Sequence[Message]) -> ChatReply:
        reply = next(self.recorded, None)
        if reply is None:
            reply = await self._request(conversation)
            self._note(Answered(key=self.key, turn=self.num_replies, reply=reply))
        self.num_replies += 1
        return reply

    async def _request(self, conversation: Sequence[Message]) -> ChatReply:
        if self.halt.reason is not None:
            raise _HaltedError
        try:
            reply = await self.client.complete(conversation, self.tools)
        except (BudgetSpentError, UserError) as error:
            self.halt.reason = self.halt.reason or error
            if isinstance(error, BudgetSpentError) and error.cost > 0:
                self._note(Failed(key=self.key, failure=str(error), cost=error.cost))
            raise _HaltedError from None
        except EndpointError as error:
            self._note(Failed(key=self.key, failure=str(error), cost=error.cost))
            self.halt.count_failure(error)
            raise
        self.halt.count_success()
        return reply

    def _note(self, line: Answered | Failed) -> None:
        if self.journal is not None:
            self.journal.add(line)


async def _teach(lesson: Lesson, endpoint: _RecordedEndpoint, author: str, rules: TeachingRules) -> Outcome:
    try:
        play = await play_lesson(lesson, endpoint.ask, max_turns=rules.max_turns, shape=rules.tool_shape)
    except _HaltedError:
        return Outcome(lesson=lesson)
    except EndpointError as error:
        return Outcome(lesson=lesson, failure=error)
    keeps = rules.reasoning == "sound"
    turns = keep_sound_reasoning(lesson, play.turns) if keeps else drop_reasoning(play.turns)
    rejection = play.fault or find_rejection(lesson, turns, rules.min_reward)
    row = None if rejection else build_teacher_row(lesson, turns, author)
    return Outcome(lesson=lesson, turns=turns, row=row, rejection=rejection)


def build_teacher_row(lesson: Lesson, turns: Sequence[PlayedTurn], author: str) -> Row:
    """The row of a play that passed the checks.

    Raises:
        AnswerError: the last turn is no answer.
    """
    return lesson.build_row(write_messages(turns), list_answers(turns), author)


def describe_rejection(outcome: Outcome, rejection: Rejection) -> str:
    """A rejected play as one JSON line: key of the play, reason, detail, and what was said."""
    value = {
        "key": outcome.lesson.key,
        "reason": rejection.reason,
        "detail": rejection.detail,
        "messages": write_messages(outcome.turns),
    }
    return json.dumps(value)
