"""Credit: scored groups to advantages, by a credit scheme and an estimator, and to training rows.

A scheme makes one score of each report of a seat in ONE case. ReconcileGPT needs no scheme: its scores are
the rewards of its decisions, compared on the same reports. An estimator compares scores with each other: all
take one role's groups of a step, and a group whose members cannot be told apart gets exact zeros.

Votes enter the team reward only as the share of right ones: R = V (1 + c C) / (1 + c) - ..., C = right / n.
So a right vote adds V c / ((1 + c) n) to the reward, whatever the report said. Schemes that score reports
with the votes held fixed leave that to the vote's own tokens.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from roles.team import RECONCILER, Decision
from scenarios.team import Table, TeamScenario, judge_decision
from scenarios.team.experts import best_decision
from simulator.reading import read_episode
from simulator.records import Trajectory
from simulator.reward import TeamRewardWeights, combine_parts, list_right_votes
from training.learner.rows import TrainingRow, make_row, make_tail_row, share_between_plans, spread_over_plans
from training.rl.records import (
    GroupAdvantages,
    ScoredEpisode,
    ScoredGroup,
    ScoredReportSet,
    SetAdvantages,
    Total,
)


def make_rows(
    role: str, groups: Sequence[ScoredGroup], advantages: Sequence[GroupAdvantages]
) -> list[TrainingRow]:
    """The role's rows on all groups, in their order."""
    rows_of_set = _reconciler_rows if role == RECONCILER else _specialist_rows
    return [
        row
        for group, of_group in zip(groups, advantages, strict=True)
        for report_set, of_set in zip(group.report_sets, of_group, strict=True)
        for row in rows_of_set(role, report_set, of_set)
    ]


def _reconciler_rows(
    role: str, report_set: ScoredReportSet, advantages: SetAdvantages
) -> Iterator[TrainingRow]:
    """One row per decision; with several rounds it holds all drafts of its episode.

    In a governed episode each plan's drafts have that plan's share of the advantage.
    """
    for scored, advantage in zip(report_set.scored, advantages.episodes, strict=True):
        row, plans = make_row(scored.episode.trajectories[role], advantage), scored.plans
        shares = share_between_plans(advantage, plans.values) if plans else []
        yield spread_over_plans(row, plans.of_call, shares) if plans else row


def _specialist_rows(
    role: str, report_set: ScoredReportSet, advantages: SetAdvantages
) -> Iterator[TrainingRow]:
    """One row for the report with its votes on the first decision, and one for the votes on each other.

    A report's tokens have the report's advantage. The tokens of votes have that of their episode, where the
    advantages name any; else those on the first decision have the report's and others have no row. What a
    seat writes for a re-plan then has none: it stands on a case that no other episode of the group shares.
    """
    first = report_set.first.episode
    trajectory = first.trajectories[role]
    if not advantages.episodes:
        yield make_row(trajectory, advantages.report)
        return
    num_turns = trajectory.count_turns_to(first.reports[role])
    of_first, *of_others = advantages.episodes
    num_voted = len(trajectory.turns)
    if report_set.first.plans is not None:
        vote = first.votes.get(role)  # none by a seat that was not asked
        num_voted = num_turns if vote is None else trajectory.count_turns_to(vote, after=num_turns)
    by_turn = [advantages.report] * num_turns + [of_first] * (num_voted - num_turns)
    yield _credit_turns(make_row(trajectory, advantages.report), trajectory, by_turn)
    for scored, advantage in zip(report_set.scored[1:], of_others, strict=False):
        yield make_tail_row(scored.episode.trajectories[role], advantage, first_turn=num_turns)


def _credit_turns(row: TrainingRow, trajectory: Trajectory, by_turn: Sequence[float]) -> TrainingRow:
    """The row with an advantage for each of its first turns, and none for those after them."""
    by_token: list[float] = []
    for turn, advantage in zip(
        trajectory.turns, itertools.chain(by_turn, itertools.repeat(0.0)), strict=False
    ):
        by_token += [0.0] * len(turn.context_ids) + [advantage] * len(turn.completion_ids)
    return replace(row, token_advantages=tuple(by_token))


LEAST_SPREAD = 1e-12  # of a group's scores; less is the rounding of their sums
LEAST_STD = 0.05  # of rewards in about [-0.3, 1]: dividing by less would blow noise up
STD_EPSILON = 1e-4  # TRL's, so that the numbers are TRL's


