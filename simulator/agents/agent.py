"""An agent plays one role in one episode: turns, tool calls, programs and limits, recorded as a trajectory.

A program that it writes runs in the sandbox alone, from nothing each time; what it prints is an observation.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roles.base import Role
from roles.limits import MAX_OBSERVATION_CHARS, MAX_SEAT_CALLS
from scenarios.base import ToolCall, ToolError
from scenarios.tasks.sandbox import ProgramRun, SandboxLimits, find_sandbox, run_program
from simulator.agents.agent_kinds import AgentKind, AgentLimits, introduce
from simulator.chat import Chat
from simulator.engines.base import CompletionRequest, Engine, Sampling
from simulator.game import Reports, TeamGame
from simulator.observer import Observer, note_turn
from simulator.records import EndReason, Trajectory, Turn
from simulator.tool_calls import BadToolCallError, format_tool_call, parse_tool_calls

MAX_CODE_CHARS = 20_000
CODE_LIMITS = SandboxLimits(wall_s=6.0, cpu_s=2, output_bytes=16 << 10)
_OPENING = re.compile(r"^[ \t]*```(?:python|py)[ \t]*$", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)


class SeatTools:
    """Answers the tool calls of one seat in one episode.

    Example: SeatTools(game, "cto")(ToolCall(name="describe", arguments={"option": "A"}))
    """

    def __init__(self, game: TeamGame, seat: str) -> None:
        self._game, self._seat = game, seat
        self._num_calls = 0
        self.reports: Reports = {}  # what ReconcileGPT's tools reckon with

    def __call__(self, call: ToolCall) -> str:
        """Answer one call with an observation.

        Raises:
            ToolError: an unknown tool, wrong arguments, or no calls left.
        """
        self._num_calls += 1
        if self._num_calls > MAX_SEAT_CALLS:
            raise ToolError(f"no calls left: at most {MAX_SEAT_CALLS}; answer now")
        return self._game.call_tool(self._seat, call, self.reports)


class _CallsSpentError(Exception):
    """One call more than the limit: it is counted, not made."""


class Agent:
    """Plays one role's append-only transcript on an engine.

    Each limit ends the work on a message with its own name in `Trajectory.ended_by`. `limits` go before
    `max_turns` and the sampling's tokens per turn.
    """

    def __init__(
        self,
        *,
        role: Role,
        policy: str,
        engine: Engine,
        chat: Chat,
        sampling: Sampling,
        session: str,
        call_tool: Callable[[ToolCall], str] | None = None,
        kind: AgentKind | None = None,
        prompt_role: Role | None = None,
        max_turns: int = 10,
        limits: AgentLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`kind` None: react with tools, chat without. `prompt_role`: as the prompt has it, with other tools.

        Raises:
            UserError: a code agent where no sandbox works.
        """
        self.role, self._observer = role, observer
        self.kind: AgentKind = kind or ("chat" if call_tool is None else "react")
        if self.kind == "code":
            find_sandbox()
        self._prompt_role = prompt_role or introduce(role, self.kind)
        self._policy, self._engine, self._chat = policy, engine, chat
        self._limits = limits or AgentLimits()
        self._max_turns = self._limits.turns or max_turns
        if self._limits.turn_tokens is not None:
            sampling = replace(sampling, max_completion_tokens=self._limits.turn_tokens)
        self._sampling, self._session = sampling, session
        self._call_tool = None if self.kind == "chat" else call_tool
        self._ids: tuple[int, ...] = ()
        self._turns: list[Turn] = []
        self._num_messages = self._num_calls = self._num_valid_calls = 0
        self._ended_by: EndReason = "answer"
        self._final_text = ""

    async def answer(self, message: str) -> str:
        """Read a message, use tools, answer. Returns the final text, "" if a limit ended the work.

        The first message, the brief, opens the transcript; a further one is read in the same transcript.
        """
        self._num_messages += 1
        if self._num_messages > 1:
            return await self._play(self._close_open_turn() + self._chat.ask(message))
        with_tools = self._call_tool is not None
        return await self._play(self._chat.open(self._prompt_role, message, with_tools=with_tools))

    def see(self, reports: Reports) -> None:
        """Let tools that reckon with reports reckon with these."""
        if isinstance(self._call_tool, SeatTools):
            self._call_tool.reports = reports

    @property
    def num_messages(self) -> int:
        """Messages read so far, those of recorded turns included."""
        return self._num_messages

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Turns played so far."""
        return tuple(self._turns)

    def account(self) -> dict[str, Any]:
        """Return how the last answer ended and the numbers of calls so far, as JSON values."""
        return {
            "ended_by": self._ended_by,
            "num_tool_calls": self._num_calls,
            "num_valid_tool_calls": self._num_valid_calls,
        }

    def trajectory(self) -> Trajectory:
        """Return the turns played so far as a record, and give the session back to the engine."""
        self._engine.end_session(self._session)
        return Trajectory(
            role=self.role.name,
            session=self._session,
            turns=tuple(self._turns),
            num_tool_calls=self._num_calls,
            num_valid_tool_calls=self._num_valid_calls,
            ended_by=self._ended_by,
            final_text=self._final_text,
        )

    def take_up(
        self, turns: Sequence[Turn], *, num_messages: int, num_calls: int, num_valid_calls: int
    ) -> None:
        """Continue from recorded turns; neither the engine nor a tool is asked again."""
        self._turns = list(turns)
        self._ids = tuple(token for turn in turns for token in (*turn.context_ids, *turn.completion_ids))
        self._num_messages, self._num_calls, self._num_valid_calls = num_messages, num_calls, num_valid_calls

    async def _play(self, context: tuple[int, ...]) -> str:
        self._final_text = ""
        for _ in range(self._max_turns):
            room = self._room(context)
            if room == 0:
                return self._stop("total_tokens")
            turn = await self._take_turn(context)
            if turn.finish_reason == "length":  # at the limit of a turn, which an engine may hold lower
                is_own = room is None or room >= self._sampling.max_completion_tokens
                return self._stop("turn_tokens" if is_own else "total_tokens")
            try:
                observations = await self._act(turn.text)
            except _CallsSpentError:
                return self._stop("tool_calls")
            if not observations:
                self._ended_by, self._final_text = "answer", turn.text
                return turn.text
            if self._too_many_failed_calls():
                return self._stop("failed_calls")
            context = self._chat.observe(*observations)
        return self._stop("turns")

    def _stop(self, reason: EndReason) -> str:
        self._ended_by = reason
        return ""

    def _room(self, context: tuple[int, ...]) -> int | None:
        """Return the most tokens of the next turn; None: the sampling's own limit alone."""
        if self._limits.total_tokens is None:
            return None
        return max(0, self._limits.total_tokens - len(self._ids) - len(context))

    async def _take_turn(self, context: tuple[int, ...]) -> Turn:
        room = self._room(context)
        sampling = self._sampling
        if room is not None and room < sampling.max_completion_tokens:
            sampling = replace(sampling, max_completion_tokens=room)
        self._ids += context
        start_s = 0.0 if self._observer is None else time.perf_counter()
        completion = await self._engine.complete(
            CompletionRequest(
                policy=self._policy, session=self._session, prompt_ids=self._ids, sampling=sampling
            )
        )
        self._ids += completion.token_ids
        turn = Turn(
            context_ids=context,
            completion_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            text=self._chat.decode(completion.token_ids),
            policy_version=completion.policy_version,
        )
        self._turns.append(turn)
        note_turn()
        if self._observer is not None:
            self._observer.on_turn(self.role.name, turn, time.perf_counter() - start_s)
        return turn

    async def _act(self, text: str) -> list[str]:
        """Return what the tools or the program say, one text per call; [] where the turn is the answer."""
        if self.kind == "chat":
            return []
        try:
            calls = parse_tool_calls(text) if self._call_tool is not None else ()
            source = parse_code(text) if self.kind == "code" else None
            if calls and source is not None:
                raise BadToolCallError("write tool calls or one ```python block in a turn, not both")
        except BadToolCallError as error:
            self._count_call()
            return [self._note(text, f"error: {error}")]
        if source is not None:
            return [self._note(text, await self._observe(partial(run_code, source)))]
        told = []
        for call in calls:
            said = await self._observe(partial(self._use_tool, call))
            told.append(self._note(text if len(calls) == 1 else format_tool_call("", call), said))
            if self._too_many_failed_calls():
                break
        return told

    async def _observe(self, act: Callable[[], Awaitable[str]]) -> str:
        """Count one call, make it, and return what it says, an error's words where it fails."""
        self._count_call()
        try:
            observation = await act()
        except ToolError as error:
            return f"error: {error}"[:MAX_OBSERVATION_CHARS]
        self._num_valid_calls += 1
        return observation[:MAX_OBSERVATION_CHARS]

    def _note(self, call: str, observation: str) -> str:
        if self._observer is not None:
            self._observer.on_tool(self.role.name, call, observation)
        return observation

    def _count_call(self) -> None:
        self._num_calls += 1
        if self._limits.tool_calls is not None and self._num_calls > self._limits.tool_calls:
            raise _CallsSpentError

    async def _use_tool(self, call: ToolCall) -> str:
        assert self._call_tool is not None
        return self._call_tool(call)

    def _too_many_failed_calls(self) -> bool:
        failed = self._num_calls - self._num_valid_calls
        return self._limits.failed_calls is not None and failed >= self._limits.failed_calls

    def _close_open_turn(self) -> tuple[int, ...]:
        """Return the end-of-turn that a turn cut by a limit lacks; given, so never trained on."""
        cut = bool(self._turns) and self._turns[-1].finish_reason == "length"
        return (self._chat.end_id,) if cut else ()


