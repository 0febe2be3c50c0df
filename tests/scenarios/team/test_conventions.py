"""Conventions of team cases: the house's stay as they were, the symmetric ones are exact mirror images."""

import hashlib
import json
import random
from dataclasses import replace
from functools import cache

import pytest

from evaluation.scoring.baselines import score_team_baselines
from roles.errors import UserError
from roles.team import SPECIALISTS, SpecialistReport
from scenarios import team
from scenarios.base import Split
from scenarios.keys import regenerate
from scenarios.team.case import Seat
from scenarios.team.practices import best_decision, best_report, report_flag
from scenarios.world.case import weigh
from simulator.reward import TeamRewardWeights
from training.config.loading import load_config
from training.data.demonstrations import corpus
from training.data.demonstrations import expert_episode as meet
from training.stages import from_config

SYMMETRIC = team.SYMMETRIC
# of keys, briefs, facts, truth and expert play of 72 cases, as they were before there were other conventions
HOUSE_DIGEST = "b7e73c455c3497011f4626f6074700fd2d11f2ccfabea52ade314ea061d64eb2"
UTILITIES = {
    "cto": {"A": 45, "B": 72, "C": 28},
    "coo": {"A": 90, "B": 20, "C": 50},
    "risk": {"A": 85, "B": 40, "C": 60},
    "cost": {"A": 30, "B": 50, "C": 95},
}
STAKES = {"cto": 85, "coo": 12, "risk": 25, "cost": 33}
LIMITS = {"cto": 30, "coo": 10, "risk": 10, "cost": 10}


@cache
def draw(count: int) -> list[team.TeamScenario]:
    return [team.generate("train", 0, index, 1 + index % 3, "symmetric") for index in range(count)]


def make_scenario() -> team.TeamScenario:
    """Weighted sums: A 85*45 + 12*90 + 25*85 + 33*30 = 8020, B 9010, C vetoed by the CTO."""
    facts = {
        role: {"utilities": UTILITIES[role], "stakes": STAKES[role], "limit": LIMITS[role]}
        for role in SPECIALISTS
    }
    seats = {role: Seat(brief="", facts=facts[role]) for role in SPECIALISTS}
    return replace(draw(1)[0], seats=seats, truth=weigh(facts))


def report(scenario: team.TeamScenario, practices: dict[str, str]) -> dict[str, SpecialistReport | None]:
    return {role: best_report(scenario.seats[role], practices[role], SYMMETRIC) for role in SPECIALISTS}


def play(scenario: team.TeamScenario, practices: dict[str, str], practice: str) -> float:
    reports = report(scenario, practices)
    return team.decision_value(scenario, best_decision(scenario.options, reports, practice, SYMMETRIC))


def everybody(practice: str) -> dict[str, str]:
    return dict.fromkeys(SPECIALISTS, practice)


def mean_value(practices: dict[str, str], practice: str) -> float:
    return sum(play(scenario, practices, practice) for scenario in draw(400)) / 400


def test_cases_and_demonstrations_of_the_house_are_as_they_were() -> None:
    splits: tuple[Split, ...] = ("train", "validation", "test")
    lines = []
    for split in splits:
        for index in range(6):
            for difficulty in (1, 2, 3, 6):
                case = team.generate(split, 0, index, difficulty)
                reports, brief, decision, votes = meet(case)
                seats = {role: [seat.brief, seat.facts] for role, seat in case.seats.items()}
                said = {role: step.text for role, step in reports.items()}
                voted = {role: step.text for role, step in votes.items()}
                fields = [case.key, seats, case.truth, said, brief, decision.text, voted]
                lines.append(json.dumps(fields, default=dict))
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == HOUSE_DIGEST


def test_hand_computed_mirror_images() -> None:
    scenario = make_scenario()
    loud, calm = (report(scenario, everybody(practice)) for practice in ("stakes", "calm"))
    assert [one.flag for one in loud.values() if one] == [3, 0, 1, 2]
    assert [one.flag for one in calm.values() if one] == [0, 3, 2, 1]
    assert team.expert_report(scenario, "cto", "calm").text == (
        'calm B 85\n{"pick": "B", "flag": 0, "veto": ["C"]}'
    )
    texts = [
        team.expert_decision("ABC", reports, practice, SYMMETRIC).text.split("\n")[0]
        for reports in (loud, calm)
        for practice in ("priority", "reserve")
    ]
    assert texts == ["priority cto B 3", "reserve coo A 0", "priority coo A 3", "reserve cto B 0"]
    worth = {
        (one, way): play(scenario, everybody(one), way)
        for one in ("stakes", "calm")
        for way in SYMMETRIC.decisions
    }
    assert worth == {
        ("stakes", "priority"): 1.0,
        ("stakes", "reserve"): 0.0,
        ("calm", "priority"): 0.0,
        ("calm", "reserve"): 1.0,
    }