Scores = Sequence[float]  # 2 or more scores that are compared with each other
Advantages = list[list[float]]  # one list per group, aligned with its scores
Estimator = Callable[[Sequence[Scores], Total], Advantages]


def centre(scores: Scores) -> list[float]:
    """Scores minus their mean, not divided by a standard deviation; exactly zero where all are equal.

    Raises:
        ValueError: fewer than two scores.
    """
    if len(scores) < 2:
        raise ValueError(f"a group needs at least 2 rewards to compare, got {len(scores)}")
    if max(scores) - min(scores) < LEAST_SPREAD:
        return [0.0] * len(scores)
    mean = statistics.fmean(scores)
    return [score - mean for score in scores]


def dr_grpo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the group's mean. Source: arXiv:2503.20783."""
    return [centre(group) for group in groups]


def grpo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the group's mean, over its sample standard deviation (LEAST_STD at least).

    Source: arXiv:2402.03300. The floor is ours: without it a group whose rewards differ by 0.001 moves the
    weights as far as one whose rewards differ by 1.
    """
    return [_scale(centre(group), statistics.stdev(group)) for group in groups]


def rloo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the mean of the others: unbiased, n / (n - 1) times `dr_grpo`. Source: arXiv:2402.14740."""
    return [[value * len(group) / (len(group) - 1) for value in centre(group)] for group in groups]


