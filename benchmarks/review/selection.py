"""Ways to choose the cases that people review, escalation by expected cost, and rounds of simulated review.

`random` for comparison. `uncertainty`: the least sure first. `consistency`: the least sure first where
uncertainty has told verified errors, else by how often the case's group erred. `gap`: the largest difference
between the predicted qualities of two plays first. A case is escalated where its expected error, by the
verified cases nearest in uncertainty, costs more than a review. In a round the team plays new cases by drawn
habits; a reviewed case gives weight to the habits that did well there.

Uncertainty alone does not beat chance for verifiable rewards; how far it agrees with verified outcomes is
measured by the point-biserial correlation (arXiv:2601.22595). There it chooses training prompts by many
answers to each; here it is measured per group of cases that were verified before.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from roles.team import RECONCILER
from scenarios.team import TeamScenario, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, best_decision, best_report
from scenarios.team.offers import check_report, offers_on
from scenarios.team.value import decision_value

Way = Literal["random", "uncertainty", "consistency", "gap"]
WAYS: tuple[Way, ...] = get_args(Way)
PRIOR = 2.0  # verified cases that a group's figures are mixed with, at the overall figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A case that may be reviewed, as it is known before.

    Example: Candidate(key="team/train/0/7/2", group="3 options", uncertainty=0.4, qualities=(61.0, 55.0))
    """

    key: str
    group: str  # cases that are alike in what everybody sees
    uncertainty: float  # 0 to 1: 1 minus the margin between the two most frequent decisions
    qualities: tuple[float, ...]  # as predicted, of the plays of the case; any unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A case whose outcome is known. Example: Verified(group="3 options", uncertainty=0.4, is_error=True)"""

    group: str
    uncertainty: float
    is_error: bool


def rank_candidates(
    way: Way, candidates: Sequence[Candidate], history: Sequence[Verified], *, rng: random.Random
) -> list[Candidate]:
    """Return the candidates, those that people should see first at the front; ties in random order."""
    shuffled = rng.sample(candidates, len(candidates))
    if way == "random":
        return shuffled
    if way == "uncertainty":
        return sorted(shuffled, key=lambda one: -one.uncertainty)
    if way == "gap":
        return sorted(shuffled, key=lambda one: -measure_gap(one))
    groups = measure_groups(history)
    overall = groups[""]
    return sorted(shuffled, key=lambda one: -_expect_error(one, groups.get(one.group, overall)))


