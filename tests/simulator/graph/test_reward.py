"""The team reward: hand-computed cases, and the axioms that keep it honest."""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from northbank import make_northbank, write_report
from pydantic import ValidationError
from team_tables import SEATS, draw_scenarios
from trial_counts import num_trials

from roles.team import Decision
from scenarios.team import TeamScenario, judge_decision, seat_team
from scenarios.team.experts import REPORT_HABITS, best_decision, best_report, best_vote
from scenarios.team.funding import list_all_fundings
from simulator.reading import read_episode
from simulator.records import Episode, Question
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

WEIGHTS = TeamRewardWeights()
ACCEPT, OBJECT = '{"vote": "accept"}', '{"vote": "object"}'
OPEN = seat_team(make_northbank())  # a blind plan is worth (90 + 89) / 2 = 89.5, the optimum 100
TIGHT = seat_team(make_northbank(budget=39))
DEADLOCK = seat_team(make_northbank(budget=8))  # A needs 9, B needs 14
NORTHBANK = {seat: write_report(seat) for seat in SEATS}


def play(
    scenario: TeamScenario,
    decision: str,
    votes: Mapping[str, str],
    *,
    reports: Mapping[str, str] | None = None,
    asked: tuple[Question, ...] = (),
    weights: TeamRewardWeights = WEIGHTS,
) -> TeamVerdict:
    return score_episode(scenario, record(scenario, decision, votes, reports, asked), weights)


def record(
    scenario: TeamScenario,
    decision: str,
    votes: Mapping[str, str],
    reports: Mapping[str, str] | None = None,
    asked: tuple[Question, ...] = (),
) -> Episode:
    return Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=write_reports(scenario) if reports is None else reports,
        asked=asked,
        decision=decision,
        votes=votes,
    )


CASES = draw_scenarios(40)
BY_HAND = (OPEN, TIGHT, DEADLOCK)


def write_reports(scenario: TeamScenario) -> dict[str, str]:
    """Experts' reports: full ones on the case worked out by hand, each by a habit of its own on others."""
    if any(scenario.case is one.case for one in BY_HAND):
        return NORTHBANK
    return draw_reports(scenario.key)


@cache
def draw_reports(key: str) -> dict[str, str]:
    scenario = next(one for one in CASES if one.key == key)
    rng = random.Random(key)
    return {
        seat: json.dumps(best_report(scenario, seat, rng.choice(list(REPORT_HABITS))).model_dump())
        for seat in SEATS
    }


def decide(option: str, *fund: str, escalate: bool = False) -> str:
    return Decision(option=option, fund=list(fund), escalate=escalate).model_dump_json()


ESCALATE = decide("none", escalate=True)
ALL_B = decide("B", *SEATS)


def everybody(vote: str) -> dict[str, str]:
    return dict.fromkeys(SEATS, vote)


