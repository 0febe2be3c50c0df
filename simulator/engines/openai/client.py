"""An async client for `/v1/chat/completions` of any OpenAI-compatible endpoint.

Every request ends in a ChatReply or a named failure within bounded time. It sends nothing but the configured
request: no redirects, no proxies or credentials from the environment, and the key only in its header.
"""

import asyncio
import email.utils
import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx

from roles.errors import UserError
from simulator.engines.openai.endpoint import EndpointSettings, find_completions_url
from simulator.engines.openai.reply import ChatReply, EndpointError, read_error_text, read_reply
from simulator.engines.openai.request_limits import Budget, BudgetSpentError, Pace

MAX_REPLY_BYTES = 4 * 1024 * 1024
PERMANENT = ("refused", "too_large")  # kinds that the same request would meet again
RETRIED_STATUSES = (408, 409, 425)  # besides 429 and 5xx
REMEDIES = {
    401: "check the key that --api-key-env names",
    402: "check the balance of the account",
    403: "check what the key may use",
    404: "check the URL and the model's name",
}


class ChatClient:
    """Asks one endpoint; use it as an async context manager.

    Example: async with ChatClient(settings) as client: reply = await client.complete(messages, tools)
    """

    def __init__(self, settings: EndpointSettings, *, spent: float = 0.0) -> None:
        """`spent`: what earlier runs under the same limit have cost.

        Raises:
            UserError: not a URL.
        """
        self._settings = settings
        self._url = find_completions_url(settings.url)
        self._pace = Pace(settings.requests_per_minute)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._limit_name = "max_tokens"
        self._rng = random.Random()
        self.budget = Budget(
            price_in=settings.price_in, price_out=settings.price_out, max_cost=settings.max_cost, spent=spent
        )
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if settings.api_key is not None:
            headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=settings.timeout_s,
            limits=httpx.Limits(max_connections=settings.concurrency),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> ChatReply:
        """One reply, after retries where a failure may pass.

        Raises:
            EndpointError: the last failure; its `cost` is that of all attempts.
            BudgetSpentError: the next attempt could exceed the cost limit.
            UserError: key, balance, permission, address or model are refused.
        """
        cost = 0.0
        num_failures = 0
        async with self._slots:
            while True:
                body = self._encode(messages, tools)
                bound = self.budget.price(len(body), self._settings.max_completion_tokens)
                try:
                    reply = await self._charge(body, bound)
                    return reply.model_copy(update={"cost": cost + reply.cost})
                except BudgetSpentError as error:
                    error.cost = cost
                    raise
                except EndpointError as error:
                    cost += bound if error.may_be_charged else 0.0
                    if self._learn_limit_name(error):
                        continue
                    num_failures += 1
                    wait_s = self._choose_wait(error, num_failures)
                    if wait_s is None:
                        error.cost = cost
                        raise
                    if error.retry_after_s is not None:
                        self._pace.hold_off(wait_s)
                await asyncio.sleep(wait_s)

    def _encode(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> bytes:
        settings = self._settings
        body: dict[str, Any] = {"model": settings.model, "messages": list(messages), "stream": False}
        body[self._limit_name] = settings.max_completion_tokens
        if tools:
            body["tools"] = list(tools)
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        return json.dumps(body).encode()

    async def _charge(self, body: bytes, bound: float) -> ChatReply:
        """One attempt within pace and budget; the reply carries its cost."""
        await self._pace.wait_turn()
        await self.budget.reserve(bound)
        cost = 0.0
        try:
            reply = await self._attempt(body)
            if reply.prompt_tokens is None or reply.completion_tokens is None:
                cost = bound
            else:
                cost = self.budget.price(reply.prompt_tokens, reply.completion_tokens)
            return reply.model_copy(update={"cost": cost})
        except EndpointError as error:
            cost = bound if error.may_be_charged else 0.0
            raise
        finally:
            self.budget.settle(bound, cost)

    async def _attempt(self, body: bytes) -> ChatReply:
        settings = self._settings
        try:
            async with (
                asyncio.timeout(settings.timeout_s),
                self._http.stream("POST", self._url, content=body) as response,
            ):
                content = await _read(response)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise EndpointError(
                "timeout", f"no whole answer within {settings.timeout_s:g} s", may_be_charged=True
            ) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise EndpointError("connection", self._describe(error)) from None
        except httpx.HTTPError as error:
            raise EndpointError("connection", self._describe(error), may_be_charged=True) from None
        if response.status_code != 200:
            raise self._refusal(response, content)
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise EndpointError("content_type", f"{content_type[:60]!r}, not JSON", may_be_charged=True)
        return read_reply(content)

    def _refusal(self, response: httpx.Response, content: bytes) -> EndpointError:
        """The failure that a status other than 200 means.

        Raises:
            UserError: one that the user has to set right.
        """
        status = response.status_code
        detail = self._redact(f"{status} {read_error_text(content)}".strip())
        if status in REMEDIES:
            raise UserError(f"{self._url} answers {detail}; {REMEDIES[status]}")
        if 300 <= status < 400:
            raise UserError(f"{self._url} answers {status}, a redirect; give the address that it leads to")
        if status == 429:
            return EndpointError("rate_limit", detail, retry_after_s=_read_retry_after(response))
        if status >= 500 or status in RETRIED_STATUSES:
            return EndpointError("server_error", detail, retry_after_s=_read_retry_after(response))
        return EndpointError("refused", detail)

    def _choose_wait(self, error: EndpointError, num_failures: int) -> float | None:
        """Seconds until the next attempt; None to give up."""
        settings = self._settings
        if error.kind in PERMANENT or num_failures > settings.max_retries:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= settings.max_wait_s else None
        longest_s = min(settings.max_wait_s, settings.backoff_s * 2.0 ** (num_failures - 1))
        return longest_s * self._rng.uniform(0.5, 1.0)

    def _learn_limit_name(self, error: EndpointError) -> bool:
        """Whether the endpoint wants the token limit under its newer name, learnt just now."""
        is_news = self._limit_name == "max_tokens" and "max_completion_tokens" in str(error)
        if error.kind != "refused" or not is_news:
            return False
        self._limit_name = "max_completion_tokens"
        return True

    def _describe(self, error: Exception) -> str:
        return self._redact(f"{type(error).__name__} {error}".strip()[:200])

    def _redact(self, text: str) -> str:
        key = self._settings.api_key
        return text if key is None else text.replace(key.get_secret_value(), "***")


async def _read(response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_REPLY_BYTES:
            raise EndpointError("too_large", f"more than {MAX_REPLY_BYTES} bytes", may_be_charged=True)
    return bytes(content)


def _read_retry_after(response: httpx.Response) -> float | None:
    """Seconds of a Retry-After header (a number or a date); None where there is no readable one."""
    text = response.headers.get("retry-after", "").strip()
    try:
        wait_s = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        wait_s = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, wait_s) if math.isfinite(wait_s) else None
