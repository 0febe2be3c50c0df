"""The joint game is handed in: the graph plays one whose reports, decisions and votes it has never seen."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from team_tables import CHAT, SAMPLING, SEATS, TEAM, draw_scenarios

from roles.team import RECONCILER
from scenarios.team.playable import PlayableCase
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_decisions, play_episodes


class BidGame:
    """Reports are bids, the decision is a sum, and a vote is yes or no."""

    def __init__(self, case: PlayableCase) -> None:
        self.options = case.options

    def read_report(self, text: str) -> dict[str, Any] | None:
        return {"bid": int(text)} if text.isdecimal() else None

    def read_decision(self, text: str) -> dict[str, Any] | None:
        return {"sum": int(text)} if text.isdecimal() else None

    def read_vote(self, text: str) -> str | None:
        return {"yes": "accept", "no": "object"}.get(text)

    def write_decision_brief(
        self, reports: Mapping[str, dict[str, Any] | None], ruled_out: Collection[str] = ()
    ) -> str:
        bids = " ".join(f"{role} {'-' if bid is None else bid['bid']}" for role, bid in reports.items())
        return f"Bids on {' '.join(self.options)}: {bids}"

    def write_vote_brief(self, decision: dict[str, Any] | None) -> str:
        return "No sum?" if decision is None else f"Sum {decision['sum']}?"

    def write_objection_brief(self, objectors: Sequence[str]) -> str:
        return f"Against it: {' '.join(objectors)}"


def specialist(transcript: str) -> str:
    return ("yes" if "Sum 9?" in transcript else "no") if "Sum" in transcript else "3"


def reconciler(transcript: str) -> str:
    return "9" if "Against it: " + " ".join(SEATS) in transcript else "12"


ENGINE = ScriptedEngine(CHAT, {**dict.fromkeys(SEATS, specialist), RECONCILER: reconciler})


def test_the_graph_plays_another_game() -> None:
    cases = draw_scenarios(2)
    episodes = asyncio.run(play_episodes(cases, TEAM, ENGINE, CHAT, SAMPLING, rounds=2, make_game=BidGame))
    for case, episode in zip(cases, episodes, strict=True):
        assert episode.reports == dict.fromkeys(SEATS, "3")
        assert episode.decision == "9"
        assert episode.votes == dict.fromkeys(SEATS, "yes")
        heard = [CHAT.decode(turn.context_ids) for turn in episode.trajectories[RECONCILER].turns]
        assert f"Bids on {' '.join(case.options)}: cto 3 coo 3 risk 3 cost 3" in heard[0]


def test_decisions_on_fixed_reports_are_of_the_same_game() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = asyncio.run(play_episodes([case], TEAM, ENGINE, CHAT, SAMPLING, make_game=BidGame))
    again = asyncio.run(
        play_decisions(
            [(case, episode)], TEAM, ENGINE, CHAT, SAMPLING, num_decisions=2, rounds=2, make_game=BidGame
        )
    )
    assert [one.decision for one in again] == ["9", "9"]
