"""`emads serve`: loads a team, opens its engine, and listens."""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from emads import __version__
from emads.seats.players import ApiOptions, ScriptPlayer, Seats
from emads.team import load_team
from roles.errors import UserError
from scenarios.team.playable import PlayableCase
from serving.endpoint.app import LIMITS, Governance, make_app
from serving.endpoint.tables import Tables
from serving.guard import MIN_TOKEN_CHARACTERS, Access, name_address, open_socket, run_server
from simulator.governance.seals import KEY_BYTES, find_key


def serve_team(
    source: str | None,
    stage: str | None,
    *,
    seats: tuple[Seats, ApiOptions] | None,
    access: Access,
    url: str | None,
    db: Path | None,
    reviewers: Sequence[str],
) -> None:
    """Serve a team until SIGINT or SIGTERM. `url`: its address in the agent card, as behind a proxy.

    Raises:
        UserError: no such team, a variable without a token, an address that cannot be had, an unusable store.
    """
    persons = dict(_read_reviewer(one) for one in reviewers)
    if len(set(persons.values())) < len(reviewers):
        raise UserError("--reviewer: two of the reviewers have one name or one token; give each their own")
    key = secrets.token_bytes(KEY_BYTES) if db is None else find_key(db.with_name(f"{db.name}.key"))
    governance = Governance(store=db, key=key, reviewers=persons)
    players, api = seats or ((), None)
    team = load_team(source, stage=stage, seats=players, api=api)
    model = "team" if source is None else re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(source).resolve().name)
    known: list[PlayableCase] = [team.draw_case(0)]  # has every seat that a case can have
    with open_socket(access) as listener, team.serve(known) as opened:
        is_any_scripted = any(isinstance(player, ScriptPlayer) for player in team.seats.players)
        tables = Tables(team, opened, known=known if is_any_scripted else None)
        app = make_app(tables, model, governance, url=url or name_address(listener), version=__version__)
        shown = f"{team.label} as model {model!r}"
        run_server(app, access, name=shown, limits=LIMITS, listener=listener)


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
