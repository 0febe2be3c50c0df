"""The joint game is handed in: the graph plays one whose reports, decisions and votes it has never seen."""

import asyncio
from collections.abc import Collection, Mapping

from team_tables import CHAT, SAMPLING, SEATS, TEAM, draw_scenarios

from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import ToolCall, ToolError
from scenarios.team import PlayableCase
from simulator.engines.scripted import ScriptedEngine
from simulator.game import Parsed, Reports, TeamGame
from simulator.graph.runner import play_decisions, play_episodes


class BidGame:
    """Reports are bids, a question asks for a higher one, the decision is a sum, a vote is yes or no."""

    most_questions = 1

    def __init__(self, case: PlayableCase) -> None:
        self.options = case.options

    def without_questions(self) -> TeamGame:
        return self

    def read_report(self, seat: str, text: str) -> Parsed | None:
        return {"bid": int(text)} if text.isdecimal() else None

    def read_decision(self, reports: Reports, text: str) -> Parsed | None:
        return {"sum": int(text)} if text.isdecimal() else None

    def read_ask(self, text: str) -> Parsed | None:
        return {"seat": text[1:]} if text.startswith("?") else None

    def read_reply(self, seat: str, ask: Parsed, known: Parsed | None, text: str) -> Parsed | None:
        return {"more": int(text)} if text.isdecimal() else None

    def add_offer(self, known: Parsed | None, offer: Parsed | None) -> Parsed | None:
        return {"bid": known["bid"] + offer["more"]} if known and offer else known

    def read_vote(self, text: str) -> Parsed | None:
        return (
            {"vote": {"yes": "accept", "no": "object"}[text], "reason": ""} if text in ("yes", "no") else None
        )

    def write_report_brief(self, seat: str, *, with_tools: bool = True) -> str:
        return f"{seat}, bid on {' '.join(self.options)}"

    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        return "Bids: " + " ".join(f"{seat} {bid['bid'] if bid else '-'}" for seat, bid in reports.items())

    def write_ask(self, seat: str, ask: Parsed) -> str:
        return f"More, {seat}?"

    def write_vote_brief(self, decision: Parsed | None, seat: str, reports: Reports) -> str:
        return "No sum?" if decision is None else f"Sum {decision['sum']}?"

    def write_objection_brief(self, votes: Mapping[str, Parsed | None]) -> str:
        against = [seat for seat, vote in votes.items() if vote and vote["vote"] == "object"]
        return f"Against it: {' '.join(against)}"

    def prompt_role(self, seat: str, *, with_tools: bool = True) -> Role:
        return (
            ROLES[seat]
            if seat == RECONCILER
            else Role(name=f"{seat}+bids", title=seat, mandate="Bid.", answer=ROLES[seat].answer)
        )

    def call_tool(self, seat: str, call: ToolCall, reports: Reports) -> str:
        raise ToolError("no tools")


def specialist(transcript: str) -> str:
    if "Sum" in transcript:
        return "yes" if "Sum 9?" in transcript else "no"
    return "4" if "More," in transcript else "3"


def reconciler(transcript: str) -> str:
    if "Against it: " + " ".join(SEATS) in transcript:
        return "9"
    return "12" if "cto 7" in transcript else "?cto"


ENGINE = ScriptedEngine(CHAT, {**dict.fromkeys(SEATS, specialist), RECONCILER: reconciler})


def test_the_graph_plays_another_game() -> None:
    cases = draw_scenarios(2)
    episodes = asyncio.run(play_episodes(cases, TEAM, ENGINE, CHAT, SAMPLING, rounds=2, make_game=BidGame))
    for case, episode in zip(cases, episodes, strict=True):
        assert episode.reports == dict.fromkeys(SEATS, "3")
        assert [(one.ask, one.reply) for one in episode.asked] == [("?cto", "4")]
        assert episode.decision == "9"
        assert episode.votes == dict.fromkeys(SEATS, "yes")
        heard = [CHAT.decode(turn.context_ids) for turn in episode.trajectories[RECONCILER].turns]
        assert "Bids: cto 3 coo 3 risk 3 cost 3" in heard[0]
        assert "Bids: cto 7 coo 3 risk 3 cost 3" in heard[1]
        first = CHAT.decode(episode.trajectories["cto"].turns[0].context_ids)
        assert first.startswith("<|system|>cto. Bid.<|end|>")
        assert f"cto, bid on {' '.join(case.options)}" in first


def test_decisions_on_fixed_reports_are_of_the_same_game() -> None:
    (case,) = draw_scenarios(1)
    (episode,) = asyncio.run(play_episodes([case], TEAM, ENGINE, CHAT, SAMPLING, make_game=BidGame))
    again = asyncio.run(
        play_decisions(
            [(case, episode)], TEAM, ENGINE, CHAT, SAMPLING, num_decisions=2, rounds=2, make_game=BidGame
        )
    )
    assert [one.decision for one in again] == ["9", "9"]
