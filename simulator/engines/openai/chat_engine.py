"""An OpenAI-compatible endpoint as an engine: transcripts go out as messages, with native tool calls.

For play and evaluation: such endpoints return no token ids, and the learner needs the sampled ones.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import InfrastructureError, UserError
from simulator.chat import MessageChat
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.client import ChatClient, is_too_long
from simulator.engines.openai.endpoint import Budget, BudgetSpentError, EndpointSettings
from simulator.engines.openai.reply import CUT, ChatReply, EndpointError
from simulator.engines.openai.wire import ToolShape, write_messages, write_turn_text
from simulator.line_files import LineFile, read_lines


class StoredReply(BaseModel):
    """One line: a reply, or (reply None) the cost of a request that failed.

    Example: StoredReply(key="5c0f...", reply=ChatReply(text="B", cost=0.002), cost=0.002)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    key: str  # of session and request
    reply: ChatReply | None
    cost: float


class ReplyFile:
    """Replies by request, on disk before they are used; a context manager, one process at a time.

    Example: with ReplyFile(Path("runs/replies.jsonl")) as replies: replies.find(key)
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file; a last line that a kill cut short is dropped.

        Raises:
            UserError: a damaged line, or another process writes to the file.
        """
        self._file = LineFile(path, alone=True)
        self._replies: dict[str, ChatReply] = {}
        self.spent = 0.0  # of everything in the file
        for number, line in enumerate(read_lines(path), start=1):
            try:
                self._note(StoredReply.model_validate_json(line))
            except ValidationError:
                self._file.close()
                raise UserError(
                    f"{path}:{number}: damaged line; delete it to have its reply asked again"
                ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def find(self, key: str) -> ChatReply | None:
        """Return the stored reply of a request."""
        return self._replies.get(key)

    def add(self, key: str, reply: ChatReply | None, cost: float) -> None:
        """Keep a reply or a failure's cost; it is on disk when this returns."""
        line = StoredReply(key=key, reply=reply, cost=cost)
        self._file.add(line.model_dump_json().encode())
        self._note(line)

    def _note(self, line: StoredReply) -> None:
        self.spent += line.cost
        if line.reply is not None:
            self._replies[line.key] = line.reply


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUsage:
    """Usage by a policy's requests, replies from the file included.

    Example: EndpointUsage(num_requests=2, prompt_tokens=812, completion_tokens=60, cost=0.0026)
    """

    num_requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    num_without_usage: int = 0  # replies whose endpoint did not count tokens
    num_too_long: int = 0  # prompts that the model has no room for
    cost: float = 0.0  # of replies, in the currency of the prices

    @classmethod
    def of(cls, reply: ChatReply) -> Self:
        """Return the usage of one reply."""
        return cls(
            num_requests=1,
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            num_without_usage=int(None in (reply.prompt_tokens, reply.completion_tokens)),
            cost=reply.cost,
        )

    def joined(self, other: "EndpointUsage") -> "EndpointUsage":
        """Return both together."""
        return EndpointUsage(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The common purse of a team's endpoints, usage by session, and why no more requests are made.

    Example: Ledger(budget=Budget(max_cost=2.0)).sum_of(suffix="/cto").cost
    """

    budget: Budget = field(default_factory=Budget)
    sessions: dict[str, EndpointUsage] = field(default_factory=dict)
    stop: str | None = None  # None: requests are made

    def sum_of(self, prefix: str = "", suffix: str = "") -> EndpointUsage:
        """Return the usage of all sessions whose name begins and ends so."""
        total = EndpointUsage()
        for session, usage in self.sessions.items():
            if session.startswith(prefix) and session.endswith(suffix):
                total = total.joined(usage)
        return total


class ChatEngine:
    """One model at one endpoint; it plays any policy. `close` it.

    Example: ChatEngine(EndpointSettings(url="http://127.0.0.1:8000/v1", model="qwen"), loop=loop)
    """

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        loop: LoopThread,
        shape: ToolShape = "native",
        replies: ReplyFile | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """`loop`, `replies` and `ledger` may be shared by the engines of a team.

        Raises:
            UserError: not a URL.
        """
        self._settings, self._shape, self._loop, self._replies = settings, shape, loop, replies
        self.ledger = ledger or Ledger()
        self._client = ChatClient(settings, budget=self.ledger.budget)
        self._chat = MessageChat()

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask for one turn; a prompt that the model has no room for is a turn cut at its start.

        Raises:
            InfrastructureError: no reply after all retries, or the cost limit is reached.
            UserError: key, balance, permission, address or model are refused.
        """
        messages, tools = write_messages(self._chat.read(request.prompt_ids), self._shape)
        try:
            reply = await self._loop.run(self._ask(request, messages, tools))
        except EndpointError as error:
            if not is_too_long(error):
                raise
            self._count(request.session, EndpointUsage(num_too_long=1))
            reply = ChatReply(text="", finish_reason="length")
        else:
            self._count(request.session, EndpointUsage.of(reply))
        ids = self._chat.encode(write_turn_text(reply))
        is_cut = reply.finish_reason in CUT
        ids = ids if is_cut else (*ids, self._chat.end_id)
        return Completion(
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            finish_reason="length" if is_cut else "stop",
            policy_version=f"{request.policy}@{self._settings.model}",
        )

    def end_session(self, session: str) -> None:
        """Do nothing: no state is kept between turns."""

    def close(self) -> None:
        """End the connections."""
        self._loop.call(self._client.close(), timeout_s=10)

    async def _ask(
        self, request: CompletionRequest, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> ChatReply:
        sampling = request.sampling
        asked = {
            "url": self._settings.url,
            "model": self._settings.model,
            "messages": list(messages),
            "tools": list(tools),
            "temperature": sampling.temperature,
            "most": min(sampling.max_completion_tokens, self._settings.max_completion_tokens),
        }
        key = hashlib.sha256(json.dumps([request.session, asked], sort_keys=True).encode()).hexdigest()
        known = self._replies.find(key) if self._replies is not None else None
        if known is not None:
            return known
        if self.ledger.stop is not None:
            raise InfrastructureError(self.ledger.stop)
        try:
            reply = await self._client.complete(
                messages,
                tools,
                temperature=sampling.temperature,
                max_completion_tokens=sampling.max_completion_tokens,
            )
        except (BudgetSpentError, EndpointError) as error:
            if self._replies is not None and error.cost > 0:
                self._replies.add(key, None, error.cost)
            if isinstance(error, EndpointError):
                raise
            self.ledger.stop = str(error)
            raise InfrastructureError(self.ledger.stop) from None
        if self._replies is not None:
            self._replies.add(key, reply, reply.cost)
        return reply

    def _count(self, session: str, usage: EndpointUsage) -> None:
        before = self.ledger.sessions.get(session, EndpointUsage())
        self.ledger.sessions[session] = before.joined(usage)
