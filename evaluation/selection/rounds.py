"""Rounds of review with scripted players: how many cases people see, and how many errors nobody sees.

The team's habits are drawn by weights. In every round it plays new cases several times each; people review a
share of them, chosen in one of the ways. A reviewed case shows what each of its plays was worth, and habits
that did well there get more weight, so that the team errs less in the next round.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluation.selection.escalation import ReviewCosts, choose_escalated
from evaluation.selection.ways import Candidate, Verified, Way, rank_candidates
from roles.team import RECONCILER
from scenarios.team import TeamScenario, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, best_decision, best_report
from scenarios.team.offers import check_report, offers_on
from scenarios.team.value import decision_value

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
