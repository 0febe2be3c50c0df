"""Reads replies of a vLLM server strictly."""

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.engines.base import Completion, CompletionRequest
from simulator.records import FinishReason


class BadReplyError(Exception):
    """An answer that cannot be used: wrong shape, a number that is not finite, or cut short by the server."""


class _Logprobs(BaseModel):
    model_config = ConfigDict(extra="ignore")

    token_logprobs: list[float | None]


class _Choice(BaseModel):
    model_config = ConfigDict(extra="ignore")

    finish_reason: str | None
    logprobs: _Logprobs
    token_ids: list[int]  # sent because of return_token_ids


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    choices: list[_Choice] = Field(min_length=1, max_length=1)


def read_completion(
    content: bytes, request: CompletionRequest, *, end_id: int | None, version: str
) -> Completion:
    """Read the completion in a reply of `/v1/completions`.

    Raises:
        BadReplyError: says what is wrong.
    """
    try:
        choice = _Reply.model_validate_json(content).choices[0]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadReplyError(f"reply without {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    token_ids, logprobs = tuple(choice.token_ids), choice.logprobs.token_logprobs
    finite = tuple(value for value in logprobs if value is not None and math.isfinite(value))
    if len(finite) != len(token_ids):
        raise BadReplyError("a log-probability is missing or not finite")
    if end_id is not None and token_ids[-1:] == (end_id,):
        reason: FinishReason = "stop"
    elif len(token_ids) == request.sampling.max_completion_tokens:
        reason = "length"
    else:
        raise BadReplyError(
            f"context full: {len(request.prompt_ids)} + {len(token_ids)} tokens"
            f" (finish: {choice.finish_reason})"
        )
    return Completion(token_ids=token_ids, logprobs=finite, finish_reason=reason, policy_version=version)


def read_problem(content: bytes) -> str:
    """Read the message in an error reply, or its first characters."""
    try:
        value: Any = json.loads(content)
        return str(value["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return content[:300].decode("utf-8", "replace")
