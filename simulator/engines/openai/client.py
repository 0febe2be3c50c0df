"""An async client for `/v1/chat/completions` of any OpenAI-compatible endpoint, on the OpenAI SDK.

Every request ends in a ChatReply or a named failure within bounded time. It sends nothing but the configured
request: no redirects, no proxies or credentials from the environment, and the key only in its header.
Retries, limits and the strict reading of replies are ours: the SDK's retries and lenient parser are not used.
"""

import asyncio
import email.utils
import json
import math
import random
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import httpx2
from pydantic import SecretStr

from roles.errors import UserError
from simulator.engines.openai.endpoint import (
    PATH,
    Budget,
    BudgetSpentError,
    EndpointSettings,
    RateLimit,
    find_completions_url,
)
from simulator.engines.openai.reply import (
    ChatReply,
    EndpointError,
    read_error_text,
    read_message,
)

SENT_HEADERS = (
    "host",
    "accept",
    "accept-encoding",
    "connection",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
)


class ChatTransport(httpx2.AsyncHTTPTransport):
    """Sends requests directly to their address: no proxy, no credentials but the given key."""

    def __init__(self, api_key: SecretStr | None, *, max_connections: int) -> None:
        super().__init__(trust_env=False, limits=httpx2.Limits(max_connections=max_connections))
        self._api_key = api_key

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a copy of the request with its own headers alone."""
        headers = {name: value for name, value in request.headers.items() if name.lower() in SENT_HEADERS}
        if self._api_key is not None:
            headers["authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        own = httpx2.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )
        return await super().handle_async_request(own)


MAX_REPLY_BYTES = 4 * 1024 * 1024
PERMANENT = ("refused", "too_large")  # kinds that the same request would meet again
RETRIED_STATUSES = (408, 409, 425)  # besides 429 and 5xx
# Words by which servers refuse a prompt that leaves no room: OpenAI, vLLM, SGLang, llama.cpp, TGI, gateways.
TOO_LONG = re.compile(
    r"context.?(length|window|size|limit)|(maximum|max) (context|prompt|input|model).?len|model.?length"
    r"|(prompt|input|message|token|length)\w*\b.{0,60}\b(too long|longer than|exceeds?)\b"
    r"|(input|prompt)\w*\b.{0,60}\bmust (be|have) (<|less|fewer|at most|shorter|no more|under)"
    r"|too many (input |prompt )?tokens"
    r"|reduce (the|your) (length|prompt|input|messages)|exceeds the (limit|maximum) .{0,20}tokens",
    re.IGNORECASE,
)
# that name the reply's own limit, whatever the prompt
_OTHER_LIMIT = re.compile(
    r"at most \d+ completion tokens|max\w*tokens\W.{0,30}exceeds the maximum|tool_call_id|\.id\b|per.minute",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"(?:context (?:length|size|window)|maximum model length|must be <=)\D{0,20}(\d+)", re.IGNORECASE
)
_PROMPT = re.compile(
    r"(\d+) (?:`?inputs?`? tokens|tokens (?:in|from) the|in the messages|prompt tokens)", re.IGNORECASE
)
_SUM = re.compile(r"(\d+) \+ \d+ > (\d+)")  # prompt + reply > context
REMEDIES = {
    401: "check the key in the environment variable that you named",
    402: "check the balance of the account",
    403: "check what the key may use",
    404: "check the URL and the model's name",
}


class ChatClient:
    """Asks one endpoint; use it as an async context manager.

    Example: async with ChatClient(settings) as client: reply = await client.complete(messages, tools)
    """

    def __init__(
        self, settings: EndpointSettings, *, spent: float = 0.0, budget: Budget | None = None
    ) -> None:
        """`spent`: what earlier runs under the same limit have cost. `budget`: shared with other clients.

        Raises:
            UserError: not a URL.
        """
        self._settings = settings
        self._url = find_completions_url(settings.url)
        self._rate_limit = RateLimit(settings.requests_per_minute)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._limit_name = "max_tokens"
        self._takes_temperature = True
        self._rng = random.Random()
        self.budget = budget or Budget(max_cost=settings.max_cost, spent=spent)
        http = httpx2.AsyncClient(
            transport=ChatTransport(settings.api_key, max_connections=settings.concurrency),
            event_hooks={"response": [self._check_status]},
            follow_redirects=False,
            trust_env=False,
        )
        import openai  # 0.7 s, for which a play without endpoints need not wait

        self._sdk = openai.AsyncOpenAI(
            base_url=self._url.removesuffix(PATH),
            api_key="the transport sets it",
            timeout=settings.timeout_s,
            max_retries=0,
            http_client=http,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections."""
        await self._sdk.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        temperature: float | None = None,
        max_completion_tokens: int | None = None,
    ) -> ChatReply:
        """Ask for one reply, with retries after a failure that may pass.

        `temperature` counts where the settings have none, `max_completion_tokens` where it is smaller.

        Raises:
            EndpointError: the last failure; its `cost` is that of all attempts.
            BudgetSpentError: the next attempt could exceed the cost limit.
            UserError: key, balance, permission, address or model are refused.
        """
        cost = 0.0
        num_failures = 0
        if self._settings.temperature is not None:
            temperature = self._settings.temperature
        most = min(max_completion_tokens or sys.maxsize, self._settings.max_completion_tokens)
        async with self._slots:
            while True:
                request = self._make_request(messages, tools, temperature, most)
                bound = self._settings.price(len(json.dumps(request)), most)
                try:
                    reply = await self._charge(request, bound)
                    return reply.model_copy(update={"cost": cost + reply.cost})
                except BudgetSpentError as error:
                    error.cost = cost
                    raise
                except EndpointError as error:
                    cost += bound if error.may_be_charged else 0.0
                    if self._learn_limit_name(error) or self._learn_temperature(error, request):
                        continue
                    if (room := _read_room(error)) is not None and room < most:
                        most = room
                        continue
                    num_failures += 1
                    wait_s = self._choose_wait(error, num_failures)
                    if wait_s is None:
                        error.cost = cost
                        raise
                    if error.retry_after_s is not None:
                        self._rate_limit.hold_off(wait_s)
                await asyncio.sleep(wait_s)

    def _make_request(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        temperature: float | None,
        most: int,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._settings.model, "messages": list(messages), "stream": False}
        body[self._limit_name] = most
        if tools:
            body["tools"] = list(tools)
        if temperature is not None and self._takes_temperature:
            body["temperature"] = temperature
        return body

    async def _charge(self, request: dict[str, Any], bound: float) -> ChatReply:
        """Make one attempt within rate and budget."""
        await self._rate_limit.wait_turn()
        await self.budget.reserve(bound)
        cost = 0.0
        try:
            reply = await self._attempt(request)
            if reply.prompt_tokens is None or reply.completion_tokens is None:
                cost = bound
            else:
                cost = self._settings.price(reply.prompt_tokens, reply.completion_tokens)
            return reply.model_copy(update={"cost": cost})
        except EndpointError as error:
            cost = bound if error.may_be_charged else 0.0
            raise
        finally:
            self.budget.settle(bound, cost)

    async def _attempt(self, request: dict[str, Any]) -> ChatReply:
        import openai

        timeout_s = self._settings.timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._sdk.chat.completions.with_streaming_response.create(**request) as response,
            ):
                content = await _read(response.iter_bytes())
        except TimeoutError:
            raise _timed_out(timeout_s) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            raise self._name_failure(error) from None
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise EndpointError("content_type", f"{content_type[:60]!r}, not JSON", may_be_charged=True)
        return read_message(content)

    def _name_failure(self, error: Exception) -> EndpointError:
        """Name the failure that an error of the HTTP library means; the SDK wraps errors before the body."""
        import openai

        cause = (error.__cause__ if isinstance(error, openai.APIConnectionError) else None) or error
        if isinstance(cause, httpx2.ReadTimeout | httpx2.WriteTimeout):
            return _timed_out(self._settings.timeout_s)
        never_arrived = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
        detail = self._redact(f"{type(cause).__name__} {cause}".strip()[:200])
        return EndpointError("connection", detail, may_be_charged=not never_arrived)

    async def _check_status(self, response: httpx2.Response) -> None:
        """Raise the failure of a status other than 200, before the SDK reads a body of any size."""
        if response.status_code != 200:
            raise self._refusal(response, await _read(response.aiter_bytes()))

    def _refusal(self, response: httpx2.Response, content: bytes) -> EndpointError:
        """Return the failure that a status other than 200 means.

        Raises:
            UserError: one that the user has to set right.
        """
        status = response.status_code
        detail = self._redact(f"{status} {read_error_text(content)}".strip())
        if status in REMEDIES:
            raise UserError(f"{self._url} answers {detail}; {REMEDIES[status]}")
        if 300 <= status < 400:
            raise UserError(f"{self._url} answers {status}, a redirect; give the address that it leads to")
        wait_s = _read_retry_after(response.headers.get("retry-after", ""))
        if status == 429:
            return EndpointError("rate_limit", detail, retry_after_s=wait_s)
        if status >= 500 or status in RETRIED_STATUSES:
            return EndpointError("server_error", detail, retry_after_s=wait_s)
        return EndpointError("refused", detail)

    def _choose_wait(self, error: EndpointError, num_failures: int) -> float | None:
        """Return seconds until the next attempt; None to give up."""
        settings = self._settings
        if error.kind in PERMANENT or num_failures > settings.max_retries:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= settings.max_wait_s else None
        longest_s = min(settings.max_wait_s, settings.backoff_s * 2.0 ** (num_failures - 1))
        return longest_s * self._rng.uniform(0.5, 1.0)

    def _learn_limit_name(self, error: EndpointError) -> bool:
        """Return whether the endpoint wants the token limit under its newer name, learnt just now."""
        is_news = self._limit_name == "max_tokens" and "max_completion_tokens" in str(error)
        if error.kind != "refused" or not is_news:
            return False
        self._limit_name = "max_completion_tokens"
        return True

    def _learn_temperature(self, error: EndpointError, request: Mapping[str, Any]) -> bool:
        """Return whether the model takes no temperature of ours, learnt just now."""
        if error.kind != "refused" or "temperature" not in request or "temperature" not in str(error):
            return False
        self._takes_temperature = False
        return True

    def _redact(self, text: str) -> str:
        key = self._settings.api_key
        return text if key is None else text.replace(key.get_secret_value(), "***")


