"""Makes training rows of scored groups and their advantages: one row per trajectory, by role."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roles.team import RECONCILER
from simulator.records import Trajectory
from training.learner.rows import TrainingRow, make_row, make_tail_row, share_between_plans, spread_over_plans
from training.rl.records import GroupAdvantages, ScoredEpisode, ScoredGroup, ScoredReportSet, SetAdvantages


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
        yield _share_out(scored, make_row(scored.episode.trajectories[role], advantage))


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
    num_turns = count_turns_to(trajectory, first.reports[role])
    of_first, *of_others = advantages.episodes
    num_voted = len(trajectory.turns)
    if report_set.first.plans is not None:
        vote = first.votes.get(role)  # none by a seat that was not asked
        num_voted = num_turns if vote is None else count_turns_to(trajectory, vote, after=num_turns)
    by_turn = [advantages.report] * num_turns + [of_first] * (num_voted - num_turns)
    yield _credit_turns(make_row(trajectory, advantages.report), trajectory, by_turn)
    for scored, advantage in zip(report_set.scored[1:], of_others, strict=False):
        yield make_tail_row(scored.episode.trajectories[role], advantage, first_turn=num_turns)


def _share_out(scored: ScoredEpisode, row: TrainingRow) -> TrainingRow:
    plans = scored.plans
    if plans is None:
        return row
    return spread_over_plans(row, plans.of_call, share_between_plans(row.advantage, plans.values))


def count_turns_to(trajectory: Trajectory, text: str, *, after: int = 0) -> int:
    """Turns up to and with the one, after so many, that says this text; all where none does."""
    for number, turn in enumerate(trajectory.turns[after:], start=after + 1):
        if turn.text == text:
            return number
    return len(trajectory.turns)


def _credit_turns(row: TrainingRow, trajectory: Trajectory, by_turn: Sequence[float]) -> TrainingRow:
    """The row with an advantage for each of its first turns, and none for those after them."""
    by_token: list[float] = []
    for turn, advantage in zip(
        trajectory.turns, itertools.chain(by_turn, itertools.repeat(0.0)), strict=False
    ):
        by_token += [0.0] * len(turn.context_ids) + [advantage] * len(turn.completion_ids)
    return replace(row, token_advantages=tuple(by_token))
