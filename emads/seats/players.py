"""Players of seats, read from words such as `cto=openai:MODEL@URL`, and how endpoints are asked and paid.

Each refusal names value and remedy. No price is ever guessed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emads.seats import SCRIPTED, STAGES
from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios.written.strict_yaml import read_settings
from simulator.engines.openai.endpoint import (
    EndpointSettings,
    ToolShape,
    find_completions_url,
    read_api_key,
)

ALL = "all"
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
FORMS = "openai:MODEL@URL, scripted, scripted:HABIT, run:RUN/STAGE, run:FOLDER of an exported team, or human"


@dataclass(frozen=True, slots=True)
class ApiPlayer:
    """A model behind an OpenAI-compatible endpoint. Example: ApiPlayer("qwen", "http://127.0.0.1:8000/v1")"""

    model: str
    url: str

    def __str__(self) -> str:
        return f"openai:{self.model}@{self.url}"


@dataclass(frozen=True, slots=True)
class ScriptPlayer:
    """An expert in code, or a baseline. Example: ScriptPlayer("lean")"""

    habit: str | None = None  # None: every case draws one

    def __str__(self) -> str:
        return SCRIPTED if self.habit is None else f"{SCRIPTED}:{self.habit}"


@dataclass(frozen=True, slots=True)
class RunPlayer:
    """A run's weights of the seat's role. Example: RunPlayer(Path("runs/demo"), "marl")"""

    run: Path
    stage: str

    def __str__(self) -> str:
        return f"run:{self.run}/{self.stage}"


@dataclass(frozen=True, slots=True)
class HumanPlayer:
    """A person at this terminal, or in the browser. Example: HumanPlayer()"""

    store: Path | None = None  # of the gate, whose review app asks the person; None: the terminal does

    def __str__(self) -> str:
        return "human"


Player = ApiPlayer | ScriptPlayer | RunPlayer | HumanPlayer


@dataclass(frozen=True, slots=True)
class Seats:
    """The player of each named seat and of all others.

    Example: read_seats(["all=scripted", "cto=scripted:lean"]).player_of("cto") == ScriptPlayer("lean")
    """

    named: Mapping[str, Player]
    others: Player | None = None  # None: nobody yet

    def player_of(self, seat: str) -> Player:
        """Return the seat's player.

        Raises:
            UserError: nobody plays it.
        """
        player = self.named.get(seat, self.others)
        if player is None:
            raise UserError(f"nobody plays {seat!r}: add --seat {seat}=... or --seat {ALL}=... ({FORMS})")
        return player

    def or_else(self, others: Player) -> "Seats":
        """Return the same seats with `others` where nobody is named."""
        return Seats(self.named, self.others or others)

    def in_browser(self, store: Path) -> "Seats":
        """Return the same seats, people answering in the review app of a store."""

        def move(player: Player) -> Player:
            return HumanPlayer(store) if isinstance(player, HumanPlayer) else player

        others = None if self.others is None else move(self.others)
        return Seats({seat: move(player) for seat, player in self.named.items()}, others)

    @property
    def players(self) -> list[Player]:
        """Return every player once."""
        others = [] if self.others is None else [self.others]
        return list(dict.fromkeys([*self.named.values(), *others]))

    @property
    def label(self) -> str:
        """Return the players in words, e.g. "cto=scripted:lean, others run:runs/demo/marl"."""
        words = [f"{seat}={player}" for seat, player in self.named.items()]
        if self.others is not None:
            words.append(f"{'others' if words else 'all seats'} {self.others}")
        return ", ".join(words)


def read_seats(given: Sequence[str]) -> Seats:
    """Read words of the form SEAT=PLAYER; SEAT `all` stands for every seat that is not named.

    Raises:
        UserError: an unknown seat or player, or a seat twice.

    Examples:
        >>> read_seats(["all=scripted", "cto=openai:qwen@http://127.0.0.1:8000"]).label
        'cto=openai:qwen@http://127.0.0.1:8000, others scripted'
    """
    named: dict[str, Player] = {}
    for one in given:
        seat, equals, word = one.partition("=")
        if not equals or not seat or not word:
            raise UserError(f"--seat {one!r} is not of the form SEAT=PLAYER; PLAYER is {FORMS}")
        if seat not in (*ROLES, ALL):
            raise unknown("seat", seat, [*ROLES, ALL])
        if seat in named:
            raise UserError(f"--seat names {seat!r} twice; say it once")
        named[seat] = read_player(word)
    others = named.pop(ALL, None)
    return Seats(named, others)


def read_player(word: str) -> Player:
    """Read `openai:MODEL@URL`, `scripted`, `scripted:HABIT`, `run:RUN/STAGE`, `run:FOLDER` or `human`.

    STAGE left out is marl; FOLDER is an exported team.

    Raises:
        UserError: anything else.
    """
    kind, colon, rest = word.partition(":")
    match kind:
        case "openai":
            found = re.fullmatch(r"(.+?)@(https?://.*)", rest) or re.fullmatch(r"(.+)@(.*)", rest)
            if found is None:
                raise UserError(f"{word!r} names no endpoint: write openai:MODEL@http://host:8000/v1")
            model, url = found.groups()
            find_completions_url(url)
            return ApiPlayer(model, url)
        case "scripted":
            if colon and not rest:
                raise UserError(f"{word!r} names no habit: write {SCRIPTED} or {SCRIPTED}:lean")
            return ScriptPlayer(rest or None)
        case "run":
            if not rest:
                raise UserError(f"{word!r} names no run: write run:runs/demo/marl")
            return _read_run(Path(rest))
        case "human":
            if colon:
                raise UserError(f"{word!r}: a person needs no name here; write human")
            return HumanPlayer()
        case _:
            raise UserError(f"unknown player {word!r}: write {FORMS}")


def _read_run(path: Path) -> RunPlayer:
    """Return the player of `RUN/STAGE`, of `RUN` (its stage `marl`) or of an exported team's folder."""
    from training.export.team_folder import find_stage, is_team_folder  # half a second of schemas

    is_folder = (path / "config.yaml").is_file() or is_team_folder(path)
    if path.name in STAGES and not is_folder:
        return RunPlayer(path.parent, path.name)
    return RunPlayer(path, find_stage(path))


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
    found: dict[str, Any] = {}
    others: list[str] = []
    for one in given:
        key, _, value = one.partition("=")
        name, dot, _ = key.partition(".")
        if name in ("price", "key_env"):  # names of models may hold dots
            key, _, value = one.rpartition("=")
            model = key.partition(".")[2] or ANY_MODEL
            if name == "price":
                prices[model] = _read_price(one, value)
            else:
                variables[model] = value
        elif name == "replies" and value and not dot:
            found["replies"] = Path(value)
        elif name == "max_cost" and not dot:
            found["max_cost"] = _read_cost(one, value)
        else:
            others.append(one)
    settings = read_settings(
        others, (*TUNABLE, *OWN_KEYS), option="--api", what="setting of --api", form="KEY=VALUE"
    )
    shape = settings.pop("tools", "native")
    if shape not in SHAPES:
        raise unknown("shape of tools", str(shape), list(SHAPES))
    return ApiOptions(prices=prices, key_variables=variables, settings=settings, shape=shape, **found)


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
