"""Settings of an OpenAI-compatible endpoint, and the limits of rate and cost that its requests share."""

import asyncio
import os
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from roles.errors import UserError

PATH = "/chat/completions"

ToolShape = Literal["native", "text"]  # how tools are offered: by the protocol, or in the system message
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]
Price = Annotated[float, Field(ge=0)]


class EndpointSettings(BaseModel):
    """Address, model, patience and cost limit of one endpoint.

    Example: EndpointSettings(url="http://127.0.0.1:8000/v1", model="qwen2.5-72b")
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    url: str
    """Base address (`http://host:8000/v1`) or the whole one, up to `/chat/completions`."""
    model: Annotated[str, Field(min_length=1)]
    """Name under which the endpoint serves the model."""
    api_key: SecretStr | None = None
    """Bearer token; None sends none."""
    timeout_s: PositiveSeconds = 120.0
    """Seconds until a whole reply must be there, per attempt."""
    max_retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Further attempts after a failure that may pass."""
    backoff_s: PositiveSeconds = 1.0
    """Wait before the first retry in seconds; it doubles each time, with jitter."""
    max_wait_s: PositiveSeconds = 60.0
    """Longest wait between attempts; a server that asks for a longer one is given up."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 8
    """Most requests under way at once."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """RateLimit limit, evenly spread; None for none."""
    price_in: Price = 0.0
    """Price of a million prompt tokens."""
    price_out: Price = 0.0
    """Price of a million completion tokens."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """Most that all requests together may cost, in the currency of the prices; None for no limit."""
    max_completion_tokens: Annotated[int, Field(ge=1)] = 1024
    """Most tokens per reply."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; None leaves it to the endpoint."""

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.max_cost is not None and self.price_in == self.price_out == 0:
            raise ValueError(f"max_cost {self.max_cost:g} needs prices; give --price-in and --price-out")
        return self

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what these tokens cost, in the currency of the prices."""
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6


def read_api_key(variable: str) -> SecretStr:
    """Read the key in an environment variable.

    Raises:
        UserError: not set, empty, or not printable ASCII; the value is never shown.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise UserError(f"environment variable {variable!r} holds no API key; set it, or name another one")
    if not (value.isascii() and value.isprintable()):
        raise UserError(f"environment variable {variable!r} holds no API key but other text")
    return SecretStr(value)


def find_completions_url(url: str) -> str:
    """Return the address that requests go to.

    Raises:
        UserError: no http(s) address, or one that carries a password, a query or a fragment.
    """
    import httpx2  # heavy, and needed only where an endpoint plays

    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise UserError(f"endpoint {url[:200]!r} is not a URL ({error})") from None
    if parsed.userinfo:
        raise UserError("the endpoint's URL holds a password; put the key into an environment variable")
    is_address = parsed.scheme in ("http", "https") and parsed.host and 0 < (parsed.port or 80) < 65_536
    if not is_address or parsed.query or parsed.fragment:
        raise UserError(f"endpoint {url[:200]!r} is not of the form http://host:8000/v1")
    base = str(parsed).rstrip("/")
    if base.endswith(PATH):
        return base
    return base + ("/v1" if parsed.path in ("", "/") else "") + PATH


class BudgetSpentError(Exception):
    """The next request could exceed the cost limit: a clean stop, no failure."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.cost = 0.0  # of the failed attempts before


class RateLimit:
    """At most `per_minute` requests a minute (None: any), evenly spread; all wait when the server asks."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap_s = 60 / per_minute if per_minute else 0.0
        self._next_s = 0.0  # on the event loop's clock
        self._queue = asyncio.Lock()

    async def wait_turn(self) -> None:
        """Return when the next request may leave, in the order of the calls."""
        clock = asyncio.get_running_loop().time
        async with self._queue:
            while (left_s := self._next_s - clock()) > 0:
                await asyncio.sleep(left_s)
            self._next_s = clock() + self._gap_s

    def hold_off(self, wait_s: float) -> None:
        """No request leaves within the next `wait_s` seconds."""
        self._next_s = max(self._next_s, asyncio.get_running_loop().time() + wait_s)


class Budget:
    """Counts cost and keeps it at or under a limit, requests under way included.

    A request reserves the most that it can cost before it leaves, so that the limit holds whatever the order
    of the replies, as long as the endpoint keeps to the requested number of tokens.

    Several endpoints may share one.

    Example: Budget(max_cost=5.0, spent=1.2)
    """

    def __init__(self, *, max_cost: float | None = None, spent: float = 0.0) -> None:
        self._max_cost = max_cost  # None: no limit
        self._reserved = 0.0
        self._num_open = 0  # requests under way
        self._is_closed = False
        self._settled = asyncio.Event()  # replaced each time it is set
        self.spent = spent

    async def reserve(self, bound: float) -> None:
        """Set `bound` aside; waits while requests under way could still leave room for it.

        Raises:
            BudgetSpentError: no room, now and for every later request.
        """
        if self._max_cost is not None:
            while not self._is_closed and self.spent + self._reserved + bound > self._max_cost:
                self._is_closed = self._num_open == 0
                if not self._is_closed:
                    await self._settled.wait()
            if self._is_closed:
                raise BudgetSpentError(f"cost limit {self._max_cost:g} reached, {self.spent:.4f} spent")
        self._reserved += bound
        self._num_open += 1

    def settle(self, bound: float, cost: float) -> None:
        """Book `cost` in place of the `bound` that was reserved."""
        self.spent += cost
        self._num_open -= 1
        self._reserved = self._reserved - bound if self._num_open else 0.0
        self._settled.set()
        self._settled = asyncio.Event()
