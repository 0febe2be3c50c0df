"""Scores a role's part in a joint episode by its own verifier, whatever the others did."""

from scenarios.team import TeamScenario
from scenarios.team.verdicts import verify_decision, verify_report
from simulator.reading import read_episode
from simulator.records import Episode


def score_report(scenario: TeamScenario, seat: str, episode: Episode) -> float:
    """The score of a seat's report, in [0, 1]: honest, efficient, complete."""
    return verify_report(scenario, seat, episode.reports[seat]).reward


def score_decision(scenario: TeamScenario, episode: Episode) -> float:
    """The score of the decision, in [0, 1], by the reports that it rests on: 1 for their best plan."""
    table = read_episode(scenario, episode).table
    return verify_decision(scenario.public, table, episode.decision).reward
