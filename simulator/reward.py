"""Scores an episode by the team reward R = V (1 + c C) / (1 + c) - k U - h H. Pure; never in the graph."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from roles.team import Decision
from scenarios.team import TeamScenario, decision_value, parse_decision, verify_vote
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
                         explanation="B: value 0.80, 3 of 4 votes right, breaks no hard limit")
    """

    reward: float  # R, in [-k - h, 1]; 1 only at the exact optimum with every vote right
    value: float  # V, in [0, 1]
    consensus: float  # C, in [0, 1]: share of the seats whose vote is right; a missing vote is wrong
    unresolved: float  # U, in [0, 1]: share of the seats whose hard limit is broken; 1 without a decision
    escalation: float  # H, 0 or 1: escalated needlessly, or did not where every option is vetoed
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
    decision = parse_decision(scenario, episode.decision)
    right = [
        role
        for role in scenario.seats
        if role in episode.votes and verify_vote(scenario, role, decision, episode.votes[role]).exact
    ]
    broken = _broken_limits(scenario, decision)
    value = decision_value(scenario, decision)
    consensus, unresolved = len(right) / len(scenario.seats), len(broken) / len(scenario.seats)
    escalates = decision is not None and decision.escalate
    escalation = float(escalates != scenario.truth["no_feasible"])
    return TeamVerdict(
        reward=combine_parts(value, consensus, unresolved, escalation, weights),
        value=value,
        consensus=consensus,
        unresolved=unresolved,
        escalation=escalation,
        explanation=_explain(scenario, decision, value, right, broken),
    )


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


def _broken_limits(scenario: TeamScenario, decision: Decision | None) -> list[str]:
    """Return seats whose hard limit the decision breaks; none where it escalates, all where there is none."""
    if decision is None:
        return list(scenario.seats)
    if decision.escalate:
        return []
    return list(scenario.truth["vetoes"][decision.option])


def _explain(
    scenario: TeamScenario, decision: Decision | None, value: float, right: list[str], broken: list[str]
) -> str:
    if decision is None:
        return "no valid decision: value 0, every conflict unresolved"
    what = "escalated" if decision.escalate else decision.option
    if decision.escalate != scenario.truth["no_feasible"]:
        what += " (needless)" if decision.escalate else " (should have escalated)"
    limits = f"breaks the hard limit of {', '.join(broken)}" if broken else "breaks no hard limit"
    return f"{what}: value {value:.2f}, {len(right)} of {len(scenario.seats)} votes right, {limits}"
