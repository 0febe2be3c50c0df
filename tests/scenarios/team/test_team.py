"""Team family: one case computed by hand, room for joint training, needed reports, private seats."""

import json
import random
import re
from dataclasses import replace
from functools import cache

import pytest

from roles.errors import UserError
from roles.team import SPECIALISTS, Decision, SpecialistReport
from scenarios import team
from scenarios.base import Split, Verdict
from scenarios.briefs.forms import FORMS_FROM
from scenarios.hostile import HOSTILE_TEXTS, HOSTILE_VALUES, mutate_values
from scenarios.team.case import Seat, own_vetoes
from scenarios.team.certify import recheck_exposure, recheck_total
from scenarios.team.practices import PracticeKind, best_decision, best_report, report_flag
from scenarios.world.case import NUM_OPTIONS, figure_utility, weigh
from scenarios.world.prices import best_total, build_prices
from scenarios.world.threats import build_threats, total_exposure

# weighted sums: A 80*45+10*90+12*85+18*30 = 6060, B 80*72+10*20+12*40+18*50 = 7340, C 5170; stakes 120
UTILITIES = {
    "cto": {"A": 45, "B": 72, "C": 28},
    "coo": {"A": 90, "B": 20, "C": 50},
    "risk": {"A": 85, "B": 40, "C": 60},
    "cost": {"A": 30, "B": 50, "C": 95},
}
STAKES = {"cto": 80, "coo": 10, "risk": 12, "cost": 18}
NOBODY: dict[str, SpecialistReport | None] = dict.fromkeys(SPECIALISTS)


def make_scenario(utilities: dict[str, dict[str, int]] = UTILITIES, **limits: int) -> team.TeamScenario:
    limits = {"cto": 30, "coo": 10, "risk": 10, "cost": 10} | limits
    facts = {
        role: {"utilities": utilities[role], "stakes": STAKES[role], "limit": limits[role]}
        for role in SPECIALISTS
    }
    base = team.generate("train", seed=0, index=0, difficulty=1)
    seats = {role: Seat(brief="", facts=facts[role]) for role in SPECIALISTS}
    return replace(base, seats=seats, truth=weigh(facts))


def decide(option: str) -> Decision:
    return Decision(option=option, escalate=option == "none")


def play(
    scenario: team.TeamScenario, report_practice: str, decision_practice: str, silent: str | None = None
) -> float:
    reports = {
        role: None if role == silent else best_report(scenario.seats[role], report_practice)
        for role in SPECIALISTS
    }
    return team.decision_value(scenario, best_decision(scenario.options, reports, decision_practice))


@cache
def easy_scenarios() -> list[team.TeamScenario]:
    return [team.generate("train", 0, index, 1 + index % 3) for index in range(1200)]


def mean_value(report_practice: str, decision_practice: str, silent: str | None = None) -> float:
    played = [play(s, report_practice, decision_practice, silent) for s in easy_scenarios()]
    return sum(played) / len(played)


def test_hand_computed_truth() -> None:
    truth = make_scenario().truth
    assert truth["weighted"] == {"A": 6060, "B": 7340, "C": 5170}
    assert truth["value"] == {"A": 50.5, "B": pytest.approx(61.16667), "C": None}
    assert truth["vetoes"] == {"A": [], "B": [], "C": ["cto"]}
    assert (truth["best"], truth["no_feasible"]) == ("B", False)
    assert truth["average"] == pytest.approx(6700 / 120)


def test_hand_computed_decision_values() -> None:
    scenario = make_scenario()
    worth = {option: team.decision_value(scenario, decide(option)) for option in ("A", "B", "C", "D", "none")}
    assert worth == {"A": 0.0, "B": 1.0, "C": 0.0, "D": 0.0, "none": 0.0}
    assert team.decision_value(scenario, None) == 0.0
    assert team.decision_value(scenario, Decision(option="B", escalate=True)) == 0.0
    tamer = make_scenario(UTILITIES | {"cost": {"A": 30, "B": 50, "C": 45}}, cto=10)  # C 4270, mean 5890
    assert team.decision_value(tamer, decide("A")) == pytest.approx((6060 - 5890) / (7340 - 5890))
    assert team.decision_value(tamer, decide("C")) == 0.0