def parse_code(text: str) -> str | None:
    """Return the single ```python block of a turn; None where there is none.

    Raises:
        BadToolCallError: several blocks, one that is not closed, words after it, or more than 20,000
            characters.
    """
    openings = list(_OPENING.finditer(text))
    if not openings:
        return None
    closing = _CLOSING.search(text, openings[0].end())
    if len(openings) > 1 or closing is None:
        raise BadToolCallError("write exactly one ```python block per turn, closed by ```")
    if text[closing.end() :].strip():
        raise BadToolCallError("nothing may follow a ```python block in the same turn")
    source = text[openings[0].end() : closing.start()].strip("\n")
    if len(source) > MAX_CODE_CHARS:
        raise BadToolCallError(f"the program has {len(source)} characters, at most {MAX_CODE_CHARS}")
    return source


async def run_code(source: str, *, limits: SandboxLimits = CODE_LIMITS) -> str:
    """Run the program and return what it printed.

    Raises:
        ToolError: it failed, or passed a limit; with the end of what it wrote.
        InfrastructureError: the sandbox failed before the program started.
        UserError: no sandbox works here; nothing was run.
    """
    run = await asyncio.to_thread(run_program, source, limits=limits)
    if run.outcome == "finished" and run.exit_code == 0:
        return run.stdout.strip() or "(the program printed nothing)"
    raise ToolError(f"{_say_end(run, limits)}: {_last_words(run)}")


def _say_end(run: ProgramRun, limits: SandboxLimits) -> str:
    if run.outcome == "timeout":
        return f"the program was stopped after {limits.wall_s:g} seconds"
    if run.outcome == "output_limit":
        return f"the program was stopped at {limits.output_bytes} bytes of output"
    return f"the program ended with status {run.exit_code}"


def _last_words(run: ProgramRun) -> str:
    words = run.stderr.strip() or run.stdout.strip()
    return words[-500:] if words else "it wrote nothing"
