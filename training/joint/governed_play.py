"""Plays governed episodes for joint training: `full` protocol, in memory, all of a step in flight at once.

Every report set of a case meets the same world, so that sets are compared on what the team did alone. The
approver knows no truth: it passes what the house's own rules (`simulator/governance/resolution.py`) let
through, and signs for what they hand over to it.
"""

import secrets
import statistics
from collections.abc import Sequence
from dataclasses import replace

from roles.errors import InfrastructureError
from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.governance.gate.approvals import KEY_BYTES
from simulator.governance.gate.reviewers import SimulatedReviewer, score_by_risk
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.runner import FAILED, VIOLATION, WAITING, open_office, play_governed
from simulator.governance.store.episode_record import GovernedRecord
from simulator.governance.store.reading import read_record
from simulator.graph.concurrency import run_all
from simulator.graph.seating import Seating
from simulator.reward import TeamRewardWeights
from training.config.run_config import MarlConfig
from training.joint.governed_reward import realise_case, score_governed
from training.joint.played import PlayedSet, complete_groups, pick_agreement

WORLD = 0  # seeds all worlds, with the case and the option


async def play_governed_sets(
    scenarios: Sequence[TeamScenario],
    seating: Seating,
    config: MarlConfig,
    weights: TeamRewardWeights,
    *,
    num_sets: int,
) -> list[PlayedSet]:
    """`num_sets` governed episodes of every case, side by side, scored; a fault takes out its whole case.

    What is sampled depends on the seating's stream, the set's number and the case's key alone.
    """
    by_set = await run_all(
        play_set(scenarios, replace(seating, stream=f"{seating.stream}/{number}"), config.rounds)
        for number in range(num_sets)
    )
    played = [
        score_played(scenario, record, config, weights)
        for scenario, records in zip(scenarios, zip(*by_set, strict=True), strict=True)
        for record in records
        if record is not None
    ]
    return complete_groups(played, num_sets)


async def play_set(
    scenarios: Sequence[TeamScenario], seating: Seating, rounds: int
) -> list[GovernedRecord | None]:
    """One governed episode per case in an office of their own; None for an infrastructure fault."""
    reviewer = SimulatedReviewer(score_by_risk, least_share=0.0)  # passes all that it is shown
    async with open_office(None, key=secrets.token_bytes(KEY_BYTES)) as office:
        played = await play_governed(
            scenarios,
            office,
            seating,
            reviewer,
            lambda scenario: SimulatedOutcomes(scenario, seed=WORLD),
            rounds=rounds,
            concurrency=max(1, len(scenarios)),
        )
        records: list[GovernedRecord | None] = []
        for scenario, episode in zip(scenarios, played, strict=True):
            if episode.status in (VIOLATION, WAITING):
                raise RuntimeError(f"{episode.thread} ended as {episode.status}: {episode.error}")
            is_lost = episode.status == FAILED
            records.append(None if is_lost else read_record(scenario, episode, office, stream=seating.stream))
        return records


def score_played(
    scenario: TeamScenario, record: GovernedRecord, config: MarlConfig, weights: TeamRewardWeights
) -> PlayedSet:
    """A closed episode with its reward and plans.

    Raises:
        ValueError: not one call per draft of ReconcileGPT.
    """
    world = realise_case(scenario, SimulatedOutcomes(scenario, seed=WORLD))
    verdict, plans = score_governed(scenario, world, record, weights)
    num_calls = len(record.episode.trajectories[RECONCILER].turns)
    if num_calls != len(plans.of_call):
        raise ValueError(f"{num_calls} calls for {len(plans.of_call)} drafts in {record.thread}")
    if config.reward == "agreement_only":
        verdict = replace(verdict, reward=pick_agreement(scenario, record.episode))
    return PlayedSet(scenario=scenario, decisions=(record.episode,), verdicts=(verdict,), plans=plans)


def add_greedy(played: Sequence[PlayedSet], greedy: Sequence[PlayedSet]) -> list[PlayedSet]:
    """The sets with the reward of their case played greedily; cases without one are left out."""
    rewards = {one.scenario.key: one.verdicts[0].reward for one in greedy}
    return [
        replace(one, greedy_episode=rewards[one.scenario.key])
        for one in played
        if one.scenario.key in rewards
    ]


def demand_all(played: Sequence[PlayedSet], num_cases: int) -> list[float]:
    """The rewards of all cases, in their order.

    Raises:
        InfrastructureError: a case is missing.
    """
    if len(played) != num_cases:
        raise InfrastructureError(f"{num_cases - len(played)} of {num_cases} validation cases were lost")
    return [one.verdicts[0].reward for one in played]


def plan_metrics(played: Sequence[PlayedSet]) -> dict[str, float]:
    """Re-plans per episode, share of episodes re-planned, and what the first and the last plan were worth."""
    plans = [one.plans for one in played if one.plans is not None]
    if not plans:
        return {}
    return {
        "replans": statistics.fmean(len(one.values) - 1 for one in plans),
        "replanned": statistics.fmean(len(one.values) > 1 for one in plans),
        "first_plan_value": statistics.fmean(one.values[0] for one in plans),
        "last_plan_value": statistics.fmean(one.values[-1] for one in plans),
    }
