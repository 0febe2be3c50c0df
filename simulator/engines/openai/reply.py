"""A reply of `/v1/chat/completions`, read strictly: a ChatReply or a named failure, nothing repaired."""

import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import InfrastructureError

FailureKind = Literal[
    "timeout",  # no whole answer in time
    "connection",  # refused, reset, or cut before the end
    "rate_limit",  # 429
    "server_error",  # 5xx, 408, 409, 425
    "refused",  # any other status: the same request would be refused again
    "content_type",  # not application/json
    "too_large",
    "not_json",  # half JSON, NaN, invalid UTF-8
    "protocol",  # JSON of another shape, empty choices
]


# Reasons for which servers end a turn, in small letters; whatever else they name is no turn of the model.
CALLED = frozenset({"tool_calls", "tool_use", "function_call"})
ENDED = CALLED | {"stop", "eos", "eos_token", "end_turn", "stop_sequence"}
CUT = frozenset({"length", "max_tokens", "model_length", "max_length", "model_context_window_exceeded"})


class EndpointError(InfrastructureError):
    """The endpoint gave no usable reply. Example: EndpointError("timeout", "no answer within 60 s")"""

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        may_be_charged: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.may_be_charged = may_be_charged  # the model may have worked although no reply was readable
        self.retry_after_s = retry_after_s  # what the server asks for; None where it does not say
        self.cost = 0.0  # of all attempts of this request, set when the last one has failed


class RequestedCall(BaseModel):
    """A tool call on the wire. Example: RequestedCall(id="c1", name="savings", arguments="{}")"""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: str
    name: str
    arguments: str  # JSON text as the model wrote it, unchecked


class ChatReply(BaseModel):
    """One assistant message and what it cost.

    Example: ChatReply(text="best 24", finish_reason="stop", prompt_tokens=412, completion_tokens=21,
                       cost=0.0003)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    text: str
    reasoning: str = ""  # thoughts that the server keeps apart from the text
    calls: tuple[RequestedCall, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None  # None where the endpoint does not say
    completion_tokens: int | None = None
    cost: float = Field(default=0.0, ge=0)  # of this request and its failed attempts, in the prices' currency


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Function(_Wire):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(_Wire):
    id: str | None = None
    function: _Function


class _Part(_Wire):
    type: Literal["text", "output_text", "thinking", "reasoning"]
    text: str | None = None
    thinking: Any = None  # text, or parts of text


class _Message(_Wire):
    content: str | list[_Part] | None = None
    reasoning: Any = None  # vLLM's field; others call it reasoning_content
    reasoning_content: Any = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None  # the older form of one call


class _Choice(_Wire):
    message: _Message
    finish_reason: str | None = None
    error: Any = None  # of a gateway whose provider gave up


class _Usage(_Wire):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class _Body(_Wire):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None


def read_message(content: bytes) -> ChatReply:
    """Read the first choice of a response body; its cost is not known here.

    Raises:
        EndpointError: `not_json` or `protocol`.
    """
    try:
        value = parse_strict_json(content.decode())
        failure = _find_failure(value)
        if failure is not None:
            raise _provider_failure(failure)
        body = _Body.model_validate(value)
    except UnicodeDecodeError as error:
        raise _unreadable("not_json", f"invalid UTF-8 at byte {error.start}") from None
    except AnswerError as error:
        raise _unreadable("not_json", str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise _unreadable("protocol", f"{where}: {first['msg']}") from None
    choice = body.choices[0]
    if choice.error:
        raise _provider_failure(choice.error)
    reason = choice.finish_reason and choice.finish_reason.lower()
    if reason not in ENDED | CUT:
        told = "no reason" if reason is None else repr(reason[:60])
        raise EndpointError("server_error", f"the turn ended for {told}", may_be_charged=True)
    made = choice.message.tool_calls or ()
    if choice.message.function_call is not None and not made:
        made = [_Call(function=choice.message.function_call)]
    calls = tuple(_read_call(call, number) for number, call in enumerate(made))
    if reason in CALLED and not calls:
        raise _unreadable("protocol", f"the turn ended for {reason!r}, and the reply holds no call")
    usage = _read_usage(body.usage)
    return ChatReply(
        text=_read_text(choice.message),
        reasoning=_read_reasoning(choice.message),
        calls=calls,
        finish_reason=reason,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
    )


def read_error_text(content: bytes, most: int = 400) -> str:
    """Read an error response's message, on one line of at most `most` characters; "" for an empty body."""
    text = content.decode(errors="replace")
    try:
        failure = _find_failure(parse_strict_json(text))
        text = text if failure is None else _say_failure(failure)
    except AnswerError:
        pass
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:most]


def _unreadable(kind: FailureKind, detail: str) -> EndpointError:
    return EndpointError(kind, detail, may_be_charged=True)


def _find_failure(value: Any) -> Any:
    """Return what a body tells of an error, in the forms of several servers, or None."""
    if isinstance(value, list) and value:  # Gemini's
        value = value[0]
    if not isinstance(value, dict):
        return None
    if value.get("choices"):
        return value.get("error")
    is_told = value.get("object") == "error" or value.get("type") == "error"
    return value.get("error") or value.get("detail") or (value if is_told or "message" in value else None)


def _say_failure(failure: Any) -> str:
    """Return an error's words, its name in brackets where it has one."""
    if not isinstance(failure, dict):
        return str(failure)
    words = failure.get("message") or failure.get("msg") or json.dumps(failure)
    names = [one for key in ("code", "type", "status") if isinstance(one := failure.get(key), str)]
    names = [one for one in names if not one.isdecimal()]
    return f"{words} ({names[0]})" if names else str(words)


def _provider_failure(error: Any) -> EndpointError:
    """Name the failure that an error object inside a reply with status 200 means."""
    words = " ".join(_say_failure(error).split())
    code = error.get("code") if isinstance(error, dict) else None
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 500
    if number == 500 and re.search(
        r"invalid|context.(length|size)|too long|bad.?request|not_found", words, re.IGNORECASE
    ):
        number = 400
    is_final = 400 <= number < 500 and number not in (408, 409, 425, 429)
    kind: FailureKind = "refused" if is_final else "rate_limit" if number == 429 else "server_error"
    return EndpointError(kind, f"{number} {words[:400]}")


def _read_text(message: _Message) -> str:
    if isinstance(message.content, list):
        parts = (part.text or "" for part in message.content if part.type in ("text", "output_text"))
        return "".join(parts)
    return message.content or ""


def _read_reasoning(message: _Message) -> str:
    parts = message.content if isinstance(message.content, list) else []
    thoughts = [_join_thoughts(part) for part in parts if part.type in ("thinking", "reasoning")]
    fields = (message.reasoning, message.reasoning_content, "".join(thoughts))
    return next((text for text in fields if isinstance(text, str) and text), "")


def _join_thoughts(part: _Part) -> str:
    if isinstance(part.thinking, list):
        pieces = (piece.get("text") for piece in part.thinking if isinstance(piece, dict))
        return "".join(text for text in pieces if isinstance(text, str))
    return part.thinking if isinstance(part.thinking, str) else part.text or ""


def _read_call(call: _Call, number: int) -> RequestedCall:
    arguments = call.function.arguments or "{}"
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = json.dumps(arguments)
    return RequestedCall(id=call.id or f"call_{number}", name=call.function.name, arguments=arguments)


def _read_usage(value: Any) -> _Usage | None:
    try:
        return _Usage.model_validate(value)
    except ValidationError:
        return None
