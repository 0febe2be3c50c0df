"""Scripted players of single seats: experts of a habit, drawn habits, and baselines."""

import random
from collections.abc import Mapping, Sequence

from emads.seats.players import ScriptPlayer, Seats
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS
from scenarios.team.playable import PlayableCase
from simulator.agents.scripted_policies import (
    BASELINES,
    baseline_team,
    oracle_reconciler,
    oracle_solo,
    oracle_specialist,
)
from simulator.engines.scripted import SeededPolicy


def check_habits(seats: Seats) -> None:
    """Refuse a habit that its seat does not have.

    Raises:
        UserError: names seat, habit and those that are known.
    """
    for seat in ROLES:
        player = seats.player_of(seat)
        if isinstance(player, ScriptPlayer) and player.habit is not None:
            known = [*(FUNDING_HABITS if seat == RECONCILER else REPORT_HABITS), *BASELINES]
            if player.habit not in known:
                raise unknown(f"habit of {seat}", player.habit, known)


def make_script(
    habit: str | None, seat: str, cases: Sequence[PlayableCase], *, asks: bool = False
) -> SeededPolicy:
    """Return the policy of a seat in joint cases; habit None: every case draws one.

    `asks`: whether an expert ReconcileGPT puts questions to the seats.
    """
    if habit is not None and habit in BASELINES:
        return baseline_team(cases, habit).get(seat, _sit_out)
    if seat == RECONCILER:
        return oracle_reconciler(habit=habit, asks=asks)
    return oracle_specialist(cases, seat, habit=habit)


def make_solo_script(
    habit: str | None,
    role: str,
    scenarios: Sequence[Scenario],
    *,
    families: Mapping[str, Family] = FAMILIES,
) -> SeededPolicy:
    """Return the policy of a role on its own family: a baseline of that name, else the expert."""
    own = [scenario for scenario in scenarios if scenario.role == role]
    if habit is None or habit not in BASELINES:
        play = oracle_solo(own, families=families)
        return lambda transcript, rng: play(transcript)

    def answer(transcript: str, rng: random.Random) -> str:
        for scenario in own:
            if scenario.brief in transcript:
                baselines = families[scenario.family].baselines
                if habit not in baselines:
                    raise UserError(f"{role} alone has no baseline {habit!r} (known: {', '.join(baselines)})")
                return baselines[habit](scenario, rng)
        raise ValueError(f"the transcript holds no brief of {role}")

    return answer


def _sit_out(transcript: str, rng: random.Random) -> str:
    raise ValueError("a seat speaks that is in none of the cases")
