"""Votes have a credit of their own where reports are compared with the votes held fixed."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from test_joint_options import change
from test_marl import SEATS, Engines, draw, make_learner
from test_marl import scripted as scripted  # the fixture

from roles.team import SPECIALISTS, Decision
from scenarios.team import TeamScenario, parse_decision, verify_vote
from scenarios.team.practices import best_vote
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode
from training.joint.played import PlayedSet, group_by_scenario, pick_agreement
from training.joint.vote_credit import vote_scores

WEIGHTS = TeamRewardWeights(consensus=0.25, unresolved=0.2, escalation=0.1)
OTHER = {"accept": "object", "object": "accept"}


def decide(scenario: TeamScenario, option: str, wrong: Sequence[str]) -> PlayedSet:
    """An episode that decides `option`, with every vote right but those of `wrong`."""
    decision = Decision(option=option, escalate=False)
    votes = {}
    for role in scenario.seats:
        vote = best_vote(scenario, role, decision)
        votes[role] = json.dumps({"vote": OTHER[vote] if role in wrong else vote})
    episode = Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports={},
        decision=decision.model_dump_json(),
        votes=votes,
    )
    verdict = score_episode(scenario, episode, WEIGHTS)
    return PlayedSet(scenario=scenario, decisions=(episode,), verdicts=(verdict,))


def test_a_right_vote_is_worth_its_share_of_consensus_and_a_wrong_one_nothing() -> None:
    """c = 1/4 and four seats: a right vote adds V / 4 / 5 = V / 20 to the reward."""
    compared = 0
    for scenario in draw(6):
        group = [
            decide(scenario, scenario.options[0], []),
            decide(scenario, scenario.options[0], ["cto", "risk"]),
            decide(scenario, scenario.options[1], ["cto"]),
        ]
        mean = statistics.fmean(one.verdicts[0].value for one in group)
        assert vote_scores("cto", group, WEIGHTS) == pytest.approx([mean / 20, 0.0, 0.0])
        assert vote_scores("risk", group, WEIGHTS) == pytest.approx([mean / 20, 0.0, mean / 20])
        assert vote_scores("coo", group, WEIGHTS) == pytest.approx([mean / 20] * 3)
        same = [group[0], decide(scenario, scenario.options[0], ["coo"])]
        difference = same[0].verdicts[0].reward - same[1].verdicts[0].reward
        right, wrong = vote_scores("coo", same, WEIGHTS)
        assert right - wrong == pytest.approx(difference)
        compared += mean > 0
    assert compared > 2


def test_a_missing_vote_is_a_wrong_one() -> None:
    scenario = draw(1)[0]
    full = decide(scenario, scenario.options[0], [])
    silent = replace(full, decisions=(replace(full.episode, votes={}),))
    assert vote_scores("coo", [full, silent], WEIGHTS)[1] == 0.0


@pytest.mark.parametrize("credit", ["hierarchical", "cross_rescored"])
def test_report_tokens_have_the_reports_credit_and_vote_tokens_the_votes(
    scripted: Engines, credit: str
) -> None:
    learner = make_learner(change(credit=credit))
    played = learner.play(draw(4))
    differing = 0
    for role in SEATS:
        rows = learner.rows(role, group_by_scenario(played))
        for first in range(0, len(played), 3):
            group = played[first : first + 3]
            right = [
                verify_vote(
                    one.scenario,
                    role,
                    parse_decision(one.scenario, one.episode.decision),
                    one.episode.votes[role],
                ).exact
                for one in group
            ]
            worth = statistics.fmean(one.verdicts[0].value for one in group) / 20
            for row, is_right in zip(rows[first : first + 3], right, strict=True):
                own = row.own_advantages()
                vote = worth * (is_right - statistics.fmean(right))
                assert own[0] == pytest.approx(row.advantage)
                assert own[-1] == pytest.approx(vote)
                assert all(a == own[0] or a == own[-1] for a in own)
                differing += abs(own[0] - own[-1]) > 1e-3
    assert differing > 4


def test_rewarded_for_agreement_alone_exchanges_are_worth_agreement_and_votes_nothing(
    scripted: Engines,
) -> None:
    learner = make_learner(change(credit="hierarchical", reward="agreement_only", decisions_per_set=3))
    played = learner.play(draw(4))
    for role in SEATS:
        for row in learner.rows(role, group_by_scenario(played)):
            assert row.own_advantages()[-1] == 0.0
    for one in played:
        agreement = {
            pick_agreement(one.scenario, replace(one.episode, decision=decision(option)))
            for option in (*one.scenario.options, "none")
        }
        for role in SPECIALISTS:
            own = one.swapped[role][played.index(one) % 3]
            assert min(agreement) - 1e-9 <= own <= max(agreement) + 1e-9


def decision(option: str) -> str:
    return Decision(option=option, escalate=option == "none").model_dump_json()