def reinforce_pp(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Centred per group, then divided by the standard deviation over the whole batch (LEAST_STD at least).

    Source: REINFORCE++ with its group baseline (arXiv:2501.03262). Groups without a difference stay out of
    the standard deviation as they stay out of the loss.
    """
    return normalise_role(dr_grpo(groups), total)


def gae(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """The scores themselves: rewards, of which value heads make token advantages
    (training/rl/critic.py)."""
    return [list(group) for group in groups]


ESTIMATORS: Mapping[str, Estimator] = {
    "dr_grpo": dr_grpo,
    "grpo": grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "gae": gae,
}


def find_most_different(scores: Scores, count: int) -> list[int]:
    """Places of the `count` scores with the greatest variance: some of the lowest and some of the highest.

    Source: max-variance down-sampling (PODS), arXiv:2504.13818.
    """
    order = sorted(range(len(scores)), key=lambda place: scores[place])
    choices = [order[:low] + order[len(order) - (count - low) :] for low in range(count + 1)]
    return max(choices, key=lambda places: statistics.pvariance([scores[place] for place in places]))


def compare_most_different(estimator: Estimator, count: int) -> Estimator:
    """The estimator on the `count` most different scores of every group; the others get 0. 0: on all.

    No group is smaller. What is compared weighs as much as the whole group would.
    """

    def estimate(groups: Sequence[Scores], total: Total = list) -> Advantages:
        places = [sorted(find_most_different(group, count)) for group in groups]
        chosen = [
            [group[place] for place in of_group] for group, of_group in zip(groups, places, strict=True)
        ]
        spread = []
        for group, of_group, found in zip(groups, places, estimator(chosen, total), strict=True):
            weight = len(group) / count
            by_place = dict(zip(of_group, found, strict=True))
            spread.append([by_place.get(place, 0.0) * weight for place in range(len(group))])
        return spread

    return estimate if count else estimator


def normalise_role(advantages: Advantages, total: Total = list) -> Advantages:
    """One role's advantages over their root mean square (LEAST_STD at least) in groups that have any."""
    live = [value for group in advantages if any(group) for value in group]
    squares, count = total([sum(value * value for value in live), float(len(live))])
    return [_scale(group, math.sqrt(squares / count) if count else 0.0) for group in advantages]


def _scale(values: Sequence[float], deviation: float) -> list[float]:
    return [value / (max(deviation, LEAST_STD) + STD_EPSILON) for value in values]


# seat -> its counterfactual rewards, for every set of reports of a case
OfferValues = list[dict[str, tuple[float, ...]]]
ValueOffers = Callable[[TeamScenario, Sequence[Table], TeamRewardWeights], OfferValues]


def coalition_reward(
    scenario: TeamScenario,
    table: Table,
    seats: Iterable[str],
    weights: TeamRewardWeights,
) -> float:
    """Team reward of the best plan by the reports of these seats alone."""
    inside = set(seats)
    heard = {seat: report if seat in inside else None for seat, report in table.items()}
    decision: Decision = best_decision(scenario.public, heard, "exact")
    judged = judge_decision(scenario, heard, decision)
    unresolved = len(judged.broken_limits) / len(scenario.seats)
    return combine_parts(judged.value, 1.0, unresolved, float(judged.escalation_fault), weights)


def shapley_values(scenario: TeamScenario, table: Table, weights: TeamRewardWeights) -> dict[str, float]:
    """Seat -> exact Shapley value of its report: mean gain it brings over all orders of speaking.

    The values add up to the reward of all reports less that of none.
    """
    seats = list(table)
    rewards = {
        inside: coalition_reward(scenario, table, inside, weights) for inside in list_coalitions(seats)
    }
    return share_gains(seats, rewards)


def list_coalitions(seats: Sequence[str]) -> Iterator[frozenset[str]]:
    """List all sets of these seats, the smaller ones first."""
    for size in range(len(seats) + 1):
        yield from map(frozenset, itertools.combinations(seats, size))


def share_gains(seats: Sequence[str], rewards: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Seat -> its Shapley value, from the reward of every coalition of the seats."""
    size, factorial = len(seats), math.factorial
    # [n]: share of all orders of speaking in which n seats speak before a given seat
    share_of_orders = [factorial(n) * factorial(size - n - 1) / factorial(size) for n in range(size)]
    return {
        seat: math.fsum(
            share_of_orders[len(inside)] * (rewards[inside | {seat}] - reward)
            for inside, reward in rewards.items()
            if seat not in inside
        )
        for seat in seats
    }


def cross_values(scenario: TeamScenario, tables: Sequence[Table], weights: TeamRewardWeights) -> OfferValues:
    """Per set: seat -> reward of the best plan by its report and the partners of every set, n x n in all."""
    known: dict[tuple[int, ...], float] = {}
    reports = {seat: [table[seat] for table in tables] for seat in tables[0]}
    first = {seat: [of_seat.index(one) for one in of_seat] for seat, of_seat in reports.items()}  # equal ones

    def value(own: str, donor: int, partners: int) -> float:
        key = tuple(first[seat][donor if seat == own else partners] for seat in first)
        if key not in known:
            mixed = {seat: tables[place][seat] for seat, place in zip(first, key, strict=True)}
            known[key] = coalition_reward(scenario, mixed, first, weights)
        return known[key]

    places = range(len(tables))
    return [{seat: tuple(value(seat, own, other) for other in places) for seat in first} for own in places]


def value_by_shapley(
    scenario: TeamScenario, tables: Sequence[Table], weights: TeamRewardWeights
) -> OfferValues:
    """Per set: seat -> its Shapley value among the reports of this set."""
    return [
        {seat: (worth,) for seat, worth in shapley_values(scenario, table, weights).items()}
        for table in tables
    ]


class CreditScheme(Protocol):
    """Turns the report sets of one case into one score per set for a seat's report in it."""

    value_offers: ValueOffers | None  # fills in the sets' `counterfactual_rewards`; None where it reads none
    holds_votes_fixed: bool  # whether scores leave votes out of account: votes then have scores of their own

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        """One score per report set, for the role's report in it."""
        ...


class Shared:
    """`shared`: the team's result, the mean reward of the decisions on the set. GRPO on the team reward."""

    value_offers: ValueOffers | None = None
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.rewards) for report_set in report_sets]


class CrossValued:
    """`cross_valued`: the mean reward of the best plans by the report and the partners of every set.

    In a case with n sets the verifier values a seat's report n times, each time together with the other
    seats' reports of one of the sets, its own among them. All reports of the seat so meet the same
    partners: the luck of good partners does not enter, nor does a poor decision of ReconcileGPT.
    """

    value_offers: ValueOffers | None = staticmethod(cross_values)
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.counterfactual_rewards[role]) for report_set in report_sets]


class Shapley:
    """`shapley`: the exact Shapley value of the report among the reports of its set.

    It is the mean gain that the seat's offers bring to the best plan over all orders of speaking. The
    verifier values every coalition of seats. Source: Shapley Q-value (arXiv:1907.05707).
    """

    value_offers: ValueOffers | None = staticmethod(value_by_shapley)
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [report_set.counterfactual_rewards[role][0] for report_set in report_sets]


SCHEMES: Mapping[str, type[CreditScheme]] = {
    "shared": Shared,
    "cross_valued": CrossValued,
    "shapley": Shapley,
}


