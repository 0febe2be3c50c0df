"""What reports would have been worth elsewhere: exchanged reports, fitted practices, exact rewards."""

import json
import random
from dataclasses import replace

import pytest

from roles.team import SPECIALISTS
from scenarios.team import (
    HOUSE,
    TeamScenario,
    decision_value,
    expert_decision,
    expert_report,
    generate,
    parse_decision,
)
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode, with_consensus
from training.joint.credit.counterfactuals import (
    PracticeMix,
    brief_of,
    count_explained,
    decide_on,
    expected_reward,
    fit_practices,
    leave_out,
    mixed_sets,
    read_reports,
)

WEIGHTS = TeamRewardWeights()
SHARES = HOUSE.decision_shares


def meet(scenario: TeamScenario, report_practice: str, decision_practice: str) -> Episode:
    reports = {role: expert_report(scenario, role, report_practice).text for role in scenario.seats}
    episode = Episode(
        scenario_key=scenario.key, index_in_group=0, trajectories={}, reports=reports, decision="", votes={}
    )
    return decide(scenario, episode, decision_practice)


def decide(scenario: TeamScenario, episode: Episode, practice: str) -> Episode:
    text = expert_decision(scenario.options, read_reports(scenario, episode), practice).text
    return Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=episode.reports,
        decision=text,
        votes={},
    )


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def test_exchanged_reports_take_the_donors_report_and_nothing_else() -> None:
    scenario = draw(1)[0]
    sets = [meet(scenario, "conviction", "headcount"), meet(scenario, "stakes", "priority")]
    found = {(role, own, place): mixed for role, own, place, mixed in mixed_sets(sets, SPECIALISTS)}
    assert len(found) == 4 * 2 * 2
    for (role, own, place), mixed in found.items():
        for seat in SPECIALISTS:
            source = sets[own] if seat == role else sets[place]
            assert mixed.reports[seat] == source.reports[seat]
    assert found["cto", 1, 1] is sets[1]
    assert leave_out(sets[0], "coo").reports == {**sets[0].reports, "coo": ""}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_fit_finds_how_often_each_practice_decided(share: float) -> None:
    rng = random.Random(0)
    decided = []
    for scenario in draw(400):
        practice = "priority" if rng.random() < share else "headcount"
        decided.append((scenario, meet(scenario, rng.choice(["conviction", "stakes"]), practice)))
    mix = fit_practices(count_explained(decided), SHARES)
    assert mix.shares["priority"] == pytest.approx(share, abs=0.06)
    assert mix.other == pytest.approx(0.0, abs=0.05)
    assert sum(mix.shares.values()) + mix.other == pytest.approx(1.0)


def test_the_fit_finds_that_anything_was_said() -> None:
    rng = random.Random(0)
    decided = []
    for scenario in draw(400):
        episode = meet(scenario, "stakes", "priority")
        vetoed = {
            option for report in read_reports(scenario, episode).values() if report for option in report.veto
        }
        still_open = [option for option in scenario.options if option not in vetoed] or ["none"]
        option = rng.choice(still_open)
        text = json.dumps({"option": option, "escalate": option == "none"})
        decided.append((scenario, replace(episode, decision=text)))
    assert fit_practices(count_explained(decided), SHARES).other > 0.8


def test_without_a_readable_decision_the_houses_shares_stand() -> None:
    scenario = draw(1)[0]
    silent = replace(meet(scenario, "stakes", "priority"), decision="well")
    assert fit_practices(count_explained([(scenario, silent)]), SHARES) == PracticeMix(
        shares=SHARES, other=0.0
    )


def test_the_expected_reward_weighs_what_each_practice_would_decide() -> None:
    mix = PracticeMix(shares={"headcount": 0.25, "priority": 0.75}, other=0.0)
    differing = 0
    for scenario in draw(60):
        episode = meet(scenario, "conviction", "headcount")

        def reward_of(decided: Episode, scenario: TeamScenario = scenario) -> float:
            return with_consensus(score_episode(scenario, decided, WEIGHTS), 0.5, WEIGHTS).reward

        worth = {}
        for practice in mix.shares:
            decision = parse_decision(scenario, decide(scenario, episode, practice).decision)
            assert decision is not None
            broken = [] if decision.escalate else scenario.truth["vetoes"][decision.option]
            wrong = decision.escalate != scenario.truth["no_feasible"]
            value = decision_value(scenario, decision)
            worth[practice] = value * (1 + 0.25 * 0.5) / 1.25 - 0.2 * len(broken) / 4 - 0.1 * wrong
            assert reward_of(decide_on(episode, decision.option)) == pytest.approx(worth[practice])
        expected = 0.25 * worth["headcount"] + 0.75 * worth["priority"]
        assert expected_reward(scenario, episode, mix, reward_of) == pytest.approx(expected)
        differing += worth["headcount"] != worth["priority"]
    assert differing > 10


def test_sets_that_read_the_same_are_one_situation() -> None:
    scenario = draw(1)[0]
    episode = meet(scenario, "stakes", "priority")
    other_words = replace(episode, reports={**episode.reports, "cto": "hm " + episode.reports["cto"]})
    assert other_words.reports != episode.reports
    assert brief_of(scenario, other_words) == brief_of(scenario, episode)
    assert brief_of(scenario, leave_out(episode, "cto")) != brief_of(scenario, episode)