HAND_COMPUTED = {
    # name: (case, decision, votes, R, V, C, U, H)
    "optimum": (OPEN, ALL_B, everybody(ACCEPT), 1.0, 1.0, 1.0, 0.0, 0.0),
    "optimum, one wrong vote": (
        OPEN,
        ALL_B,
        everybody(ACCEPT) | {"coo": OBJECT},
        (1 + 0.25 * 0.75) / 1.25,
        1.0,
        0.75,
        0.0,
        0.0,
    ),
    "optimum, nobody votes": (OPEN, ALL_B, {}, 0.8, 1.0, 0.0, 0.0, 0.0),
    # A with all: 30 + 22 + 10 + 19 + 17 = 98 at cost 40: (98 - 89.5) / (100 - 89.5) = 17/21
    "second best": (OPEN, decide("A", *SEATS), everybody(ACCEPT), 17 / 21, 17 / 21, 1.0, 0.0, 0.0),
    # B with the crew alone: 26 + 25 = 51, under a blind plan
    "below a blind plan": (OPEN, decide("B", "coo"), everybody(ACCEPT), 0.0, 0.0, 1.0, 0.0, 0.0),
    "a limit breaks, right votes": (
        OPEN,
        decide("B", "cto", "risk", "cost"),
        everybody(ACCEPT) | {"coo": OBJECT},
        -0.2 * 0.25,
        0.0,
        1.0,
        0.25,
        0.0,
    ),
    "a limit breaks, all agree": (OPEN, decide("A"), everybody(ACCEPT), -0.05, 0.0, 0.75, 0.25, 0.0),
    "over the budget": (TIGHT, ALL_B, everybody(ACCEPT), 0.0, 0.0, 1.0, 0.0, 0.0),
    "needless escalation": (OPEN, ESCALATE, everybody(ACCEPT), -0.1, 0.0, 1.0, 0.0, 1.0),
    "no decision": (OPEN, "A, or maybe B", everybody(OBJECT), -0.2, 0.0, 1.0, 1.0, 0.0),
    "unknown option": (OPEN, decide("E"), everybody(OBJECT), -0.2, 0.0, 1.0, 1.0, 0.0),
    "an offer that nobody made": (OPEN, decide("B", "legal"), everybody(OBJECT), -0.2, 0.0, 1.0, 1.0, 0.0),
    "deadlock, escalated": (DEADLOCK, ESCALATE, everybody(ACCEPT), 1.0, 1.0, 1.0, 0.0, 0.0),
    "deadlock, forced": (DEADLOCK, decide("B", "coo"), everybody(ACCEPT), -0.1, 0.0, 1.0, 0.0, 1.0),
    "deadlock, no decision": (DEADLOCK, "", everybody(OBJECT), -0.2 - 0.1, 0.0, 1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("name", HAND_COMPUTED)
def test_hand_computed(name: str) -> None:
    scenario, decision, votes, reward, value, consensus, unresolved, escalation = HAND_COMPUTED[name]
    verdict = play(scenario, decision, votes)
    assert verdict.reward == pytest.approx(reward, abs=1e-12)
    assert verdict.value == pytest.approx(value, abs=1e-12)
    assert (verdict.consensus, verdict.unresolved, verdict.escalation) == (consensus, unresolved, escalation)


def test_explanations_name_the_reason() -> None:
    assert play(OPEN, decide("B", "cto"), {}).explanation == (
        "B worth 47: value 0.00, 0 of 4 votes right, breaks the hard limit of coo"
    )
    assert "1 over the budget" in play(TIGHT, ALL_B, {}).explanation
    assert "needless" in play(OPEN, ESCALATE, {}).explanation
    assert "should have escalated" in play(DEADLOCK, decide("B", "coo"), {}).explanation
    assert "no valid decision" in play(OPEN, "", {}).explanation


ASK = '{"ask": {"seat": "cto", "option": "A", "cost_at_most": 15}}'
DEARER = '{"offer": {"option": "A", "part": ["spare gateway", "cache"], "cost": 15, "worth": 22}}'


@pytest.mark.parametrize(
    ("reply", "value"), [(DEARER, 17 / 21), (DEARER.replace("22", "60"), 0.0), ('{"offer": null}', 0.0)]
)
def test_an_offer_that_was_asked_for_counts_if_it_holds(reply: str, value: float) -> None:
    lean = NORTHBANK | {"cto": write_report("cto", "lean")}
    decision = decide("A", "cto2", "coo", "risk", "cost")
    asked = (Question(ask=ASK, reply=reply),)
    assert play(OPEN, decision, {}, reports=lean, asked=asked).value == pytest.approx(value)
    assert play(OPEN, decision, {}, reports=lean).value == 0.0  # without the question nothing is funded by it


def test_a_false_claim_is_not_funded() -> None:
    report = json.loads(NORTHBANK["cost"])
    report["offers"][1]["worth"] = 99
    verdict = play(OPEN, ALL_B, {}, reports=NORTHBANK | {"cost": json.dumps(report)})
    assert verdict.explanation.startswith("no valid decision")


def test_weights_of_zero_leave_the_value() -> None:
    weights = TeamRewardWeights(consensus=0.0, unresolved=0.0, escalation=0.0)
    assert play(OPEN, decide("A", *SEATS), {}, weights=weights).reward == pytest.approx(17 / 21)


@pytest.mark.parametrize(
    "wrong", [{"consensus": -0.1}, {"unresolved": math.nan}, {"escalation": math.inf}, {"k": 0.2}]
)
def test_wrong_weights_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        TeamRewardWeights.model_validate(wrong)


def test_faulty_and_foreign_episodes_have_no_reward() -> None:
    episode = record(OPEN, "", {})
    with pytest.raises(ValueError, match="gpu lost"):
        score_episode(OPEN, replace(episode, error="gpu lost"), WEIGHTS)
    with pytest.raises(ValueError, match="scored against"):
        score_episode(OPEN, replace(episode, scenario_key="team/test/0/1/4"), WEIGHTS)


def random_plays(count: int) -> list[tuple[TeamScenario, str, dict[str, str]]]:
    """Decisions and votes of every kind on generated cases, malformed and missing ones included."""
    rng = random.Random(0)
    scenarios = [*CASES, OPEN, DEADLOCK]
    plays = []
    for _ in range(count):
        scenario = rng.choice(scenarios)
        table = read_episode(scenario, record(scenario, "", {})).table
        offers = {o.label: o.option for report in table.values() if report for o in report.offers}
        option = rng.choice(scenario.options)
        fund = [label for label, on in offers.items() if on == option and rng.random() < 0.8]
        runnable = list_all_fundings(scenario.public, table)
        best = best_decision(scenario.public, table, "exact").model_dump_json()
        decision = rng.choice([decide(option, *fund), decide(option), ESCALATE, "junk", best])
        if runnable and rng.random() < 0.3:
            plan = rng.choice(runnable)
            decision = decide(plan.option, *(offer.label for offer in plan.offers))
        votes = {role: rng.choice([ACCEPT, OBJECT, "maybe", ""]) for role in SEATS if rng.random() < 0.9}
        plays.append((scenario, decision, votes))
    return plays


def honest(scenario: TeamScenario, decision: str) -> dict[str, str]:
    """The votes that experts give on the decision as funded."""
    read = read_episode(scenario, record(scenario, decision, {}))
    escalated = read.decision is not None and read.decision.escalate
    return {
        seat: best_vote(scenario, seat, read.plan, escalated=escalated).model_dump_json() for seat in SEATS
    }


@pytest.mark.parametrize("count", [num_trials(300, 5_000)])
def test_agreeing_on_a_bad_decision_earns_nothing(count: int) -> None:
    bad = 0
    for scenario, decision, _ in random_plays(count):
        read = read_episode(scenario, record(scenario, decision, {}))
        if judge_decision(scenario, read.table, read.decision).value == 0:
            bad += 1
            assert play(scenario, decision, everybody(ACCEPT)).reward <= 0
    assert bad > 0.4 * count


@pytest.mark.parametrize("count", [num_trials(300, 5_000)])
def test_no_votes_make_a_worthless_decision_pay(count: int) -> None:
    for scenario, decision, votes in random_plays(count):
        verdict = play(scenario, decision, votes)
        assert verdict.value > 0 or verdict.reward <= 0
        assert -0.3 - 1e-12 <= verdict.reward <= 1


@pytest.mark.parametrize("count", [num_trials(300, 5_000)])
def test_only_the_optimum_with_right_votes_pays_one(count: int) -> None:
    num_ones = 0
    for scenario, decision, votes in random_plays(count):
        if random.Random(str(votes)).random() < 0.5:
            votes = honest(scenario, decision)
        verdict = play(scenario, decision, votes)
        is_best = verdict.value == 1 and verdict.consensus == 1
        assert (verdict.reward == 1) == is_best
        if is_best:
            num_ones += 1
            read = read_episode(scenario, record(scenario, decision, {}))
            worth = judge_decision(scenario, read.table, read.decision).worth
            assert worth == (None if scenario.optimum is None else scenario.optimum.worth)
    assert num_ones > 0.01 * count


@pytest.mark.parametrize("count", [num_trials(150, 5_000)])
def test_order_of_roles_does_not_matter(count: int) -> None:
    for scenario, decision, votes in random_plays(count):
        turned = replace(scenario, seats={role: scenario.seats[role] for role in reversed(SEATS)})
        backwards = dict(reversed(votes.items()))
        reports = dict(reversed(write_reports(scenario).items()))
        first, second = play(scenario, decision, votes), play(turned, decision, backwards, reports=reports)
        assert first.reward == second.reward


@pytest.mark.parametrize("count", [num_trials(150, 5_000)])
def test_a_silent_agent_never_raises_the_reward(count: int) -> None:
    num_lower = 0
    for scenario, decision, votes in random_plays(count):
        loud = play(scenario, decision, votes).reward
        for role in votes:
            missing = {other: vote for other, vote in votes.items() if other != role}
            for silent in (missing, votes | {role: ""}):
                reward = play(scenario, decision, silent).reward
                assert reward <= loud
                num_lower += reward < loud
    assert num_lower > 0


@pytest.mark.parametrize("count", [num_trials(100, 5_000)])
def test_a_vote_twice_counts_once(count: int) -> None:
    """Votes of anybody who holds no seat change nothing."""
    for scenario, decision, votes in random_plays(count):
        stuffed = votes | {"cto2": ACCEPT, "reconcile": ACCEPT}
        assert play(scenario, decision, votes) == play(scenario, decision, stuffed)


def test_a_malformed_decision_is_the_worst_of_its_case() -> None:
    for scenario in [*CASES, OPEN, DEADLOCK]:
        none = play(scenario, "junk", everybody(OBJECT)).reward
        for decision in [*map(decide, scenario.options), ESCALATE]:
            assert none <= play(scenario, decision, {}).reward


@pytest.mark.parametrize("count", [num_trials(150, 5_000)])
@pytest.mark.parametrize("constant", [ACCEPT, OBJECT, ""])
def test_a_free_rider_never_beats_an_honest_voter(constant: str, count: int) -> None:
    """A seat that always votes the same, whatever was decided, lowers the reward or leaves it.

    Always accepting costs nothing: where a limit is broken the value is 0 whatever the votes say.
    """
    num_lower = 0
    for scenario, decision, _ in random_plays(count):
        right = honest(scenario, decision)
        best = play(scenario, decision, right).reward
        for role in SEATS:
            reward = play(scenario, decision, right | {role: constant}).reward
            assert reward <= best
            num_lower += reward < best
    assert (num_lower > 0) == (constant != ACCEPT)