def test_hand_computed_practices() -> None:
    scenario = make_scenario()
    texts = {role: team.expert_report(scenario, role, "conviction").text for role in SPECIALISTS}
    assert texts == {
        "cto": 'conviction B 72\n{"pick": "B", "flag": 1, "veto": ["C"]}',
        "coo": 'conviction A 90\n{"pick": "A", "flag": 2, "veto": []}',
        "risk": 'conviction A 85\n{"pick": "A", "flag": 2, "veto": []}',
        "cost": 'conviction C 95\n{"pick": "C", "flag": 3, "veto": []}',
    }
    assert team.expert_report(scenario, "cto", "stakes").text.startswith(
        'stakes B 80\n{"pick": "B", "flag": 3'
    )
    assert [report_flag(scenario.seats[role], "stakes") for role in SPECIALISTS] == [3, 0, 0, 0]
    loud = {role: team.parse_report(scenario, text) for role, text in texts.items()}
    decided = [team.expert_decision("ABC", loud, practice).text for practice in ("headcount", "priority")]
    assert decided == [
        'headcount A 2 B 1\n{"option": "A", "escalate": false}',
        'priority coo A 2\n{"option": "A", "escalate": false}',  # cost's C is vetoed; coo and risk tie
    ]
    honest = {role: best_report(scenario.seats[role], "stakes") for role in SPECIALISTS}
    assert team.expert_decision("ABC", honest, "priority").text == (
        'priority cto B 3\n{"option": "B", "escalate": false}'
    )
    assert [play(scenario, *pair) for pair in (("conviction", "headcount"), ("stakes", "priority"))] == [0, 1]


def test_ties_go_to_the_first_letter_or_the_first_to_speak() -> None:
    def read(*rows: tuple[str, int]) -> dict[str, SpecialistReport]:
        made = [SpecialistReport(pick=pick, flag=flag, veto=[]) for pick, flag in rows]
        return dict(zip(SPECIALISTS, made, strict=True))

    even = read(("A", 0), ("A", 1), ("B", 1), ("B", 1))
    assert best_decision("ABC", even, "headcount").option == "A"
    assert best_decision("ABC", read(("B", 3), ("C", 0), ("C", 1), ("B", 3)), "headcount").option == "B"
    assert best_decision("ABC", read(("B", 1), ("B", 1), ("A", 1), ("A", 1)), "headcount").option == "A"
    assert best_decision("ABC", read(("C", 1), ("B", 2), ("B", 0), ("A", 2)), "priority").option == "B"
    assert best_decision("ABC", read(("C", 2), ("B", 2), ("A", 2), ("C", 0)), "priority").option == "C"
    assert best_decision("ABC", read(("C", 0), ("B", 0), ("A", 0), ("A", 1)), "priority").option == "A"
    for practice in team.HOUSE.decisions:
        assert best_decision("BCA", NOBODY, practice) == decide("B")


def test_a_deadlock_is_escalated_and_nothing_else_is_worth_anything() -> None:
    scenario = make_scenario(cto=72, coo=90)  # cto leaves only B, coo only A
    assert scenario.truth["no_feasible"]
    assert scenario.truth["best"] is None
    assert team.decision_value(scenario, decide("none")) == 1.0
    assert [team.decision_value(scenario, decide(option)) for option in "ABC"] == [0, 0, 0]
    reports = {role: best_report(scenario.seats[role], "stakes") for role in SPECIALISTS}
    for practice in team.HOUSE.decisions:
        step = team.expert_decision("ABC", reports, practice)
        assert step.text == f'{practice} none\n{{"option": "none", "escalate": true}}'
        assert team.verify_decision(scenario, reports, step.text).reward == 1.0
    assert team.verify_decision(scenario, reports, '{"option": "A", "escalate": false}').reward == 0.0
    assert team.expert_vote(scenario, "cto", decide("none")).text == '{"vote": "accept"}'


def test_briefs_between_seats() -> None:
    scenario = make_scenario()
    reports = {role: best_report(scenario.seats[role], "stakes") for role in SPECIALISTS} | {"risk": None}
    brief = "Options A B C. Vetoed C.\ncto B 3\ncoo A 0\nrisk no report\ncost C 0 out"
    assert team.decision_brief(scenario.options, reports) == brief
    assert team.decision_brief(scenario.options, dict(reversed(reports.items()))) == brief
    assert team.vote_brief(decide("B")) == "Decision B. Vote."
    assert team.vote_brief(decide("none")) == "Decision none. Vote."
    assert team.vote_brief(None) == "No decision. Vote."