def test_both_pairs_decide_alike_on_every_case() -> None:
    for scenario in draw(400):
        chosen = [
            best_decision(scenario.options, report(scenario, everybody(word)), way, SYMMETRIC)
            for word, way in (("stakes", "priority"), ("calm", "reserve"))
        ]
        assert chosen[0] == chosen[1]
        turned = {"stakes": "calm", "calm": "stakes"}
        rng = random.Random(scenario.key)
        some = {role: rng.choice(("stakes", "calm")) for role in SPECIALISTS}
        others = {role: turned[word] for role, word in some.items()}
        assert play(scenario, some, "priority") == play(scenario, others, "reserve")


def test_a_role_of_the_other_convention_costs_value() -> None:
    matched = mean_value(everybody("stakes"), "priority")
    assert matched > 0.85
    assert mean_value(everybody("stakes"), "reserve") < matched - 0.3  # ReconcileGPT swapped
    for role in SPECIALISTS:
        assert mean_value(everybody("stakes") | {role: "calm"}, "priority") < matched - 0.05


def test_what_reconcile_reads_does_not_tell_the_practice() -> None:
    """The flags are 0 to 3 once each under either practice, any seat's as often as any other's."""
    highest = {practice: dict.fromkeys(SPECIALISTS, 0) for practice in SYMMETRIC.reports}
    for scenario in draw(400):
        for practice, counts in highest.items():
            flags = {role: report_flag(seat, practice, SYMMETRIC) for role, seat in scenario.seats.items()}
            assert sorted(flags.values()) == [0, 1, 2, 3]
            counts[max(flags, key=flags.__getitem__)] += 1
    for counts in highest.values():
        assert all(70 <= count <= 130 for count in counts.values())  # 100 expected, 3.5 deviations


def test_each_practice_is_right_by_a_roles_own_verdict() -> None:
    for scenario in draw(60):
        for word in SYMMETRIC.reports:
            texts = {role: team.expert_report(scenario, role, word).text for role in SPECIALISTS}
            assert [team.verify_report(scenario, role, texts[role]).reward for role in SPECIALISTS] == [1] * 4
            reports = {role: team.parse_report(scenario, text) for role, text in texts.items()}
            for way in SYMMETRIC.decisions:
                decided = team.expert_decision(scenario.options, reports, way, SYMMETRIC).text
                assert team.verify_decision(scenario, reports, decided).reward == 1
    scenario = make_scenario()
    flags = [
        team.verify_report(scenario, "cto", json.dumps({"pick": "B", "flag": flag, "veto": ["C"]})).reward
        for flag in range(4)
    ]
    assert flags == [1.0, 0.8, 0.8, 1.0]  # 3 by stakes, 0 by calm
    with pytest.raises(UserError, match="calm, stakes"):
        team.expert_report(scenario, "cto", "conviction")


def test_symmetric_cases_are_the_houses_with_stakes_of_their_own() -> None:
    for index in range(18):
        house = team.generate("validation", 3, index, 1 + index % 6)
        other = team.generate("validation", 3, index, 1 + index % 6, "symmetric")
        assert other.key == house.key.replace("team/", "team-symmetric/")
        assert regenerate(other.key) == other
        assert regenerate(house.key) == house
        for role, seat in house.seats.items():
            facts = other.seats[role].facts
            assert {**facts, "stakes": 0} == {**seat.facts, "stakes": 0}
            assert str(facts["stakes"]) in other.seats[role].brief
        stated, again = team.certify_team(other)
        assert stated == again
    with pytest.raises(UserError, match="team-lopsided"):
        regenerate("team-lopsided/test/0/7/2")


def test_the_config_key_reaches_every_team_case() -> None:
    sets = ["data.conventions=symmetric", "marl.guards.validate_every=5", "evaluation.num_team_scenarios=6"]
    config = load_config(None, sets)
    for cases in (
        from_config.joint_cases(config, 3),
        from_config.test_cases(config),
        from_config.validation_cases(config),
    ):
        assert cases
        assert all(case.key.startswith("team-symmetric/") for case in cases)
    assert from_config.test_cases(load_config(None, []))[0].key.startswith("team/")
    texts = list(corpus(num_role=0, num_team=20, seed=0, difficulties=(1, 2), conventions="symmetric"))
    words = {text.split(" ")[0] for text in texts}
    assert {"stakes", "calm", "priority", "reserve"} <= words
    assert not {"conviction", "headcount"} & words


def test_experts_of_both_practices_write_as_many_demonstrations() -> None:
    played = [meet(scenario) for scenario in draw(400)]
    calm = [step.text.startswith("calm") for reports, _, _, _ in played for step in reports.values()]
    reserve = [decision.text.startswith("reserve") for _, _, decision, _ in played]
    assert 0.46 < sum(calm) / len(calm) < 0.54  # four deviations
    assert 0.4 < sum(reserve) / len(reserve) < 0.6


def test_without_a_common_practice_the_common_team_is_mixed() -> None:
    scores = {one.stage: one for one in score_team_baselines(draw(300), TeamRewardWeights())}
    common, best = (sum(scores[name].value) / 300 for name in ("oracle_common", "oracle_best"))
    assert best == pytest.approx(sum(play(s, everybody("stakes"), "priority") for s in draw(300)) / 300)
    assert 0.5 < common < best - 0.15
