"""The team reward: hand-computed cases, and the axioms that keep it honest."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from team_tables import SEATS, draw_scenarios
from trial_counts import num_trials

from roles.team import Decision
from scenarios.team import Seat, TeamScenario, decision_value, expert_vote
from scenarios.world.case import weigh
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

WEIGHTS = TeamRewardWeights()
ACCEPT, OBJECT = '{"vote": "accept"}', '{"vote": "object"}'


def build_case(limits: dict[str, int]) -> TeamScenario:
    """Stakes 70, 10, 10, 10. Weighted means: A 78, B 62, D 72, and C, which some limits forbid."""
    utilities = {
        "cto": {"A": 90, "B": 60, "C": 40, "D": 78},
        "coo": {"A": 50, "B": 80, "C": 90, "D": 60},
        "risk": {"A": 50, "B": 60, "C": 90, "D": 57},
        "cost": {"A": 50, "B": 60, "C": 20, "D": 57},
    }
    stakes = {"cto": 70, "coo": 10, "risk": 10, "cost": 10}
    facts: dict[str, dict[str, Any]] = {
        role: {"utilities": utilities[role], "stakes": stakes[role], "limit": limits[role]} for role in SEATS
    }
    return TeamScenario(
        split="test",
        seed=0,
        index=0,
        difficulty=4,
        sector="bank",
        options=("A", "B", "C", "D"),
        seats={role: Seat(brief="", facts=facts[role]) for role in SEATS},
        truth=weigh(facts),
    )


OPEN = build_case({"cto": 45, "coo": 10, "risk": 10, "cost": 30})  # C is vetoed by cto and cost
DEADLOCK = build_case({"cto": 61, "coo": 55, "risk": 10, "cost": 58})  # A coo cost, B cto, C cto cost, D cost


def play(scenario: TeamScenario, decision: str, votes: dict[str, str]) -> TeamVerdict:
    episode = Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports={},
        decision=decision,
        votes=votes,
    )
    return score_episode(scenario, episode, WEIGHTS)


def decide(option: str, escalate: bool = False) -> str:
    return Decision(option=option, escalate=escalate).model_dump_json()


def everybody(vote: str) -> dict[str, str]:
    return dict.fromkeys(SEATS, vote)


HAND_COMPUTED = {
    # name: (case, decision, votes, R, V, C, U, H)
    "optimum": (OPEN, decide("A"), everybody(ACCEPT), 1.0, 1.0, 1.0, 0.0, 0.0),
    "optimum, one wrong vote": (
        OPEN,
        decide("A"),
        everybody(ACCEPT) | {"coo": OBJECT},
        (1 + 0.25 * 0.75) / 1.25,
        1.0,
        0.75,
        0.0,
        0.0,
    ),
    "optimum, nobody votes": (OPEN, decide("A"), {}, 0.8, 1.0, 0.0, 0.0, 0.0),
    # open options A 78, B 62, D 72: mean 70 2/3; D is (72 - 70 2/3) / (78 - 70 2/3) = 2/11
    "second best": (OPEN, decide("D"), everybody(ACCEPT), 2 / 11, 2 / 11, 1.0, 0.0, 0.0),
    "below average": (OPEN, decide("B"), everybody(ACCEPT), 0.0, 0.0, 1.0, 0.0, 0.0),
    "vetoed, right votes": (
        OPEN,
        decide("C"),
        everybody(ACCEPT) | {"cto": OBJECT, "cost": OBJECT},
        -0.2 * 0.5,
        0.0,
        1.0,
        0.5,
        0.0,
    ),
    "vetoed, all agree": (OPEN, decide("C"), everybody(ACCEPT), -0.1, 0.0, 0.5, 0.5, 0.0),
    "needless escalation": (OPEN, decide("none", True), everybody(ACCEPT), -0.1, 0.0, 1.0, 0.0, 1.0),
    "no decision": (OPEN, "A, or maybe D", everybody(OBJECT), -0.2, 0.0, 1.0, 1.0, 0.0),
    "unknown option": (OPEN, decide("E"), everybody(OBJECT), -0.2, 0.0, 1.0, 1.0, 0.0),
    "deadlock, escalated": (DEADLOCK, decide("none", True), everybody(ACCEPT), 1.0, 1.0, 1.0, 0.0, 0.0),
    "deadlock, forced": (DEADLOCK, decide("B"), everybody(ACCEPT), -0.05 - 0.1, 0.0, 0.75, 0.25, 1.0),
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
    assert play(OPEN, decide("C"), {}).explanation == (
        "C: value 0.00, 0 of 4 votes right, breaks the hard limit of cto, cost"
    )
    assert "needless" in play(OPEN, decide("none", True), {}).explanation
    assert "should have escalated" in play(DEADLOCK, decide("B"), {}).explanation
    assert "no valid decision" in play(OPEN, "", {}).explanation


def test_weights_of_zero_leave_the_value() -> None:
    weights = TeamRewardWeights(consensus=0.0, unresolved=0.0, escalation=0.0)
    episode = Episode(
        scenario_key=OPEN.key, index_in_group=0, trajectories={}, reports={}, decision=decide("D"), votes={}
    )
    assert score_episode(OPEN, episode, weights).reward == pytest.approx(2 / 11)


@pytest.mark.parametrize(
    "wrong", [{"consensus": -0.1}, {"unresolved": math.nan}, {"escalation": math.inf}, {"k": 0.2}]
)
def test_wrong_weights_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        TeamRewardWeights.model_validate(wrong)


def test_faulty_and_foreign_episodes_have_no_reward() -> None:
    episode = Episode(
        scenario_key=OPEN.key, index_in_group=0, trajectories={}, reports={}, decision="", votes={}
    )
    with pytest.raises(ValueError, match="gpu lost"):
        score_episode(OPEN, replace(episode, error="gpu lost"), WEIGHTS)
    with pytest.raises(ValueError, match="scored against"):
        score_episode(OPEN, replace(episode, scenario_key="team/test/0/1/4"), WEIGHTS)


def random_plays(count: int) -> list[tuple[TeamScenario, str, dict[str, str]]]:
    """Decisions and votes of every kind on generated cases, malformed and missing ones included."""
    rng = random.Random(0)
    scenarios = [*draw_scenarios(40), OPEN, DEADLOCK]
    plays = []
    for _ in range(count):
        scenario = rng.choice(scenarios)
        decision = rng.choice([*map(decide, scenario.options), decide("none", True), "junk"])
        votes = {role: rng.choice([ACCEPT, OBJECT, "maybe", ""]) for role in SEATS if rng.random() < 0.9}
        plays.append((scenario, decision, votes))
    return plays


def parsed(scenario: TeamScenario, text: str) -> Decision | None:
    return None if text == "junk" else Decision.model_validate_json(text)


@pytest.mark.parametrize("count", [num_trials(500, 5_000)])
def test_agreeing_on_a_bad_decision_earns_nothing(count: int) -> None:
    bad = 0
    for scenario, decision, _ in random_plays(count):
        if decision_value(scenario, parsed(scenario, decision)) == 0:
            bad += 1
            assert play(scenario, decision, everybody(ACCEPT)).reward <= 0
    assert bad > 0.4 * count


@pytest.mark.parametrize("count", [num_trials(1000, 5_000)])
def test_no_votes_make_a_worthless_decision_pay(count: int) -> None:
    for scenario, decision, votes in random_plays(count):
        verdict = play(scenario, decision, votes)
        assert verdict.value > 0 or verdict.reward <= 0
        assert -0.3 - 1e-12 <= verdict.reward <= 1


@pytest.mark.parametrize("count", [num_trials(1000, 5_000)])
def test_only_the_optimum_with_right_votes_pays_one(count: int) -> None:
    num_ones = 0
    for scenario, decision, votes in random_plays(count):
        if random.Random(str(votes)).random() < 0.5:
            chosen = parsed(scenario, decision)
            votes = {role: expert_vote(scenario, role, chosen).text for role in SEATS}
        verdict = play(scenario, decision, votes)
        is_best = verdict.value == 1 and verdict.consensus == 1
        assert (verdict.reward == 1) == is_best
        if is_best:
            num_ones += 1
            best = scenario.truth["best"]
            assert decision == (decide("none", True) if best is None else decide(best))
    assert num_ones > 0.05 * count


@pytest.mark.parametrize("count", [num_trials(300, 5_000)])
def test_order_of_roles_does_not_matter(count: int) -> None:
    for scenario, decision, votes in random_plays(count):
        turned = replace(scenario, seats={role: scenario.seats[role] for role in reversed(SEATS)})
        backwards = dict(reversed(votes.items()))
        first, second = play(scenario, decision, votes), play(turned, decision, backwards)
        assert first.reward == second.reward


@pytest.mark.parametrize("count", [num_trials(500, 5_000)])
def test_a_silent_agent_never_raises_the_reward(count: int) -> None:
    num_lower = 0
    for scenario, decision, votes in random_plays(count):
        loud = play(scenario, decision, votes).reward
        for role in votes:
            missing = {other: vote for other, vote in votes.items() if other != role}
            for silent in (missing, votes | {role: ""}):
                assert play(scenario, decision, silent).reward <= loud
                num_lower += play(scenario, decision, silent).reward < loud
    assert num_lower > 0


@pytest.mark.parametrize("count", [num_trials(100, 5_000)])
def test_a_vote_twice_counts_once(count: int) -> None:
    """Votes of anybody who holds no seat change nothing."""
    for scenario, decision, votes in random_plays(count):
        stuffed = votes | {"cto2": ACCEPT, "reconcile": ACCEPT}
        assert play(scenario, decision, votes) == play(scenario, decision, stuffed)


def test_a_malformed_decision_is_the_worst_of_its_case() -> None:
    for scenario in [*draw_scenarios(60), OPEN, DEADLOCK]:
        none = play(scenario, "junk", everybody(OBJECT)).reward
        for decision in [*map(decide, scenario.options), decide("none", True)]:
            assert none <= play(scenario, decision, {}).reward


@pytest.mark.parametrize("count", [num_trials(300, 5_000)])
@pytest.mark.parametrize("constant", [ACCEPT, OBJECT, ""])
def test_a_free_rider_never_beats_an_honest_voter(constant: str, count: int) -> None:
    """A seat that always votes the same, whatever was decided, lowers the reward or leaves it.

    Always accepting costs nothing: where a limit is broken the value is 0 whatever the votes say.
    """
    num_lower = 0
    for scenario, decision, _ in random_plays(count):
        honest = {role: expert_vote(scenario, role, parsed(scenario, decision)).text for role in SEATS}
        best = play(scenario, decision, honest).reward
        for role in SEATS:
            reward = play(scenario, decision, honest | {role: constant}).reward
            assert reward <= best
            num_lower += reward < best
    assert (num_lower > 0) == (constant != ACCEPT)