def test_votes_follow_the_own_hard_limit_only() -> None:
    scenario = make_scenario()
    votes = {option: team.expert_vote(scenario, "cto", decide(option)).text for option in ("A", "B", "C")}
    assert votes == {"A": '{"vote": "accept"}', "B": '{"vote": "accept"}', "C": '{"vote": "object"}'}
    assert team.expert_vote(scenario, "coo", decide("C")).text == '{"vote": "accept"}'
    assert team.expert_vote(scenario, "coo", None).text == '{"vote": "object"}'
    assert team.verify_vote(scenario, "cto", decide("C"), '{"vote": "object"}').reward == 1.0
    assert team.verify_vote(scenario, "cto", decide("C"), '{"vote": "accept"}').reward == 0.0
    assert team.verify_vote(scenario, "cto", decide("C"), "object").failure == "no_answer"


def test_report_verdicts_by_hand() -> None:
    scenario = make_scenario()

    def judge(pick: str, flag: int, veto: list[str]) -> float:
        text = json.dumps({"pick": pick, "flag": flag, "veto": veto})
        return team.verify_report(scenario, "cto", text).reward

    assert [judge("B", flag, ["C"]) for flag in range(4)] == [0.8, 1.0, 0.8, 1.0]  # conviction 1, stakes 3
    assert judge("A", 1, ["C"]) == pytest.approx(0.4)
    assert judge("B", 3, []) == pytest.approx(0.8)
    assert judge("C", 0, ["A"]) == 0.0


def test_picking_what_the_own_limit_forbids_earns_nothing_from_difficulty_3() -> None:
    text = json.dumps({"pick": "C", "flag": 1, "veto": ["C"]})
    easy, hard = make_scenario(), replace(make_scenario(), difficulty=3)
    found = [team.verify_report(scenario, "cto", text) for scenario in (easy, hard)]
    assert [verdict.reward for verdict in found] == [0.4, 0.0]
    assert [verdict.feasible for verdict in found] == [True, False]
    other = json.dumps({"pick": "A", "flag": 1, "veto": ["C"]})
    assert team.verify_report(hard, "cto", other).reward == pytest.approx(0.4)


def test_decision_verdicts_by_hand() -> None:
    scenario = make_scenario()
    reports = {role: best_report(scenario.seats[role], "stakes") for role in SPECIALISTS}

    def judge(option: str, reports: dict[str, SpecialistReport] = reports) -> float:
        return team.verify_decision(scenario, reports, decide(option).model_dump_json()).reward

    assert [judge(option) for option in ("A", "B", "C", "none")] == [1.0, 1.0, 0.0, 0.0]
    agreed = reports | {role: SpecialistReport(pick="B", flag=3, veto=[]) for role in ("cto", "coo", "risk")}
    assert [judge(option, agreed) for option in "BCA"] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    "text",
    [
        '{"pick": "D", "flag": 1, "veto": []}',
        '{"pick": "B", "flag": 4, "veto": []}',
        '{"pick": "B", "flag": true, "veto": []}',
        '{"pick": "B", "flag": 1, "veto": ["D"]}',
        '{"pick": "B", "flag": 1, "veto": ["C", "C"]}',
        '{"pick": "B", "flag": 1}',
        '{"pick": "B", "flag": 1, "veto": [], "note": ""}',
        '{"pick": "B", "pick": "B", "flag": 1, "veto": []}',
        '{"pick": "B", "flag": 1, "veto": []} {"pick": "A", "flag": 1, "veto": []}',
        "B",
    ],
)
def test_reports_are_parsed_strictly(text: str) -> None:
    scenario = make_scenario()
    assert team.parse_report(scenario, text) is None
    assert team.verify_report(scenario, "cto", text).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        '{"option": "D", "escalate": false}',
        '{"option": "B", "escalate": true}',
        '{"option": "none", "escalate": false}',
        '{"option": "B", "escalate": 0}',
        '{"option": "B"}',
        "none",
    ],
)
def test_decisions_are_parsed_strictly(text: str) -> None:
    scenario = make_scenario()
    assert team.parse_decision(scenario, text) is None
    assert team.verify_decision(scenario, NOBODY, text).reward == 0.0