def is_too_long(error: EndpointError) -> bool:
    """Return whether the endpoint refuses a prompt that the model has no room for."""
    words = str(error)
    return error.kind == "refused" and bool(TOO_LONG.search(words)) and not _OTHER_LIMIT.search(words)


def _read_room(error: EndpointError) -> int | None:
    """Read the tokens that a refusal leaves for the reply; None where it does not say, or none are left."""
    if not is_too_long(error):
        return None
    words = str(error)
    context, prompts, total = _CONTEXT.search(words), _PROMPT.findall(words), _SUM.search(words)
    room = int(context[1]) - int(prompts[-1]) if context and prompts else 0
    room = int(total[2]) - int(total[1]) if total else room
    return room if room > 0 else None


def _timed_out(timeout_s: float) -> EndpointError:
    return EndpointError("timeout", f"no whole answer within {timeout_s:g} s", may_be_charged=True)


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    """Read the whole body.

    Raises:
        EndpointError: `too_large`.
    """
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > MAX_REPLY_BYTES:
            raise EndpointError("too_large", f"more than {MAX_REPLY_BYTES} bytes", may_be_charged=True)
    return bytes(content)


def _read_retry_after(header: str) -> float | None:
    """Read the seconds of a Retry-After header (a number or a date); None where there is no readable one."""
    text = header.strip()
    try:
        wait_s = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        wait_s = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, wait_s) if math.isfinite(wait_s) else None
