"""OpenAI's chat completions: the model NAME plays a whole case, NAME/ROLE is one role's own weights.

A role's weights take the caller's tools: calls are answered as such, and their results go on with the chat.

A field that would change the answer and is not understood is refused by name; what other servers also ignore
is ignored. Source: OpenAI API reference, chat completions, streaming and models.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import takewhile
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roles.base import AnswerError, Tool, parse_strict_json, say_fault
from roles.errors import InfrastructureError, UserError, unknown
from roles.limits import MAX_CALLS_PER_TURN
from roles.registry import ROLES
from scenarios.base import ToolCall
from scenarios.written.written_case import FreeCase
from serving.endpoint.tables import BusyError, PlayedTable, Tables, Tell, Turn
from serving.guard import describe_error
from simulator.tool_calls import OPEN, BadToolCallError, format_tool_call, parse_tool_calls

MOST_MESSAGES, MOST_TOOLS = 64, 64
IGNORED = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "metadata",
        "presence_penalty",
        "reasoning_effort",
        "safety_identifier",
    }
    | {"seed", "service_tier", "store", "top_p", "user", "verbosity"}
)


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OfferedFunction(_RequestBody):
    """A tool of the caller. Example: OfferedFunction(name="add", parameters={"type": "object"})"""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] = Field(default={})
    strict: Literal[False] | None = None


class OfferedTool(_RequestBody):
    """An entry of `tools`."""

    type: Literal["function"]
    function: OfferedFunction

    def as_tool(self) -> Tool:
        """Return it as roles have tools."""
        schema = {"type": "object", "properties": {}, **self.function.parameters}
        return Tool(name=self.function.name, description=self.function.description, parameters=schema)


class CalledFunction(_RequestBody):
    """Name and arguments of a call, as JSON text."""

    name: str
    arguments: str = "{}"


class MadeCall(_RequestBody):
    """An entry of `tool_calls` of an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def as_call(self) -> ToolCall:
        """Return it as agents make calls.

        Raises:
            UserError: arguments that are no JSON object.
        """
        try:
            arguments = parse_strict_json(self.function.arguments)
        except AnswerError as error:
            raise UserError(f"tool_calls: the arguments of {self.id!r} are no JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise UserError(f"tool_calls: the arguments of {self.id!r} are no JSON object")
        return ToolCall(name=self.function.name, arguments=arguments)


class TextPart(_RequestBody):
    """A piece of a message. Example: TextPart(type="text", text="title: ...")"""

    type: Literal["text"]
    text: str


class ChatMessage(_RequestBody):
    """One message. Example: ChatMessage(role="user", content="title: ...")"""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] = ""
    name: str | None = None
    tool_calls: list[MadeCall] = Field(default=[], max_length=MAX_CALLS_PER_TURN)
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """Return the content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ResponseFormat(_RequestBody):
    """Form of a decision: minutes, or one JSON object."""

    type: Literal["text", "json_object"]


class StreamOptions(_RequestBody):
    """Options of the end of a stream."""

    include_usage: bool = False
    include_obfuscation: bool = False


class ChatRequest(_RequestBody):
    """A request, without the fields of IGNORED.

    Example: ChatRequest(model="demo", messages=[ChatMessage(role="user", content="title: ...")])
    """

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat = ResponseFormat(type="text")
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: Literal[1] | None = None
    logprobs: Literal[False] = False
    tools: list[OfferedTool] = Field(default=[], max_length=MOST_TOOLS)
    tool_choice: Literal["auto", "none"] = "auto"
    parallel_tool_calls: Literal[True] | None = None


def make_openai_routes(tables: Tables, name: str) -> APIRouter:
    """Return the routes; `name` is the team's, as clients name the model."""
    router = APIRouter()
    roles = {f"{name}/{role}": role for role in ROLES}
    created = int(time.time())

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        names = [name, *roles]
        listed = [{"id": one, "object": "model", "created": created, "owned_by": "emads"} for one in names]
        return {"object": "list", "data": listed}

    @router.post("/v1/chat/completions")
    async def complete_chat(request: Request) -> Response:
        try:
            asked = _read_request(await request.body())
            if asked.model == name:
                return await _decide(tables, asked)
            if asked.model in roles:
                return await _speak(tables, asked, roles[asked.model])
            raise unknown("model", asked.model, [name, *roles])
        except UserError as error:
            return _fail(HTTPStatus.BAD_REQUEST, str(error))
        except BusyError as error:
            return _fail(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": str(error.retry_after_s)})
        except InfrastructureError as error:
            return _fail(HTTPStatus.BAD_GATEWAY, f"the engine failed: {error}")

    return router


async def _decide(tables: Tables, asked: ChatRequest) -> Response:
    if asked.tools or any(message.role == "tool" for message in asked.messages):
        raise UserError(
            f"tools: model {asked.model!r} plays a whole decision with its own; ask a role's model for others"
        )
    case = tables.read_case(asked.messages[-1].text)
    is_json = asked.response_format.type == "json_object"

    def write(played: PlayedTable) -> str:
        return json.dumps(played.as_fields()) if is_json else played.minutes

    if not asked.stream:
        played = await tables.decide(case)
        message, _ = make_message(write(played), with_tools=False)
        return JSONResponse(_make_reply(asked.model, message, "stop", _count_usage(played)))
    return await _stream(tables, asked, case, write, has_progress=not is_json)


async def _stream(
    tables: Tables,
    asked: ChatRequest,
    case: FreeCase,
    write: Callable[[PlayedTable], str],
    *,
    has_progress: bool,
) -> Response:
    """Answer with events while the case is played. A full queue is told before the first one."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def tell(line: str) -> None:
        if has_progress:
            lines.put_nowait(f"{line}\n")

    playing = asyncio.create_task(_play_and_end(tables, case, tell, lines))
    first = asyncio.create_task(lines.get())
    await first
    if playing.done() and isinstance(playing.exception(), BusyError | UserError):
        playing.result()

    async def send() -> AsyncIterator[str]:
        head = _head(asked.model, "chat.completion.chunk")

        def chunk(delta: dict[str, str], reason: str | None = None, **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return f"data: {json.dumps({**head, 'choices': [choice], **more})}\n\n"

        try:
            yield chunk({"role": "assistant", "content": ""})
            line = first.result()
            while line is not None:
                yield chunk({"content": line})
                line = await lines.get()
            try:
                played = await playing
            except (InfrastructureError, BusyError) as error:
                yield f"data: {describe_error(HTTPStatus.BAD_GATEWAY, str(error)).decode()}\n\n"
                return
            text = write(played)
            yield chunk({"content": f"\n{text}" if has_progress else text})
            yield chunk({}, "stop")
            if asked.stream_options is not None and asked.stream_options.include_usage:
                yield chunk({}, choices=[], usage=_count_usage(played))
            yield "data: [DONE]\n\n"
        finally:
            playing.cancel()

    return StreamingResponse(send(), media_type="text/event-stream")


async def _play_and_end(
    tables: Tables, case: FreeCase, tell: Tell, lines: asyncio.Queue[str | None]
) -> PlayedTable:
    try:
        return await tables.decide(case, tell)
    finally:
        lines.put_nowait(None)


async def _speak(tables: Tables, asked: ChatRequest, role: str) -> Response:
    if asked.stream:
        raise UserError(f"model {asked.model!r} answers at once: leave out stream")
    if asked.response_format.type != "text":
        raise UserError(f"model {asked.model!r} writes what it learnt to write: leave out response_format")
    tools = [] if asked.tool_choice == "none" else [one.as_tool() for one in asked.tools]
    own = tables.team.sampling
    sampling = replace(
        own,
        temperature=own.temperature if asked.temperature is None else asked.temperature,
        max_completion_tokens=min(
            asked.max_completion_tokens or asked.max_tokens or own.max_completion_tokens,
            own.max_completion_tokens,
        ),
    )
    turns = _list_turns(asked.messages)
    text, completion, prompt_tokens = await tables.complete(role, turns, sampling, tools)
    usage = _make_usage(prompt_tokens, len(completion.token_ids))
    message, calls_tools = make_message(text, with_tools=bool(tools))
    reason = "tool_calls" if calls_tools else completion.finish_reason
    return JSONResponse(_make_reply(asked.model, message, reason, usage))


def _list_turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Return the turns in order; system text goes before the first user message.

    Raises:
        UserError: another order, or calls without one result each.
    """
    own = [message.text for message in messages if message.role in ("system", "developer")]
    spoken = [message for message in messages if message.role not in ("system", "developer")]
    turns: list[Turn] = []
    for place, message in enumerate(spoken):
        if message.role == "tool":
            continue  # taken with the calls before
        is_wanted = message.role == ("assistant" if turns and turns[-1][0] != "assistant" else "user")
        if not is_wanted:
            raise UserError("messages must be user, assistant, user or results of tools, assistant, ...")
        if message.role == "user":
            turns.append(("user", (message.text,)))
            continue
        calls = (call.as_call() for call in message.tool_calls)
        turns.append(("assistant", (format_tool_call(message.text, *calls),)))
        results = list(takewhile(lambda one: one.role == "tool", spoken[place + 1 :]))
        if results or message.tool_calls:
            found = [(one.tool_call_id, one.text) for one in results]
            turns.append(("tool", order_results(message.tool_calls, found)))
    num_results = sum(len(texts) for who, texts in turns if who == "tool")
    if not turns or turns[-1][0] == "assistant" or num_results != sum(one.role == "tool" for one in spoken):
        raise UserError("messages must begin with user, and end with user or results of tools")
    return [("user", ("\n\n".join([*own, turns[0][1][0]]),)), *turns[1:]]


def order_results(calls: Sequence[MadeCall], results: Sequence[tuple[str | None, str]]) -> tuple[str, ...]:
    """Return the texts of (id, text) in the order of the calls.

    Raises:
        UserError: not one result for each call.
    """
    wanted, found = [call.id for call in calls], [identity for identity, _ in results]
    if sorted(wanted) != sorted(map(str, found)):
        raise UserError(f"messages: the calls {wanted} have the results {found}; send one for each call")
    texts = dict(results)
    return tuple(texts[identity] for identity in wanted)


def make_message(text: str, *, with_tools: bool) -> tuple[dict[str, Any], bool]:
    """Return a reply's message, and whether it calls tools; words that only look like a call are content."""
    plain = {"role": "assistant", "content": text, "refusal": None}
    try:
        calls = parse_tool_calls(text) if with_tools else ()
    except BadToolCallError:
        return plain, False
    if not calls:
        return plain, False
    said = text[: text.index(OPEN)].strip()
    return {**plain, "content": said or None, "tool_calls": [_describe_call(call) for call in calls]}, True


def _describe_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _read_request(body: bytes) -> ChatRequest:
    try:
        value = parse_strict_json(body.decode())
    except (AnswerError, UnicodeDecodeError) as error:
        raise UserError(f"the body is no strict JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError("the body must be a JSON object")
    try:
        asked = {key: one for key, one in value.items() if key not in IGNORED}
        return ChatRequest.model_validate(_drop_unset(asked))
    except ValidationError as error:
        raise UserError(say_fault(error)) from None


def _drop_unset(value: Any) -> Any:
    """Return a request without fields that are null or empty: clients write so what they do not set.

    The schemas of a caller's tools stay as they are.
    """
    if isinstance(value, dict):
        return {
            key: one if key == "parameters" else _drop_unset(one)
            for key, one in value.items()
            if one not in (None, [], {}, "")
        }
    return [_drop_unset(one) for one in value] if isinstance(value, list) else value


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _make_reply(model: str, message: dict[str, Any], reason: str, usage: dict[str, int]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {**_head(model, "chat.completion"), "choices": [choice], "usage": usage}


def _count_usage(played: PlayedTable) -> dict[str, int]:
    return _make_usage(played.prompt_tokens, played.completion_tokens)


def _make_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def _fail(status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> Response:
    body = describe_error(status, message)
    return Response(body, status.value, {"content-type": "application/json", **(headers or {})})
