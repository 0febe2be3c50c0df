"""Scores an episode by the team reward R = V (1 + c C) / (1 + c) - k U - h H. Pure; never in the graph."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from roles.team import Decision
from scenarios.team import DecisionValue, TeamScenario, judge_decision
from scenarios.team.experts import best_vote
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode

Weight = Annotated[float, Field(ge=0)]


class TeamRewardWeights(BaseModel):
    """Weights of the team reward R = V (1 + c C) / (1 + c) - k U - h H; all 0 leaves R = V."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    consensus: Weight = 0.25
    """c: how much justified agreement multiplies the value of the decision."""
    unresolved: Weight = 0.2
    """k: penalty on the share of specialists whose hard limit the decision breaks."""
    escalation: Weight = 0.1
    """h: penalty on needless or missed escalation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamVerdict:
    """The team reward and its parts.

    Example: TeamVerdict(reward=0.76, value=0.8, consensus=0.75, unresolved=0.0, escalation=0.0,
                         explanation="B worth 94: value 0.80, 3 of 4 votes right, breaks no hard limit")
    """

    reward: float  # R, in [-k - h, 1]; 1 only at the exact optimum with every vote right
    value: float  # V, in [0, 1]
    consensus: float  # C, in [0, 1]: share of the seats whose vote is right; a missing vote is wrong
    unresolved: float  # U, in [0, 1]: share of the seats whose hard limit is broken; 1 without a decision
    escalation: float  # H, 0 or 1: escalated needlessly, or did not where no option can be run
    explanation: str


def score_episode(scenario: TeamScenario, episode: Episode, weights: TeamRewardWeights) -> TeamVerdict:
    """Score one episode on its last decision and the votes on that.

    A missing or malformed decision leaves every conflict unresolved, so that no decision at all is never
    better than a bad one (a policy fault gets the least reward of the case).

    Raises:
        ValueError: the episode is another scenario's, or ended in an infrastructure fault.
    """
    if episode.scenario_key != scenario.key:
        raise ValueError(f"episode of {episode.scenario_key} scored against {scenario.key}")
    if episode.error is not None:
        raise ValueError(f"an episode with an infrastructure fault has no reward: {episode.error}")
    read = read_episode(scenario, episode)
    judged = judge_decision(scenario, read.table, read.decision)
    right = list_right_votes(scenario, read)
    consensus = len(right) / len(scenario.seats)
    unresolved = len(judged.broken_limits) / len(scenario.seats)
    escalation = float(judged.escalation_fault)
    return TeamVerdict(
        reward=combine_parts(judged.value, consensus, unresolved, escalation, weights),
        value=judged.value,
        consensus=consensus,
        unresolved=unresolved,
        escalation=escalation,
        explanation=_explain(scenario, read.decision, judged, len(right)),
    )


def list_right_votes(scenario: TeamScenario, read: ReadEpisode) -> list[str]:
    """List the seats that vote as they should: object to a broken own limit or no decision, accept else."""
    escalated = read.decision is not None and read.decision.escalate
    return [
        seat
        for seat, vote in read.votes.items()
        if vote == best_vote(scenario, seat, read.plan, escalated=escalated).vote
    ]


def combine_parts(
    value: float, consensus: float, unresolved: float, escalation: float, weights: TeamRewardWeights
) -> float:
    """Combine the parts into R: agreement multiplies value, so it adds nothing to a worthless decision."""
    shared = (1 + weights.consensus * consensus) / (1 + weights.consensus)
    return value * shared - weights.unresolved * unresolved - weights.escalation * escalation


def with_consensus(verdict: TeamVerdict, consensus: float, weights: TeamRewardWeights) -> TeamVerdict:
    """Return the verdict of a decision without votes, as if `consensus` of its votes were right."""
    reward = combine_parts(verdict.value, consensus, verdict.unresolved, verdict.escalation, weights)
    return replace(verdict, consensus=consensus, reward=reward)


def _explain(scenario: TeamScenario, decision: Decision | None, judged: DecisionValue, right: int) -> str:
    if decision is None:
        return "no valid decision: value 0, every conflict unresolved"
    if decision.escalate:
        what = "escalated (needless)" if judged.escalation_fault else "escalated"
    else:
        what = f"{decision.option} worth {judged.worth}"
        if judged.over_budget:
            what += f", {judged.over_budget} over the budget"
        if judged.escalation_fault:
            what += " (should have escalated)"
    broken = ", ".join(judged.broken_limits)
    limits = f"breaks the hard limit of {broken}" if broken else "breaks no hard limit"
    return f"{what}: value {judged.value:.2f}, {right} of {len(scenario.seats)} votes right, {limits}"
