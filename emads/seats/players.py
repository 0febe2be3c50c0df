"""Players of seats, read from words such as `cto=openai:MODEL@URL`. Each refusal names value and remedy."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emads.seats import SCRIPTED, STAGES
from roles.errors import UserError, unknown
from roles.registry import ROLES
from simulator.engines.openai.endpoint import find_completions_url

ALL = "all"
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
