"""Votes have a credit of their own where reports are compared with the votes held fixed."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from joint_learning import SEATS, Engines, change, draw, make_learner, play, rows_of

from scenarios.team import PlanGame, TeamScenario, load_table
from scenarios.team.experts import best_decision, best_vote, expert_report
from scenarios.team.value import funded_plan
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, list_right_votes, score_episode
from training.rl.credit import vote_scores
from training.rl.records import ScoredEpisode, ScoredGroup, ScoredReportSet

WEIGHTS = TeamRewardWeights(consensus=0.25, unresolved=0.2, escalation=0.1)
OTHER = {"accept": "object", "object": "accept"}


def decide(scenario: TeamScenario, habit: str, wrong: Sequence[str]) -> ScoredReportSet:
    """Experts report and ReconcileGPT funds by `habit`; every vote is right but those of `wrong`."""
    reports = {seat: expert_report(scenario, seat, habit).text for seat in scenario.seats}
    table = load_table({seat: PlanGame(scenario).read_report(seat, text) for seat, text in reports.items()})
    decision = best_decision(scenario.public, table, "exact")
    plan = None if decision.escalate else funded_plan(table, decision)
    votes = {}
    for role in scenario.seats:
        vote = best_vote(scenario, role, plan, escalated=decision.escalate).vote
        votes[role] = json.dumps({"vote": OTHER[vote] if role in wrong else vote})
    episode = Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=reports,
        decision=decision.model_dump_json(),
        votes=votes,
    )
    verdict = score_episode(scenario, episode, WEIGHTS)
    return ScoredReportSet(scored=(ScoredEpisode(episode=episode, verdict=verdict),))


def score_votes(role: str, scenario: TeamScenario, *report_sets: ScoredReportSet) -> list[float]:
    return vote_scores(role, ScoredGroup(scenario=scenario, report_sets=report_sets), WEIGHTS)


def test_a_right_vote_is_worth_its_share_of_consensus_and_a_wrong_one_nothing() -> None:
    """c = 1/4 and four seats: a right vote adds V / 4 / 5 = V / 20 to the reward."""
    compared = 0
    for scenario in draw(6):
        group = [
            decide(scenario, "easy", []),
            decide(scenario, "easy", ["cto", "risk"]),
            decide(scenario, "lean", ["cto"]),
        ]
        mean = statistics.fmean(one.first.verdict.value for one in group)
        assert score_votes("cto", scenario, *group) == pytest.approx([mean / 20, 0.0, 0.0])
        assert score_votes("risk", scenario, *group) == pytest.approx([mean / 20, 0.0, mean / 20])
        assert score_votes("coo", scenario, *group) == pytest.approx([mean / 20] * 3)
        same = [group[0], decide(scenario, "easy", ["coo"])]
        difference = same[0].rewards[0] - same[1].rewards[0]
        right, wrong = score_votes("coo", scenario, *same)
        assert right - wrong == pytest.approx(difference)
        compared += mean > 0
    assert compared > 2


def test_a_missing_vote_is_a_wrong_one() -> None:
    scenario = draw(1)[0]
    full = decide(scenario, "easy", [])
    silent = ScoredEpisode(episode=replace(full.first.episode, votes={}), verdict=full.first.verdict)
    assert score_votes("coo", scenario, full, ScoredReportSet(scored=(silent,)))[1] == 0.0


@pytest.mark.parametrize("credit", ["shapley", "cross_valued"])
def test_report_tokens_have_the_reports_credit_and_vote_tokens_the_votes(
    scripted: Engines, credit: str
) -> None:
    learner = make_learner(change(credit__scheme=credit))
    groups = play(learner, draw(4))
    differing = 0
    for role in SEATS:
        rows = rows_of(learner, role, groups)
        for number, group in enumerate(groups):
            first = 3 * number
            episodes = [one.first.episode for one in group.report_sets]
            right = [
                role in list_right_votes(group.scenario, read_episode(group.scenario, one))
                for one in episodes
            ]
            worth = statistics.fmean(one.first.verdict.value for one in group.report_sets) / 20
            for row, is_right in zip(rows[first : first + 3], right, strict=True):
                own = row.own_advantages()
                vote = worth * (is_right - statistics.fmean(right))
                assert own[0] == pytest.approx(row.advantage)
                assert own[-1] == pytest.approx(vote)
                assert all(a == own[0] or a == own[-1] for a in own)
                differing += abs(own[0] - own[-1]) > 1e-3
    assert differing > 4
