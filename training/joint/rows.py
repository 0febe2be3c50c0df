"""Makes training rows of scored groups and their advantages: one row per trajectory, by role."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roles.team import RECONCILER
from simulator.records import Trajectory
from training.joint.records import GroupAdvantages, ScoredEpisode, ScoredGroup, ScoredReportSet, SetAdvantages
from training.learner.rows import TrainingRow, make_row, make_tail_row, share_between_plans, spread_over_plans


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
    if not report_set.is_decided:
        return
    for scored, advantage in zip(report_set.scored, advantages.episodes, strict=True):
        yield _share_out(scored, make_row(scored.episode.trajectories[role], advantage))


def _specialist_rows(
    role: str, report_set: ScoredReportSet, advantages: SetAdvantages
) -> Iterator[TrainingRow]:
    """One row for the report with its votes on the first decision, and one for the votes on each other.

    A report's tokens have the report's advantage. The tokens of votes have that of their episode, where the
    advantages name any; else those on the first decision have the report's and others have no row.
    """
    first = report_set.first.episode
    trajectory = first.trajectories[role]
    if not advantages.episodes:
        yield make_row(trajectory, advantages.report)
        return
    num_turns = count_report_turns(trajectory, first.reports[role])
    of_first, *of_others = advantages.episodes
    yield _split_row(trajectory, num_turns, advantages.report, of_first)
    for scored, advantage in zip(report_set.scored[1:], of_others, strict=False):
        yield make_tail_row(scored.episode.trajectories[role], advantage, first_turn=num_turns)


def _share_out(scored: ScoredEpisode, row: TrainingRow) -> TrainingRow:
    plans = scored.plans
    if plans is None:
        return row
    return spread_over_plans(row, plans.of_call, share_between_plans(row.advantage, plans.values))


def count_report_turns(trajectory: Trajectory, report: str) -> int:
    """Turns up to and with the one that says the report; the votes come after them."""
    for number, turn in enumerate(trajectory.turns, start=1):
        if turn.text == report:
            return number
    return len(trajectory.turns)


def _split_row(trajectory: Trajectory, num_turns: int, report: float, votes: float) -> TrainingRow:
    """The trajectory with one advantage for the tokens of the report and another for those of the votes."""
    row = make_row(trajectory, report)
    start = sum(len(turn.context_ids) + len(turn.completion_ids) for turn in trajectory.turns[:num_turns])
    by_token = tuple(
        (report if place < start else votes) if bit else 0.0 for place, bit in enumerate(row.loss_mask)
    )
    return replace(row, token_advantages=by_token)
