"""`emads serve`: loads a team, opens its engine, and listens."""

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emads import __version__
from emads.seats.mixed_team import MixedTeam
from emads.seats.players import ScriptPlayer, Seats
from emads.seats.prices import ApiOptions
from emads.teams import ScriptedTeam, Team, load_team
from roles.errors import UserError
from scenarios.team.playable import PlayableCase
from serving.endpoint.app import LIMITS, Governance, make_app
from serving.endpoint.tables import Tables
from serving.guard import MIN_TOKEN_CHARACTERS, settle_access
from serving.server import name_address, open_socket, run_server
from simulator.governance.seals import KEY_BYTES, find_key

MOST_WAITING = 256  # jobs in the queue; one more is refused with 429
GRACE_S = 30.0  # that jobs at work have when the server is ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Address at which the server listens, as its user gave it. Example: Place(port=8400)"""

    port: int
    host: str = "127.0.0.1"
    is_public: bool = False
    token_variable: str | None = None
    names: tuple[str, ...] = ()  # further ones in requests' Host
    url: str | None = None  # in the agent card


def serve_team(
    source: str | None,
    stage: str | None,
    place: Place,
    *,
    name: str | None = None,
    db: Path | None = None,
    reviewers: Sequence[str] = (),
    most_at_once: int,
    seats: tuple[Seats, ApiOptions] | None = None,
) -> None:
    """Serve a team until SIGINT or SIGTERM.

    Raises:
        UserError: no such team, a variable without a token, an address that cannot be had, an unusable store.
    """
    token = None if place.token_variable is None else read_token(place.token_variable)
    access = settle_access(
        port=place.port, host=place.host, token=token, is_public=place.is_public, names=place.names
    )
    persons = dict(_read_reviewer(one) for one in reviewers)
    key = secrets.token_bytes(KEY_BYTES) if db is None else find_key(db.with_name(f"{db.name}.key"))
    governance = Governance(store=db, key=key, reviewers=persons)
    players, api = seats or ((), None)
    team = load_team(source, stage=stage, seats=players, api=api)
    model = name_model(name, source)
    known: list[PlayableCase] = [team.draw_case(0)]  # has every seat that a case can have
    with open_socket(access) as listener, team.serve(known) as opened:
        tables = Tables(
            team,
            opened,
            known=known if has_script(team) else None,
            most_at_once=most_at_once,
            most_waiting=MOST_WAITING,
        )
        address = place.url or name_address(listener)
        app = make_app(tables, model, governance, url=address, version=__version__)
        shown = f"{team.label} as model {model!r}"
        run_server(app, access, name=shown, limits=LIMITS, grace_s=GRACE_S, listener=listener)


def read_token(variable: str) -> str:
    """Return the token in an environment variable.

    Raises:
        UserError: none is there.
    """
    token = os.environ.get(variable, "").strip()
    if not token:
        raise UserError(
            f"no token in the environment variable {variable}; set it, e.g. to `openssl rand -hex 16`"
        )
    return token


def name_model(name: str | None, source: str | None) -> str:
    """Return the model's name at the endpoint.

    Raises:
        UserError: other characters than a name's.
    """
    chosen = name or (Path(source).resolve().name if source is not None else "team")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", chosen):
        raise UserError(f"{chosen!r} is no model's name: give one by --name, of letters, digits, _ . and -")
    return chosen


def has_script(team: Team) -> bool:
    """Tell whether a seat is played by a script, which must know every case."""
    if isinstance(team, MixedTeam):
        return any(isinstance(player, ScriptPlayer) for player in team.seats.players)
    return isinstance(team, ScriptedTeam)


def _read_reviewer(text: str) -> tuple[str, str]:
    name, equals, variable = text.rpartition("=")
    if not equals or not name or not variable:
        raise UserError(f"--reviewer {text!r} is not of the form NAME=VARIABLE")
    token = read_token(variable)
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise UserError(
            f"--reviewer {name}: the token in {variable} has under {MIN_TOKEN_CHARACTERS} characters"
        )
    return name, token
