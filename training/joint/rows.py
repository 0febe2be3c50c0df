"""From what was played and credited to training rows: one per trajectory, by role."""

from collections.abc import Sequence
from dataclasses import replace

from roles.team import RECONCILER
from simulator.records import Trajectory
from training.joint.played import PlayedSet
from training.learner.rows import TrainingRow, make_row, make_tail_row, share_between_plans, spread_over_plans

Groups = Sequence[Sequence[PlayedSet]]
DecisionAdvantages = Sequence[Sequence[Sequence[float]]]  # by scenario, set of reports, decision


def reconciler_rows(groups: Groups, decisions: DecisionAdvantages) -> list[TrainingRow]:
    """One row per decision; with several rounds it holds all drafts of its episode.

    In a governed episode each plan's drafts have that plan's share of the advantage.
    """
    return [
        _share_out(played, make_row(episode.trajectories[RECONCILER], advantage))
        for group, of_group in zip(groups, decisions, strict=True)
        for played, advantages in zip(group, of_group, strict=True)
        for episode, advantage in zip(played.decisions, advantages, strict=True)
    ]


def specialist_rows(
    role: str,
    groups: Groups,
    reports: Sequence[Sequence[float]],
    decisions: DecisionAdvantages | None,
    votes: Sequence[Sequence[float]] | None = None,
) -> list[TrainingRow]:
    """One row per report with its votes. With `decisions` votes count by themselves, on every decision.

    Then a report's tokens have the report's advantage and each vote's tokens that of the decision voted on
    (what followed from it on the same reports): a row for the first decision with both, and one for the
    votes on each other decision. With `votes` the vote on the first decision has an advantage of its own.
    """
    rows: list[TrainingRow] = []
    for place, (group, advantages) in enumerate(zip(groups, reports, strict=True)):
        for index, (played, advantage) in enumerate(zip(group, advantages, strict=True)):
            trajectory = played.episode.trajectories[role]
            num_turns = count_report_turns(trajectory, played.episode.reports[role])
            if decisions is not None:
                of_set = decisions[place][index]
                rows.append(_split_row(trajectory, num_turns, advantage, of_set[0]))
                for episode, later in zip(played.decisions[1:], of_set[1:], strict=True):
                    rows.append(make_tail_row(episode.trajectories[role], later, first_turn=num_turns))
            elif votes is not None:
                rows.append(_split_row(trajectory, num_turns, advantage, votes[place][index]))
            else:
                rows.append(make_row(trajectory, advantage))
    return rows


def _share_out(played: PlayedSet, row: TrainingRow) -> TrainingRow:
    plans = played.plans
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
    row = make_row(trajectory, report)
    start = sum(len(turn.context_ids) + len(turn.completion_ids) for turn in trajectory.turns[:num_turns])
    by_token = tuple(
        (report if place < start else votes) if bit else 0.0 for place, bit in enumerate(row.loss_mask)
    )
    return replace(row, token_advantages=by_token)
