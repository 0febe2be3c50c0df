"""Reading stored team plays: faults of reports, honest ones, the best plan left, paired changes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from expert_meetings import expert_episode
from spoken import speak

from benchmarks.joint.team_plays import compare, describe, find_fault, is_honest, value_of_best
from evaluation.scoring.baselines import BEST_HABITS
from evaluation.scoring.outcomes import TeamOutcome, count_sequential, describe_episode
from scenarios.team import TeamScenario, generate
from simulator.records import Episode, Question
from simulator.reward import TeamRewardWeights, score_episode

SEAT = "cto"


def make_play(index: int) -> tuple[TeamScenario, TeamOutcome]:
    case = generate("test", 0, index, 1)
    episode = expert_episode(case, *BEST_HABITS)
    return case, describe_episode(case, episode, score_episode(case, episode, TeamRewardWeights()))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, "none"),
        ({"worth": 999}, "cost # and worth # are not its figures"),
        ({"part": ["golden gate"]}, "no such part"),
    ],
)
def test_the_first_fault_of_a_report_is_named(changes: dict[str, object], fault: str) -> None:
    case, play = make_play(0)
    report = json.loads(play.reports[SEAT])
    report["offers"][0] |= changes
    assert find_fault(case, SEAT, json.dumps(report)) == fault
    assert find_fault(case, SEAT, "I would rather not.") == "cannot be read"


def test_a_report_is_honest_with_offers_and_without_a_claim_that_was_struck_out() -> None:
    _, play = make_play(0)
    assert is_honest(play, SEAT)
    assert not is_honest(replace(play, false_claims={**play.false_claims, SEAT: 1}), SEAT)
    assert not is_honest(replace(play, offers={**play.offers, SEAT: 0}), SEAT)
    assert not is_honest(replace(play, offers={}, false_claims={}), SEAT)  # could not be read


def test_what_reports_allow_is_what_a_chair_of_experts_earns_and_nothing_without_reports() -> None:
    case, play = make_play(1)
    assert value_of_best(case, play) == play.value > 0
    assert value_of_best(case, replace(play, reports=dict.fromkeys(play.reports, ""))) == 0


def test_changes_are_paired_on_the_cases_of_both_files(capsys: pytest.CaptureFixture[str]) -> None:
    (first, one), (second, two) = make_play(0), make_play(1)
    worse = replace(two, reward=two.reward - 0.5)
    describe(Path("a.jsonl"), [one, two], {first.key: first, second.key: second})
    compare(Path("b.jsonl"), [worse], [one, two])
    said = capsys.readouterr().out
    assert "a.jsonl: 2 cases" in said
    assert f"{2 * len(first.seats)} of {2 * len(first.seats)} reports: none" in said
    assert "on 1 cases, -0.500 [-0.500, -0.500]" in said


def test_tokens_in_sequence_are_those_that_wait_for_each_other() -> None:
    """Reports side by side (a call of a tool is part of one), ask, reply, decision, votes side by side."""
    paths = {
        "cto": speak("cto", ("call", 4), ("report 1", 10), ("reply", 6), ("accept", 2)),
        "coo": speak("coo", ("report 2", 12), ("object, since it breaks a limit", 7)),
        "reconcile": speak("reconcile", ("ask", 3), ("decision", 5)),
    }
    episode = Episode(
        scenario_key="",
        index_in_group=0,
        trajectories=paths,
        reports={"cto": "report 1", "coo": "report 2"},
        decision="decision",
        votes={"cto": "accept", "coo": "object, since it breaks a limit"},
        asked=(Question(ask="ask", reply="reply"),),
    )
    assert count_sequential(episode) == 14 + (3 + 6 + 5) + 7
    alone = replace(episode, trajectories={"single": speak("single", ("call", 4), ("all", 30))}, asked=())
    assert count_sequential(alone) == 34  # a single agent writes all by itself
