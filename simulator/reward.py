"""What an episode was worth to the team: R = V (1 + c C) / (1 + c) - k U - h H. Pure; never in the graph."""

from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field

from roles.team import Decision
from scenarios.team import TeamScenario, decision_value, parse_decision, verify_vote
from simulator.records import Episode


class TeamRewardWeights(BaseModel):
    """Weights of the team reward; all 0 leaves R = V."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    consensus: float = Field(default=0.25, ge=0)  # c: how much justified agreement adds to value
    unresolved: float = Field(default=0.2, ge=0)  # k: price of breaking everybody's hard limit
    escalation: float = Field(default=0.1, ge=0)  # h: price of needless or missed escalation


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
    """R from its parts: agreement multiplies value, so it is worth nothing on a worthless decision."""
    shared = (1 + weights.consensus * consensus) / (1 + weights.consensus)
    return value * shared - weights.unresolved * unresolved - weights.escalation * escalation


def with_consensus(verdict: TeamVerdict, consensus: float, weights: TeamRewardWeights) -> TeamVerdict:
    """The verdict of a decision that was not voted on, had the votes been as right as `consensus` says."""
    reward = combine_parts(verdict.value, consensus, verdict.unresolved, verdict.escalation, weights)
    return replace(verdict, consensus=consensus, reward=reward)


def _broken_limits(scenario: TeamScenario, decision: Decision | None) -> list[str]:
    """Seats whose hard limit the decision breaks; none where it escalates, all where there is none."""
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