def test_votes_are_parsed_strictly() -> None:
    assert team.parse_vote('fine {"vote": "accept"}') == "accept"
    assert team.parse_vote('{"vote": "object"}') == "object"
    assert [team.parse_vote(text) for text in ('{"vote": "yes"}', "accept", '{"vote": ["accept"]}')] == [
        None
    ] * 3


def test_hostile_texts_never_raise_and_never_score() -> None:
    scenario = make_scenario()

    def judge(text: str) -> list[Verdict]:
        return [
            team.verify_report(scenario, "cto", text),
            team.verify_decision(scenario, NOBODY, text),
            team.verify_vote(scenario, "cto", decide("B"), text),
        ]

    for text in HOSTILE_TEXTS:
        assert [verdict.reward for verdict in judge(text)] == [0, 0, 0], text[:50]
    gold = {"pick": "B", "flag": 1, "veto": ["C"]}, {"option": "B", "escalate": False}, {"vote": "accept"}
    for answer in gold:
        for mutant in mutate_values(answer, lambda _: HOSTILE_VALUES):
            assert all(verdict.reward in (0, 0.8) for verdict in judge(json.dumps(mutant))), mutant


def test_expert_play_scores_one_in_every_seat() -> None:
    for scenario in easy_scenarios()[:100]:
        for practice in team.HOUSE.reports:
            reports = {}
            for role in SPECIALISTS:
                text = team.expert_report(scenario, role, practice).text
                assert team.verify_report(scenario, role, text).reward == 1.0
                reports[role] = team.parse_report(scenario, text)
            for way in team.HOUSE.decisions:
                text = team.expert_decision(scenario.options, reports, way).text
                assert text.startswith(way)
                assert team.verify_decision(scenario, reports, text).reward == 1.0
                decision = team.parse_decision(scenario, text)
                for role in SPECIALISTS:
                    vote = team.expert_vote(scenario, role, decision).text
                    assert team.verify_vote(scenario, role, decision, vote).reward == 1.0


def test_room_that_only_joint_training_can_take() -> None:
    common, best = mean_value("conviction", "headcount"), mean_value("stakes", "priority")
    assert best - common >= 0.12
    assert best - mean_value("stakes", "headcount") >= 0.12
    assert best - mean_value("conviction", "priority") >= 0.12


def test_either_side_gains_by_shifting_alone_from_the_house_as_it_is() -> None:
    """Against the other side's mixture of practices, so that learning can start on both sides."""
    value = {
        (report, way): mean_value(report, way)
        for report in team.HOUSE.reports
        for way in team.HOUSE.decisions
    }

    def against_deciders(report: str) -> float:
        return sum(share * value[report, way] for way, share in team.HOUSE.decision_shares.items())

    def against_reports(way: str) -> float:
        return sum(share * value[report, way] for report, share in team.HOUSE.report_shares.items())

    assert against_deciders("stakes") >= against_deciders("conviction") + 0.1
    assert against_reports("priority") >= against_reports("headcount") + 0.02


def test_every_report_is_needed() -> None:
    pairs = [(report, way) for report in team.HOUSE.reports for way in team.HOUSE.decisions]
    best = max(mean_value(*pair) for pair in pairs)
    losses = [best - max(mean_value(*pair, silent=role) for pair in pairs) for role in SPECIALISTS]
    assert sum(losses) / len(losses) >= 0.1
    assert min(losses) >= 0.05


def test_practices_are_drawn_by_their_shares() -> None:
    rng = random.Random(0)
    kinds: list[tuple[PracticeKind, str]] = [("report", "conviction"), ("decision", "headcount")]
    for kind, common in kinds:
        drawn = [team.sample_practice(rng, kind) for _ in range(2000)]
        assert 0.51 < drawn.count(common) / 2000 < 0.59
    with pytest.raises(UserError, match="did you mean 'stakes'"):
        report_flag(make_scenario().seats["cto"], "stake")
    with pytest.raises(UserError, match="headcount"):
        best_decision("ABC", NOBODY, "dice")


