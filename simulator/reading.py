"""Reads an episode's texts as the game read them while it was played: reports, replies, decision, votes."""

from collections.abc import Mapping
from dataclasses import dataclass

from roles.team import Decision
from scenarios.company.records import Plan
from scenarios.team import PlanGame, PlayableCase, Table, load_table
from scenarios.team.value import funded_plan
from simulator.game import Parsed
from simulator.records import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEpisode:
    """An episode's texts as they were read.

    Example: read_episode(scenario, episode).decision.option == "B"
    """

    table: Table  # checked reports by seat, with what replies added; None for a malformed report
    decision: Decision | None
    votes: Mapping[str, str | None]  # seat -> "accept", "object", or None for a malformed or missing vote

    @property
    def plan(self) -> Plan | None:
        """Return what the decision funds; None where there is none, or where it escalates."""
        if self.decision is None or self.decision.escalate:
            return None
        return funded_plan(self.table, self.decision)


def read_episode(scenario: PlayableCase, episode: Episode) -> ReadEpisode:
    """Read everything that the seats wrote; never raises on model text."""
    game = PlanGame(scenario)
    reports = read_reports(scenario, episode)
    decision = game.read_decision(reports, episode.decision)
    votes = {seat: game.read_vote(episode.votes.get(seat, "")) for seat in scenario.seats}
    return ReadEpisode(
        table=load_table(reports),
        decision=None if decision is None else Decision.model_validate(decision),
        votes={seat: None if vote is None else vote["vote"] for seat, vote in votes.items()},
    )


def read_reports(scenario: PlayableCase, episode: Episode) -> dict[str, Parsed | None]:
    """Return the checked reports by seat as JSON values, with what replies to questions added."""
    game = PlanGame(scenario)
    reports = {seat: game.read_report(seat, episode.reports.get(seat, "")) for seat in scenario.seats}
    for question in episode.asked:
        ask = game.read_ask(question.ask)
        if ask is not None:
            seat = ask["seat"]
            offer = game.read_reply(seat, ask, reports[seat], question.reply)
            reports[seat] = game.add_offer(reports[seat], offer)
    return reports
