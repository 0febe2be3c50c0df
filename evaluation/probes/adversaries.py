"""Scripted players that answer in the right form and wrong on purpose; they know their own case."""

import json
import random
from collections.abc import Sequence

from roles.team import NO_OPTION, RECONCILER, Decision, Report
from scenarios.team import PlayableCase
from scenarios.team.experts import make_offer
from scenarios.team.funding import list_all_fundings
from simulator.agents.scripted_policies import list_specialists, reconciler_policy, seat_policy
from simulator.agents.table_reading import ReadTable
from simulator.engines.scripted import SeededPolicy

_OTHER_VOTE = {"accept": "object", "object": "accept"}


def adversary_team(scenarios: Sequence[PlayableCase]) -> dict[str, SeededPolicy]:
    """An adversary for every seat of these scenarios and the reconciler's, each under its role's name."""
    seats = {role: adversary_specialist(scenarios, role) for role in list_specialists(scenarios)}
    return {**seats, RECONCILER: reconciler_policy(decide_worst)}


def adversary_specialist(scenarios: Sequence[PlayableCase], role: str) -> SeededPolicy:
    """Offers its dearest parts at their true price, names no limit, and votes against the book."""

    def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
        return gild_report(case, role).model_dump_json()

    honest = seat_policy(scenarios, role, report)

    def speak(transcript: str, rng: random.Random) -> str:
        text = honest(transcript, rng)
        answer = json.loads(text)
        return json.dumps({"vote": _OTHER_VOTE[answer["vote"]]}) if "vote" in answer else text

    return speak


def gild_report(case: PlayableCase, seat: str) -> Report:
    """On every option the dearest part that keeps the limit; not a word of the limit."""
    offers = []
    for option in case.options:
        keeping = [part for part in case.parts_of(seat, option) or () if part.keeps_limit and part.choice]
        if keeping:
            offers.append(make_offer(max(keeping, key=lambda part: (part.cost, -part.worth))))
    return Report(offers=offers, needs=[], veto=[])


def decide_worst(table: ReadTable, _rng: random.Random) -> Decision:
    """The plan of the least worth that can be run by the reports; escalates where there is none."""
    plans = list_all_fundings(table.public, table.reports)
    if not plans:
        return Decision(option=NO_OPTION, fund=[], escalate=True)
    worst = min(plans, key=lambda plan: plan.worth)
    return Decision(option=worst.option, fund=[offer.label for offer in worst.offers], escalate=False)