def test_a_seat_knows_its_own_numbers_and_nothing_else() -> None:
    for scenario in easy_scenarios()[:100]:
        for role, seat in scenario.seats.items():
            facts = seat.facts
            own = [facts["stakes"], *facts["utilities"].values(), facts["limit"]]
            assert sorted(map(int, re.findall(r"\d+", seat.brief))) == sorted(own)
            assert set(facts) == {"structures", "figures", "utilities", "stakes", "limit"}
            title = {"cto": "CTO", "coo": "COO", "risk": "Risk", "cost": "Cost"}[role]
            assert f"{title} seat" in seat.brief
            if scenario.difficulty < FORMS_FROM:
                opening = f"{scenario.sector.capitalize()} case. {title} seat. Stakes "
                assert seat.brief.startswith(opening)


@pytest.mark.parametrize("difficulty", [1, 2, 3, 4, 6, 8])
def test_generated_cases_are_sound(difficulty: int) -> None:
    for index in range(25):
        scenario = team.generate("validation", seed=0, index=index, difficulty=difficulty)
        assert scenario.key == f"team/validation/0/{index}/{difficulty}"
        assert len(scenario.options) == NUM_OPTIONS[difficulty - 1]
        for role, seat in scenario.seats.items():
            utilities = seat.facts["utilities"]
            assert len(set(utilities.values())) == len(utilities)
            assert all(10 <= utility <= 99 for utility in utilities.values())
            assert len(own_vetoes(seat)) < len(utilities)
            assert 10 <= seat.facts["stakes"] <= 19 or 70 <= seat.facts["stakes"] <= 99
            for option, figure in seat.facts["figures"].items():
                assert utilities[option] == figure_utility(role, difficulty, figure)
        if index < 4:
            stated, again = team.certify_team(scenario)
            assert stated == again
            assert scenario.truth["no_feasible"] == (again == 0)


def test_second_methods_agree_on_single_structures() -> None:
    for difficulty in (1, 3, 4, 6, 8):
        for index in range(20):
            rng = random.Random(f"{difficulty}/{index}")
            threats, prices = build_threats(rng, difficulty), build_prices(rng, difficulty)
            assert recheck_exposure(threats) == total_exposure(threats)
            assert recheck_total(prices) == best_total(prices)


def test_certificate_notices_a_wrong_optimum() -> None:
    scenario = team.generate("train", 0, 0, 1)
    others = [option for option, value in scenario.truth["value"].items() if value is not None]
    wrong = next(option for option in others if option != scenario.truth["best"])
    stated, again = team.certify_team(replace(scenario, truth={**scenario.truth, "best": wrong}))
    assert stated < again


def test_utilities_spread_over_the_whole_range() -> None:
    for role in SPECIALISTS:
        seen = [u for s in easy_scenarios() for u in s.seats[role].facts["utilities"].values()]
        for low in range(10, 100, 15):
            share = sum(low <= utility < low + 15 for utility in seen) / len(seen)
            assert 0.1 < share < 0.25, (role, low, share)


def test_smaller_figures_are_worth_more() -> None:
    for role in SPECIALISTS:
        worth = [figure_utility(role, 2, figure) for figure in range(400)]
        assert worth == sorted(worth, reverse=True)
        assert (worth[0], worth[-1]) == (99, 10)


def test_deadlocks_are_rare_but_there() -> None:
    share = sum(s.truth["no_feasible"] for s in easy_scenarios()) / len(easy_scenarios())
    assert 0.01 < share < 0.06


def test_generation_is_pure_and_streams_are_apart() -> None:
    random.seed(1)
    state = random.getstate()
    assert [team.generate("train", 0, index, 2) for index in range(20)] == [
        team.generate("train", 0, index, 2) for index in range(20)
    ]
    assert random.getstate() == state
    pairs: list[tuple[Split, int]] = [("train", 0), ("train", 1), ("validation", 0), ("test", 0)]
    streams = []
    for split, seed in pairs:
        drawn = [team.generate(split, seed, index, 2) for index in range(50)]
        streams.append({tuple(seat.brief for seat in scenario.seats.values()) for scenario in drawn})
    assert len(set.union(*streams)) == 200
    with pytest.raises(ValueError, match="difficulty"):
        team.generate("train", 0, 0, 11)
