"""Makes training rows of scored groups and their advantages: one row per trajectory, by role."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roles.team import RECONCILER
from simulator.records import Trajectory
from training.joint.credit.estimators import share_by_prefix
from training.joint.records import GroupAdvantages, ScoredEpisode, ScoredGroup, ScoredReportSet, SetAdvantages
from training.learner.rows import TrainingRow, make_row, make_tail_row, share_between_plans, spread_over_plans


def make_rows(
    role: str,
    groups: Sequence[ScoredGroup],
    advantages: Sequence[GroupAdvantages],
    *,
    by_prefix: bool = False,
) -> list[TrainingRow]:
    """The role's rows on all groups, in their order.

    `by_prefix`: a report's tokens are credited among the reports of the group that begin alike.
    """
    rows: list[TrainingRow] = []
    for group, of_group in zip(groups, advantages, strict=True):
        if role == RECONCILER:
            for report_set, of_set in zip(group.report_sets, of_group, strict=True):
                rows += _reconciler_rows(role, report_set, of_set)
            continue
        credits = _credit_reports(role, group, of_group) if by_prefix else [()] * len(of_group)
        for report_set, of_set, credit in zip(group.report_sets, of_group, credits, strict=True):
            rows += _specialist_rows(role, report_set, of_set, credit)
    return rows


def _credit_reports(role: str, group: ScoredGroup, advantages: GroupAdvantages) -> list[Sequence[float]]:
    """Of each set the credit of the tokens of the role's report, observations between its turns included."""
    messages = []
    for one in group.report_sets:
        trajectory = one.first.episode.trajectories[role]
        begin, end = len(trajectory.turns[0].context_ids), _report_end(trajectory, one, role)
        messages.append(trajectory.token_ids[begin:end])
    return [*share_by_prefix(messages, [one.report for one in advantages])]


def _report_end(trajectory: Trajectory, report_set: ScoredReportSet, role: str) -> int:
    """Place after the report's last token in the trajectory."""
    turns = trajectory.turns[: count_report_turns(trajectory, report_set.first.episode.reports[role])]
    return sum(len(turn.context_ids) + len(turn.completion_ids) for turn in turns)


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
    role: str, report_set: ScoredReportSet, advantages: SetAdvantages, credit: Sequence[float]
) -> Iterator[TrainingRow]:
    """One row for the report with its votes on the first decision, and one for the votes on each other.

    A report's tokens have the report's advantage. The tokens of votes have that of their episode, where the
    advantages name any; else those on the first decision have the report's and others have no row. `credit`:
    of the report's single tokens, () where they all have the report's advantage.
    """
    first = report_set.first.episode
    trajectory = first.trajectories[role]
    num_turns = count_report_turns(trajectory, first.reports[role])
    of_first, *of_others = advantages.episodes or (advantages.report,)
    if not (advantages.episodes or credit):
        yield make_row(trajectory, advantages.report)
        return
    end = _report_end(trajectory, report_set, role)
    yield _split_row(trajectory, end, advantages.report, of_first, credit)
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


def _split_row(
    trajectory: Trajectory, end: int, report: float, votes: float, credit: Sequence[float]
) -> TrainingRow:
    """The trajectory with the report's advantage or credit up to `end`, and that of the votes from there."""
    row = make_row(trajectory, report)
    of_report = credit or (report,) * (end - row.num_prompt)
    all_tokens = (0.0,) * row.num_prompt + (*of_report,) + (votes,) * (len(row.loss_mask) - end)
    by_token = tuple(value if bit else 0.0 for value, bit in zip(all_tokens, row.loss_mask, strict=True))
    return replace(row, token_advantages=by_token)
