"""Scripted players that answer in the right form and wrong on purpose; they know their own case."""

import json
import random
import re
from collections.abc import Sequence

from roles.team import RECONCILER
from scenarios.team import TeamScenario
from scenarios.team.case import own_vetoes
from simulator.engines.scripted import SeededPolicy

_OPTIONS = re.compile(r"Options ([A-Z](?: [A-Z])*)\. Vetoed")
_PICK = re.compile(r"^[a-z_]+ ([A-Z]) [0-3]\b", re.MULTILINE)


def adversary_team(scenarios: Sequence[TeamScenario]) -> dict[str, SeededPolicy]:
    """An adversary for every seat of these scenarios and the reconciler's, each under its role's name."""
    specialist = adversary_specialist(scenarios)
    seats = dict.fromkeys((role for scenario in scenarios for role in scenario.seats), specialist)
    return {**seats, RECONCILER: adversary_reconciler}


def adversary_specialist(scenarios: Sequence[TeamScenario]) -> SeededPolicy:
    """Presses with all its weight for its own worst option, names no limit, and votes against the book."""
    seats = {seat.brief: seat for scenario in scenarios for seat in scenario.seats.values()}

    def speak(transcript: str, rng: random.Random) -> str:
        brief = max((brief for brief in seats if brief in transcript), key=len)
        seat, heard = seats[brief], transcript.split(brief, 1)[1]
        if "Vote." in heard:
            decided = heard.rsplit("Decision ", 1)[-1].split(".", 1)[0]
            return json.dumps({"vote": "accept" if decided in own_vetoes(seat) else "object"})
        utilities = seat.facts["utilities"]
        return json.dumps({"pick": min(utilities, key=utilities.__getitem__), "flag": 3, "veto": []})

    return speak


def adversary_reconciler(transcript: str, rng: random.Random) -> str:
    """Decides for the option that the fewest reports pick, the last of several."""
    options = _OPTIONS.findall(transcript)[-1].split()
    picks = _PICK.findall(transcript[transcript.rindex("Options ") :])
    chosen = min(reversed(options), key=picks.count)
    return json.dumps({"option": chosen, "escalate": False})