def measure_gap(candidate: Candidate) -> float:
    """Return the largest difference between two plays' predicted qualities; 0 with fewer than two."""
    return max(candidate.qualities, default=0.0) - min(candidate.qualities, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """Counts over the verified cases of a group.

    Example: GroupFigures(error_rate=0.2, consistency=0.6)
    """

    error_rate: float
    consistency: float  # point-biserial correlation of uncertainty with error, at least 0


def measure_groups(history: Sequence[Verified]) -> Mapping[str, GroupFigures]:
    """Return the figures by group, each mixed with those of all cases, which stand under ""."""
    everything = _measure(history, None)
    found = {"": everything}
    for group in dict.fromkeys(one.group for one in history):
        found[group] = _measure([one for one in history if one.group == group], everything)
    return found


def correlate(pairs: Sequence[tuple[float, bool]]) -> float:
    """Return the point-biserial correlation of a figure with a yes/no; 0 where either does not vary.

    Examples:
        >>> round(correlate([(0.0, False), (1.0, True), (0.0, False), (1.0, True)]), 3)
        1.0
    """
    num = len(pairs)
    if num < 2:
        return 0.0
    mean = math.fsum(figure for figure, _ in pairs) / num
    share = sum(is_yes for _, is_yes in pairs) / num
    spread = math.sqrt(math.fsum((figure - mean) ** 2 for figure, _ in pairs) / num)
    if not 0 < share < 1 or spread < 1e-12:
        return 0.0
    of_yes = math.fsum(figure for figure, is_yes in pairs if is_yes) / (share * num)
    of_no = math.fsum(figure for figure, is_yes in pairs if not is_yes) / ((1 - share) * num)
    return (of_yes - of_no) / spread * math.sqrt(share * (1 - share))


def _measure(cases: Sequence[Verified], everything: GroupFigures | None) -> GroupFigures:
    known = everything or GroupFigures(error_rate=0.5, consistency=0.0)
    num_errors, consistency = (
        sum(one.is_error for one in cases),
        max(0.0, correlate([(one.uncertainty, one.is_error) for one in cases])),
    )
    weight = len(cases) / (len(cases) + PRIOR)
    return GroupFigures(
        error_rate=(num_errors + PRIOR * known.error_rate) / (len(cases) + PRIOR),
        consistency=weight * consistency + (1 - weight) * known.consistency,
    )


def _expect_error(candidate: Candidate, figures: GroupFigures) -> float:
    """Return how likely an error is: by uncertainty as far as that has told errors, else by the group."""
    return figures.consistency * candidate.uncertainty + (1 - figures.consistency) * figures.error_rate


NEAREST = 20  # verified cases that the chance is taken from


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCosts:
    """Costs in one unit of any kind. Example: ReviewCosts(review=1.0, missed_error=8.0)"""

    review: float  # of one case, more than 0
    missed_error: float  # of an error that nobody sees

    @property
    def least_chance(self) -> float:
        """Return the chance of an error from which on a review pays."""
        return self.review / self.missed_error


def estimate_error(candidate: Candidate, history: Sequence[Verified]) -> float:
    """Return the chance of an error: (errors + 1) / (cases + 2) of the nearest verified cases.

    Without any it is 1/2, so that at the start people see what they are there for.
    """
    nearest = sorted(history, key=lambda one: abs(one.uncertainty - candidate.uncertainty))[:NEAREST]
    return (sum(one.is_error for one in nearest) + 1) / (len(nearest) + 2)


def choose_escalated(
    candidates: Sequence[Candidate], history: Sequence[Verified], costs: ReviewCosts
) -> list[Candidate]:
    """Return the cases that people should see, in the given order."""
    return [one for one in candidates if estimate_error(one, history) > costs.least_chance]


Weights = dict[str, dict[str, float]]  # seat -> habit -> weight


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """Sizes of review rounds. Example: RoundSettings(cases_per_round=20, num_rounds=2)"""

    num_rounds: int = 5
    cases_per_round: int = 60
    plays_per_case: int = 6
    review_share: float | None = 0.2  # of the cases, by the way of choosing; None: as many as needed
    least_value: float = 0.3  # V under which a decision is an error
    most_missed: float = 0.05  # errors that nobody sees, as a share of all cases
    learning_rate: float = 0.5
    difficulties: tuple[int, ...] = (2, 4, 6)
    costs: ReviewCosts = field(default_factory=lambda: ReviewCosts(review=1.0, missed_error=3.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """One round. Shares are of the round's cases.

    Example: RoundResult(value=0.7, errors=0.2, missed=0.1, needed=0.4, escalated=0.3, escalated_missed=0.05)
    """

    value: float  # mean V of the team's decisions, before any review
    errors: float
    missed: float  # errors outside the reviewed share
    needed: float  # smallest share to review, in the way's order, that leaves at most `most_missed`
    escalated: float  # share that expected cost sends to people
    escalated_missed: float  # errors that it leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class _Play:
    """One play of a case: the habits, what was decided, what that promises and what it is worth."""

    habits: Mapping[str, str]
    decision: str
    promised: float  # k$, by the reports
    value: float  # V


def play_rounds(way: Way, settings: RoundSettings, *, seed: int) -> list[RoundResult]:
    """Play all rounds with one way of choosing; the cases are the same for every way."""
    weights: Weights = {}
    history: list[Verified] = []
    results = []
    for number in range(settings.num_rounds):
        play_rng, rng = random.Random(f"{seed}/plays/{number}"), random.Random(f"{seed}/{way}/{number}")
        cases = [
            _draw(seed, number * settings.cases_per_round + place, settings)
            for place in range(settings.cases_per_round)
        ]
        plays = {
            case.key: [_play(case, weights, play_rng) for _ in range(settings.plays_per_case)]
            for case in cases
        }
        candidates = [_make_candidate(case, plays[case.key]) for case in cases]
        own = {key: _find_own(of_case).value for key, of_case in plays.items()}
        result, reviewed = review_round(way, candidates, own, history, settings, rng=rng)
        results.append(result)
        for one in reviewed:
            _learn(weights, plays[one.key], settings.learning_rate)
    return results


def review_round(
    way: Way,
    candidates: Sequence[Candidate],
    values: Mapping[str, float],
    history: list[Verified],
    settings: RoundSettings,
    *,
    rng: random.Random,
) -> tuple[RoundResult, list[Candidate]]:
    """Review one round's share of the cases; returns the figures and the reviewed cases.

    `values`: what each case's decision was worth, by key. `history` gets the outcomes of what was reviewed.
    """
    errors = {key for key, value in values.items() if value < settings.least_value}
    ranked = rank_candidates(way, candidates, history, rng=rng)
    needed = _count_needed(ranked, errors, settings.most_missed)
    share = settings.review_share
    reviewed = ranked[: needed if share is None else round(share * len(ranked))]
    escalated = choose_escalated(candidates, history, settings.costs)
    num = len(candidates)
    result = RoundResult(
        value=math.fsum(values.values()) / num,
        errors=len(errors) / num,
        missed=len(errors - {one.key for one in reviewed}) / num,
        needed=needed / num,
        escalated=len(escalated) / num,
        escalated_missed=len(errors - {one.key for one in escalated}) / num,
    )
    history += [
        Verified(group=one.group, uncertainty=one.uncertainty, is_error=one.key in errors) for one in reviewed
    ]
    return result, reviewed


def measure_uncertainty(decisions: Sequence[str]) -> float:
    """Return 1 minus the margin between the two most frequent of several decisions on one case.

    Examples:
        >>> measure_uncertainty(["A", "A", "A", "B"])
        0.5
    """
    ranked = [count for _, count in Counter(decisions).most_common(2)] + [0]
    return 1 - (ranked[0] - ranked[1]) / len(decisions)


def _draw(seed: int, index: int, settings: RoundSettings) -> TeamScenario:
    return generate("train", seed, index, settings.difficulties[index % len(settings.difficulties)])


def _play(case: TeamScenario, weights: Weights, rng: random.Random) -> _Play:
    habits = {seat: _draw_habit(seat, weights, rng) for seat in (*case.seats, RECONCILER)}
    table = {seat: check_report(case, seat, best_report(case, seat, habits[seat])) for seat in case.seats}
    decision = best_decision(case.public, table, habits[RECONCILER])
    offers = {offer.label: offer.worth for offer in offers_on(table, decision.option)}
    promised = case.public.base.get(decision.option, 0) + sum(offers[label] for label in decision.fund)
    return _Play(
        habits=habits,
        decision=" ".join([decision.option, *sorted(decision.fund)]),
        promised=float(promised),
        value=decision_value(case, table, decision),
    )


def _draw_habit(seat: str, weights: Weights, rng: random.Random) -> str:
    known = weights.setdefault(seat, dict(FUNDING_HABITS if seat == RECONCILER else REPORT_HABITS))
    return rng.choices(list(known), weights=list(known.values()))[0]


def _make_candidate(case: TeamScenario, plays: Sequence[_Play]) -> Candidate:
    return Candidate(
        key=case.key,
        group=f"{len(case.options)} options",
        uncertainty=measure_uncertainty([play.decision for play in plays]),
        qualities=tuple(play.promised for play in plays),
    )


def _find_own(plays: Sequence[_Play]) -> _Play:
    """Return the first play of the most frequent decision: what the team stands for."""
    decision = Counter(play.decision for play in plays).most_common(1)[0][0]
    return next(play for play in plays if play.decision == decision)


def _count_needed(ranked: Sequence[Candidate], errors: set[str], most_missed: float) -> int:
    """Return how many of the first must be reviewed so that few enough errors are left."""
    left = len(errors)
    for count, one in enumerate(ranked):
        if left <= most_missed * len(ranked):
            return count
        left -= one.key in errors
    return len(ranked)


def _learn(weights: Weights, plays: Sequence[_Play], rate: float) -> None:
    """Give habits weight by how much better their plays were than the case's mean."""
    mean = math.fsum(play.value for play in plays) / len(plays)
    for play in plays:
        for seat, habit in play.habits.items():
            weights[seat][habit] *= math.exp(rate * (play.value - mean))
    for of_seat in weights.values():
        total = math.fsum(of_seat.values())
        for habit in of_seat:
            of_seat[habit] /= total
