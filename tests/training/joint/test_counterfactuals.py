"""Counterfactual reports: one left out, one of another episode, and sets that read the same."""

from dataclasses import replace

from roles.team import SPECIALISTS
from scenarios.team import TeamScenario, expert_report, generate
from simulator.records import Episode
from simulator.reward import TeamRewardWeights
from training.joint.credit.counterfactuals import (
    brief_of,
    leave_out,
    swap_reports,
)

WEIGHTS = TeamRewardWeights()


def meet(scenario: TeamScenario, practice: str) -> Episode:
    reports = {role: expert_report(scenario, role, practice).text for role in scenario.seats}
    return Episode(
        scenario_key=scenario.key, index_in_group=0, trajectories={}, reports=reports, decision="", votes={}
    )


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def test_exchanged_reports_take_the_donors_report_and_nothing_else() -> None:
    scenario = draw(1)[0]
    sets = [meet(scenario, "conviction"), meet(scenario, "stakes")]
    found = {(role, own, place): mixed for role, own, place, mixed in swap_reports(sets, SPECIALISTS)}
    assert len(found) == 4 * 2 * 2
    for (role, own, place), mixed in found.items():
        for seat in SPECIALISTS:
            source = sets[own] if seat == role else sets[place]
            assert mixed.reports[seat] == source.reports[seat]
    assert found["cto", 1, 1] is sets[1]
    assert leave_out(sets[0], "coo").reports == {**sets[0].reports, "coo": ""}


def test_sets_that_read_the_same_are_one_situation() -> None:
    scenario = draw(1)[0]
    episode = meet(scenario, "stakes")
    other_words = replace(episode, reports={**episode.reports, "cto": "hm " + episode.reports["cto"]})
    assert other_words.reports != episode.reports
    assert brief_of(scenario, other_words) == brief_of(scenario, episode)
    assert brief_of(scenario, leave_out(episode, "cto")) != brief_of(scenario, episode)