def vote_scores(role: str, group: ScoredGroup, weights: TeamRewardWeights) -> list[float]:
    """One score per report set: the part of this seat's vote on the first decision in the reward.

    A right vote has the group's mean value times c / ((1 + c) n), a wrong or missing one 0. The mean value
    stands for each own one, so that only votes are compared, not decisions.
    """
    value = statistics.fmean(one.first.verdict.value for one in group.report_sets)
    right = value * weights.consensus / ((1 + weights.consensus) * len(group.scenario.seats))
    return [right * _is_right(role, group.scenario, one) for one in group.report_sets]


def _is_right(role: str, scenario: TeamScenario, report_set: ScoredReportSet) -> bool:
    return role in list_right_votes(scenario, read_episode(scenario, report_set.first.episode))


VoteAdvantages = list[list[tuple[float, ...]]]  # by group, report set, episode; () where the report's hold


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAssigner:
    """A credit scheme with an estimator and a rule for votes."""

    scheme: CreditScheme
    estimator: Estimator
    votes: Literal["report", "decision", "alone"]  # what a vote is credited for: see `_vote_advantages`
    weights: TeamRewardWeights  # that votes alone are scored by
    pools_decisions: bool = False  # whether ReconcileGPT's decisions are compared over all sets of a scenario
    token_price: float = 0.0  # taken from a score for every token that the role wrote in the episode
    total: Total = list  # over all ranks

    def assign(self, roles: Sequence[str], groups: Sequence[ScoredGroup]) -> dict[str, list[GroupAdvantages]]:
        """Advantages of every role, aligned with the groups; ranks without groups take part, too."""
        decisions = self._decision_advantages(groups)
        of_reconciler = [tuple(SetAdvantages(episodes=one) for one in of_group) for of_group in decisions]
        return {
            role: of_reconciler if role == RECONCILER else self._of_specialist(role, groups, decisions)
            for role in roles
        }

    def make_rows(
        self, groups: Sequence[ScoredGroup], advantages: Mapping[str, Sequence[GroupAdvantages]]
    ) -> dict[str, list[TrainingRow]]:
        """Every role's training rows with their advantages."""
        return {role: make_rows(role, groups, of_role) for role, of_role in advantages.items()}

    def _of_specialist(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages
    ) -> list[GroupAdvantages]:
        reports = self._estimate([self._score_reports(role, group.report_sets) for group in groups])
        votes = self._vote_advantages(role, groups, decisions)
        return [
            tuple(
                SetAdvantages(report=report, episodes=episodes)
                for report, episodes in zip(of_reports, of_votes, strict=True)
            )
            for of_reports, of_votes in zip(reports, votes, strict=True)
        ]

    def _score_reports(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        scores = self.scheme.specialist_scores(role, report_sets)
        return self._less_words(role, scores, [report_set.first for report_set in report_sets])

    def _less_words(self, role: str, scores: Sequence[float], scored: Sequence[ScoredEpisode]) -> list[float]:
        """The scores less the price of what the role wrote in each episode."""
        if not self.token_price:
            return list(scores)
        sizes = [one.episode.trajectories[role].num_own for one in scored]
        return [score - self.token_price * size for score, size in zip(scores, sizes, strict=True)]

    def _vote_advantages(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages
    ) -> VoteAdvantages:
        """The report's advantage (the episode has one reward for all that was said), that of each decision
        voted on, or one of the votes on the first decision, which are scored by themselves."""
        if self.votes == "report":
            return [[() for _ in group.report_sets] for group in groups]
        if self.votes == "decision":
            return decisions
        alone = self._estimate([vote_scores(role, group, self.weights) for group in groups])
        return [[(value,) for value in of_group] for of_group in alone]

    def _decision_advantages(self, groups: Sequence[ScoredGroup]) -> VoteAdvantages:
        """Advantage of every decision, by group and set of reports."""
        sets = [
            [self._less_words(RECONCILER, one.rewards, one.scored) for one in group.report_sets]
            for group in groups
        ]
        compared = (
            [[reward for rewards in of_group for reward in rewards] for of_group in sets]
            if self.pools_decisions
            else [rewards for of_group in sets for rewards in of_group]
        )
        flat = iter(value for of_group in self._estimate(compared) for value in of_group)
        return [[tuple(next(flat) for _ in rewards) for rewards in of_group] for of_group in sets]

    def _estimate(self, groups: Sequence[Scores]) -> Advantages:
        return self.estimator(groups, self.total)
