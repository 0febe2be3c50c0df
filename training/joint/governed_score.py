"""Scores governed episodes: the team reward of the outcome of the last plan.

The world that the plans met says how every option would have turned out. Values are those of `assess` on
these utilities: 1 for the best option in hindsight, 0 for a blind choice or a broken hard limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roles.team import NO_OPTION, RECONCILER, Decision
from scenarios.team import TeamScenario, decision_value, parse_decision, verify_vote
from scenarios.team.practices import best_vote
from scenarios.world.case import weigh
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.store.episode_record import Chapter, GovernedRecord
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, combine_parts
from training.joint.governed_play import WORLD
from training.joint.records import (
    EpisodeGroup,
    Plans,
    ReportSet,
    ScoredEpisode,
    ScoredGroup,
    ScoredReportSet,
)
from training.joint.score import Reward


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedScorer:
    """Scores episodes of protocol `full`."""

    weights: TeamRewardWeights
    reward: Reward

    def score(self, groups: Sequence[EpisodeGroup]) -> list[ScoredGroup]:
        """The groups with verdict and plans of every closed episode.

        Raises:
            ValueError: not one call per draft of ReconcileGPT.
        """
        return [self._score_group(group) for group in groups]

    def _score_group(self, group: EpisodeGroup) -> ScoredGroup:
        world = realise_case(group.scenario, SimulatedOutcomes(group.scenario, seed=WORLD))
        scored = [self._score_set(group.scenario, world, one) for one in group.report_sets]
        return ScoredGroup(
            scenario=group.scenario,
            report_sets=tuple(ScoredReportSet(scored=(one,)) for one in scored),
            greedy_reward=None
            if group.greedy is None
            else self._score_set(group.scenario, world, group.greedy).verdict.reward,
        )

    def _score_set(self, scenario: TeamScenario, world: TeamScenario, report_set: ReportSet) -> ScoredEpisode:
        record = report_set.governed
        if record is None:
            raise ValueError(f"an episode of {scenario.key} without governance")
        verdict, plans = score_governed(scenario, world, record, self.weights)
        num_calls = len(record.episode.trajectories[RECONCILER].turns)
        if num_calls != len(plans.of_call):
            raise ValueError(f"{num_calls} calls for {len(plans.of_call)} drafts in {record.thread}")
        verdict = self.reward(scenario, record.episode, verdict)
        return ScoredEpisode(episode=record.episode, verdict=verdict, plans=plans)


def realise_case(scenario: TeamScenario, outcomes: SimulatedOutcomes) -> TeamScenario:
    """Return the case as it turned out: utilities after the shocks, limits to scale, truth of both."""
    realised = {option: outcomes.realise(option) for option in scenario.options}
    facts = {
        role: {
            **seat.facts,
            "utilities": {option: realised[option][role] for option in scenario.options},
            "limit": 100 * seat.facts["limit"],
        }
        for role, seat in scenario.seats.items()
    }
    seats = {role: replace(seat, facts=facts[role]) for role, seat in scenario.seats.items()}
    return replace(scenario, seats=seats, truth=weigh(facts))


def realised_value(world: TeamScenario, decision: Decision | None) -> float:
    """V of a decision in a case as it turned out, in [0, 1]; two options may be equally best there."""
    truth = world.truth
    option = NO_OPTION if decision is None else decision.option
    is_open = truth["value"].get(option) is not None
    if is_open and truth["weighted"][option] == truth["weighted"][truth["best"]]:
        return 1.0
    return decision_value(world, decision)


def score_governed(
    scenario: TeamScenario, world: TeamScenario, record: GovernedRecord, weights: TeamRewardWeights
) -> tuple[TeamVerdict, Plans]:
    """The verdict on a closed episode, and its plans; `world` is the case as it turned out.

    R = V (1 + c C) / (1 + c) - k U - h H as for `assess`, with
    - V the realised value of the last plan; how many plans there were does not count;
    - C the seats that rightly accept or object, by what they could know; a seat that the house does not ask
      (routine drafts, escalations) has accepted;
    - U the seats whose hard limit the last plan breaks in this world;
    - H needless or missed escalation in this world.
    A last draft that does not reach execution as written (malformed, vetoed, an option that is out, or
    rejected) has V 0 and H 1, and U of what it names, 1 where it is malformed: the least of the case.

    Raises:
        ValueError: the episode ended in an infrastructure fault, or before a proposal.
    """
    if record.error is not None or not record.chapters:
        raise ValueError(f"an episode without an outcome has no reward: {record.error or record.status}")
    last = record.chapters[-1]
    decision = parse_decision(scenario, record.episode.decision)
    is_carried = decision is not None and last.is_committed and last.proposal["option"] == decision.option
    escalates = decision is not None and decision.escalate
    value = realised_value(world, decision) if is_carried else 0.0
    consensus = _share_right(scenario, decision, record.episode)
    unresolved = _share_broken(world, decision)
    escalation = float(not is_carried or escalates != world.truth["no_feasible"])
    verdict = TeamVerdict(
        reward=combine_parts(value, consensus, unresolved, escalation, weights),
        value=value,
        consensus=consensus,
        unresolved=unresolved,
        escalation=escalation,
        explanation=f"{last.proposal['option']}, plan {last.attempt + 1}: realised value {value:.2f}",
    )
    return verdict, _list_plans(world, record, value)


def _share_right(scenario: TeamScenario, decision: Decision | None, episode: Episode) -> float:
    votes = episode.votes
    right = [
        verify_vote(scenario, role, decision, votes[role]).exact
        if role in votes
        else best_vote(scenario, role, decision) == "accept"
        for role in scenario.seats
    ]
    return sum(right) / len(right)


def _share_broken(world: TeamScenario, decision: Decision | None) -> float:
    if decision is None:
        return 1.0
    return 0.0 if decision.escalate else len(world.truth["vetoes"][decision.option]) / len(world.seats)


def _list_plans(world: TeamScenario, record: GovernedRecord, last_value: float) -> Plans:
    chapters = record.chapters
    values = [_carried_value(world, chapters, number) for number in range(chapters[-1].attempt)]
    of_call = tuple(chapter.attempt for chapter in chapters for _ in chapter.drafts)
    return Plans(
        values=(*values, last_value),
        of_call=of_call,
        ruled_out=tuple(c.proposal["option"] for c in chapters[:-1] if c.proposal["option"] != NO_OPTION),
    )


def _carried_value(world: TeamScenario, chapters: Sequence[Chapter], number: int) -> float:
    """Value of the plan of this number; it was carried out, for a re-plan followed."""
    (chapter,) = (one for one in chapters if one.attempt == number and one.is_committed)
    return realised_value(world, Decision(option=chapter.proposal["option"], escalate=False))
