"""Prices of models and limits of requests, from options. No price is ever guessed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emads.seats.players import ApiPlayer
from roles.errors import UserError, unknown
from scenarios.written.strict_yaml import read_settings
from simulator.engines.openai.endpoint import EndpointSettings, ToolShape, read_api_key

ANY_MODEL = ""
OWN_KEYS = ("tools", "price", "max_cost", "key_env", "replies")
SHAPES: tuple[ToolShape, ...] = ("native", "text")
TUNABLE = (
    "timeout_s",
    "max_retries",
    "backoff_s",
    "max_wait_s",
    "concurrency",
    "requests_per_minute",
    "max_completion_tokens",
    "temperature",
)
SEAT_COMPLETION_TOKENS = 2048  # of a turn: a report with reasoning before it


class Price(BaseModel):
    """Price of a model's tokens, in any one currency.

    Example: Price(input=2.5, output=10.0)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    input: float = Field(ge=0)  # per million prompt tokens
    output: float = Field(ge=0)  # per million completion tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Limits and prices by which the endpoints of a team are asked.

    Example: ApiOptions(prices={"qwen": Price(input=0.1, output=0.4)}, max_cost=2.0)
    """

    prices: Mapping[str, Price] = field(default_factory=dict)  # by model; ANY_MODEL for all others
    max_cost: float | None = None  # of all endpoints together, in the currency of the prices
    key_variables: Mapping[str, str] = field(default_factory=dict)  # by model; "" for all others
    settings: Mapping[str, Any] = field(default_factory=dict)  # keys of EndpointSettings
    shape: ToolShape = "native"
    replies: Path | None = None  # file of paid replies: the same call goes on from it

    def find_price(self, model: str) -> Price | None:
        """Return the model's price, or that of every model; None: not given."""
        return self.prices.get(model, self.prices.get(ANY_MODEL))

    def settle(self, player: ApiPlayer) -> EndpointSettings:
        """Return the settings of one endpoint.

        Raises:
            UserError: no API key in the variable, or a setting out of range.
        """
        variable = self.key_variables.get(player.model, self.key_variables.get(ANY_MODEL))
        price = self.find_price(player.model) or Price(input=0, output=0)
        values: dict[str, Any] = {"max_completion_tokens": SEAT_COMPLETION_TOKENS, **self.settings}
        try:
            return EndpointSettings(
                url=player.url,
                model=player.model,
                api_key=None if variable is None else read_api_key(variable),
                price_in=price.input,
                price_out=price.output,
                **values,
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise UserError(f"--api {first['loc'][0]}={first['input']}: {first['msg'].lower()}") from None

    def check(self, players: Sequence[ApiPlayer]) -> None:
        """Refuse a cost limit without the prices that it needs, and prices of models that nobody plays.

        Raises:
            UserError: names the model.
        """
        models = [player.model for player in players]
        for model in models:
            if self.max_cost is not None and self.find_price(model) is None:
                raise UserError(
                    f"max_cost={self.max_cost:g} needs the price of {model!r}:"
                    f" add --api price.{model}=INPUT,OUTPUT (per million tokens; 0,0 where it costs nothing)"
                )
        for model in self.key_variables:
            if model and model not in models:
                raise unknown("model of key_env", model, models)


def read_api_options(given: Sequence[str]) -> ApiOptions:
    """Read words KEY=VALUE: prices, limits, keys of EndpointSettings, or the shape of tools.

    `price=INPUT,OUTPUT` or `price.MODEL=...` per million tokens; `max_cost=X`;
    `key_env=VARIABLE` or `key_env.MODEL=VARIABLE`; `replies=FILE`; `tools=text`.

    Raises:
        UserError: names key, value and form.

    Examples:
        >>> read_api_options(["price.qwen=2.5,10", "max_cost=5"]).max_cost
        5.0
    """
    prices: dict[str, Price] = {}
    variables: dict[str, str] = {}
    replies: Path | None = None
    max_cost: float | None = None
    others: list[str] = []
    for one in given:
        key, _, value = one.partition("=")
        model = key.partition(".")[2] if "." in key else ANY_MODEL
        match key.partition(".")[0]:
            case "price":
                priced, figures = _split_model(one)
                prices[priced] = _read_price(one, figures)
            case "key_env":
                variables |= dict([_split_model(one)])
            case "replies" if value and not model:
                replies = Path(value)
            case "max_cost" if not model:
                max_cost = _read_cost(one, value)
            case _:
                others.append(one)
    settings = read_settings(
        others, (*TUNABLE, *OWN_KEYS), option="--api", what="setting of --api", form="KEY=VALUE"
    )
    shape = settings.pop("tools", "native")
    if shape not in SHAPES:
        raise unknown("shape of tools", str(shape), list(SHAPES))
    return ApiOptions(
        prices=prices,
        max_cost=max_cost,
        key_variables=variables,
        settings=settings,
        shape=shape,
        replies=replies,
    )


def _split_model(text: str) -> tuple[str, str]:
    """Return model and value of `KEY.MODEL=VALUE`, or of `KEY=VALUE` for any model; names may hold dots."""
    key, _, value = text.rpartition("=")
    return key.partition(".")[2] or ANY_MODEL, value


def _read_price(text: str, figures: str) -> Price:
    parts = figures.split(",")
    try:
        if len(parts) != 2:
            raise ValueError(text)
        return Price(input=float(parts[0]), output=float(parts[1]))
    except ValueError:
        raise UserError(
            f"--api {text!r} is not of the form price.MODEL=INPUT,OUTPUT, two prices of a million tokens"
        ) from None


def _read_cost(text: str, value: str) -> float:
    try:
        cost = float(value)
    except ValueError:
        raise UserError(f"--api {text!r} is not of the form max_cost=5") from None
    if not cost > 0:
        raise UserError(f"--api {text} must be above 0")
    return cost
