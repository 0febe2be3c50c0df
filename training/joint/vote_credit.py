"""What a specialist's vote was worth, apart from its report.

Votes enter the team reward only as the share of right ones: R = V (1 + c C) / (1 + c) - ..., C = right / n.
So a right vote is worth V c / ((1 + c) n) more than a wrong one, whatever the report said. Where credit
values reports with the votes held fixed, the vote's own tokens get this and the report's tokens the report's.
"""

import statistics
from collections.abc import Sequence

from scenarios.team import parse_decision, verify_vote
from simulator.reward import TeamRewardWeights
from training.joint.played import PlayedSet


def vote_scores(role: str, group: Sequence[PlayedSet], weights: TeamRewardWeights) -> list[float]:
    """One score per report set of a case: what this seat's vote on the first decision added to the reward.

    A right vote has the group's mean value times c / ((1 + c) n), a wrong or missing one 0. The mean value
    stands for each own one, so that only votes are compared, not decisions.
    """
    scenario = group[0].scenario
    value = statistics.fmean(one.verdicts[0].value for one in group)
    worth = value * weights.consensus / ((1 + weights.consensus) * len(scenario.seats))
    return [worth * _is_right(role, one) for one in group]


def _is_right(role: str, played: PlayedSet) -> bool:
    scenario, episode = played.scenario, played.episode
    decision = parse_decision(scenario, episode.decision)
    text = episode.votes.get(role)
    return text is not None and verify_vote(scenario, role, decision, text).exact
