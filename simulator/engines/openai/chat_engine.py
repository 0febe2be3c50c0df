"""An OpenAI-compatible endpoint as an engine, its messages with native tool calls, and as a judge.

For play and evaluation: such endpoints return no token ids, and the learner needs the sampled ones.
Agents read and write calls between tags.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, assert_never

from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import InfrastructureError, UserError
from simulator.chat import MessageChat, Said, read_opening
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.client import ChatClient, is_too_long
from simulator.engines.openai.endpoint import Budget, BudgetSpentError, EndpointSettings, ToolShape
from simulator.engines.openai.reply import CUT, ChatReply, EndpointError
from simulator.line_files import LineFile, read_lines
from simulator.tool_calls import CLOSE, OPEN, BadToolCallError, describe_tools, parse_tool_calls

WireMessage = dict[str, Any]

NOT_RUN = "not carried out"
EMPTY = "(nothing was said)"  # several servers refuse every talk that holds an empty message


def write_messages(
    said: Sequence[Said], shape: ToolShape = "native"
) -> tuple[list[WireMessage], list[dict[str, Any]]]:
    """Return the messages and the tools of a request whose transcript is `said`.

    A turn whose calls cannot be read goes out as the text that it was, and what was answered as a user's
    message.
    """
    messages: list[WireMessage] = []
    tools: list[dict[str, Any]] = []
    open_ids: list[str] = []  # calls that have no result yet
    for one in said:
        if one.speaker == "tool" and open_ids:
            messages.append(_write_result(open_ids.pop(0), one.text))
            continue
        messages += [_write_result(name, NOT_RUN) for name in open_ids]
        open_ids = []
        match one.speaker:
            case "system":
                role, with_tools = read_opening(one.text)
                tools = [tool.as_chat_tool() for tool in role.tools] if with_tools else []
                in_words = f"\n\n{describe_tools(tools)}" if tools and shape == "text" else ""
                messages.append({"role": "system", "content": f"{role.mandate}{in_words}"})
            case "assistant":
                messages.append(_write_turn(one.text, f"c{len(messages):04d}", shape))
                open_ids = [call["id"] for call in messages[-1].get("tool_calls", ())]
            case "tool":
                _add_user(messages, f"<tool_response>\n{one.text}\n</tool_response>")
            case "user":
                _add_user(messages, one.text)
            case _:
                assert_never(one.speaker)
    return messages, tools if shape == "native" else []


def write_turn_text(message: ChatReply) -> str:
    """Return a reply as the text that agents read: its words, then its calls, each between tags."""
    calls = [
        f'{OPEN}\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments.strip() or "{}"}}}\n{CLOSE}'
        for call in message.calls
    ]
    return message.text + "\n".join(calls)


def _write_turn(text: str, name: str, shape: ToolShape) -> WireMessage:
    """Return an assistant's message, its calls in the protocol's own form where all can be read."""
    try:
        calls = parse_tool_calls(text) if shape == "native" else ()
    except BadToolCallError:
        calls = ()
    if not calls:
        return {"role": "assistant", "content": text if text.strip() else EMPTY}
    return {
        "role": "assistant",
        "content": text[: text.index(OPEN)] or None,
        "tool_calls": [
            {
                "id": f"{name}{number:04d}",  # nine letters or digits: Mistral's servers refuse others
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for number, call in enumerate(calls)
        ],
    }


def _add_user(messages: list[WireMessage], text: str) -> None:
    """Add a user's text, to the message before where that is a user's: users and models take turns."""
    text = text if text.strip() else EMPTY
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"] += f"\n{text}"
    else:
        messages.append({"role": "user", "content": text})


def _write_result(name: str, text: str) -> WireMessage:
    return {"role": "tool", "tool_call_id": name, "content": text if text.strip() else EMPTY}


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


class EndpointJudge:
    """A `scenarios.tasks.grading.judge.Judge`; use it as a context manager. Equal prompts are asked once.

    Example: with EndpointJudge(settings) as judge: score_by_judge(judge, criteria, question, answer)
    """

    def __init__(self, settings: EndpointSettings) -> None:
        """Whatever temperature the settings name, it is asked at 0.

        Raises:
            UserError: not a URL.
        """
        self._client = ChatClient(settings.model_copy(update={"temperature": 0.0}))
        self._thread = LoopThread("judge")
        self._replies: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.call(self._client.close())
        self._thread.close()

    @property
    def cost(self) -> float:
        """Return what was spent so far, in the currency of the prices."""
        return self._client.budget.spent

    def reply(self, prompt: str) -> str:
        """Return the judge's words.

        Raises:
            InfrastructureError: no reply, or none within the cost limit.
            UserError: key, balance, permission, address or model are refused.
        """
        if prompt not in self._replies:
            messages = [{"role": "user", "content": prompt}]
            try:
                reply = self._thread.call(self._client.complete(messages))
            except BudgetSpentError as error:
                raise InfrastructureError(f"the judge's {error}") from None
            self._replies[prompt] = reply.text
        return self._replies[prompt]
