"""Joint training on governed episodes: one world per case, what a course of plans was worth, its credit."""

import asyncio
import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from joint_learning import (
    CONFIG,
    WEIGHTS,
    Engines,
    FaultyEngine,
    draw,
    make_learner,
    play,
    rows_of,
    transcripts,
)
from tiny_models import same_weights, tiny_chat, weights_of

from emads.reliability.joint.scripted_models import half_expert_team
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS, Decision
from scenarios.team import Seat, TeamScenario
from scenarios.world.case import weigh
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.graph.seating import Seating
from training.config.loading import load_config
from training.config.marl_config import MarlConfig
from training.joint.best_team import BestTeam
from training.joint.governed_play import play_governed_groups, play_set
from training.joint.governed_score import GovernedScorer, realise_case, realised_value
from training.joint.metrics import heard_episode, plan_metrics
from training.joint.overlap import OverlappedLearner
from training.joint.records import Plans, ScoredEpisode, ScoredGroup
from training.joint.score import reward_team

FULL = CONFIG.changed(protocol="full")
CASES = draw(7)[4:]  # where some experts' plans fail
UTILITIES = {  # limit 30, of Cost 50
    "cto": (40, {"A": 90, "B": 60, "C": 40, "D": 56}),
    "coo": (30, {"A": 90, "B": 60, "C": 40, "D": 56}),
    "risk": (20, {"A": 90, "B": 60, "C": 40, "D": 56}),
    "cost": (10, {"A": 90, "B": 54, "C": 52, "D": 56}),
}
# In world 0 of case 217 the COO loses 84 percent of A, and nothing else happens. So A breaks its limit, and
# B (5940) is best before D (5600) and C (4120), which are worth 5220 on the average.
VALUES = {"A": 0.0, "B": 1.0, "C": 0.0, "D": 380 / 720}
DRAFTS = {option: f'{{"option": "{option}", "escalate": false}}' for option in "ABCD"}
DRAFTS |= {"none": '{"option": "none", "escalate": true}', "words": "let us see"}
CARRIED = (1 + 0.25 * 0.75) / 1.25  # Cost objects wrongly to what it is asked about


def change(**options: Any) -> MarlConfig:
    return FULL.changed(**options)


def make_case() -> TeamScenario:
    facts = {
        role: {"utilities": utilities, "stakes": stakes, "limit": 50 if role == "cost" else 30}
        for role, (stakes, utilities) in UTILITIES.items()
    }
    template = draw(1)[0]
    seats = {role: Seat(brief=template.seats[role].brief, facts=facts[role]) for role in facts}
    return replace(template, index=217, options=("A", "B", "C", "D"), seats=seats, truth=weigh(facts))


def speakers() -> dict[str, SeededPolicy]:
    """Everybody reports A; Cost objects to every draft; ReconcileGPT tries something else each time."""

    def report(role: str) -> SeededPolicy:
        def speak(transcript: str, rng: random.Random) -> str:
            if "Vote." in transcript:
                return f'{{"vote": "{"object" if role == "cost" else "accept"}"}}'
            return '{"pick": "A", "flag": 1, "veto": []}'

        return speak

    def decide(transcript: str, rng: random.Random) -> str:
        first = "Execution of" not in transcript
        return DRAFTS[rng.choice("AABBD" if first else ["A", "B", "D", "none", "words"])]

    return {**{role: report(role) for role in SPECIALISTS}, RECONCILER: decide}


def make_seating(speaking: Mapping[str, SeededPolicy], stream: str) -> Seating:
    return Seating(
        team={role: role for role in ROLES},
        engine=ScriptedEngine(tiny_chat(), seeded=speaking),
        chat=tiny_chat(),
        sampling=Sampling(max_completion_tokens=60),
        stream=stream,
        max_turns=4,
        roles=ROLES,
    )


@pytest.fixture(scope="module")
def courses() -> ScoredGroup:
    """Thirty courses of the scripted case."""
    return play_courses("courses", FULL.rounds, 30)


def play_courses(stream: str, rounds: int, num_sets: int) -> ScoredGroup:
    seating = make_seating(speakers(), stream)
    groups = asyncio.run(play_governed_groups([make_case()], seating, rounds, num_sets=num_sets))
    (group,) = GovernedScorer(weights=WEIGHTS, reward=reward_team).score(groups)
    return group


def firsts(*groups: ScoredGroup) -> list[ScoredEpisode]:
    return [one.first for group in groups for one in group.report_sets]


def list_drafts(scored: ScoredEpisode) -> list[str]:
    names = {text: name for name, text in DRAFTS.items()}
    turns = scored.episode.trajectories[RECONCILER].turns
    return [names[turn.text] for turn in turns]


def expected_course(drafts: Sequence[str]) -> tuple[float, list[float]]:
    """(reward, values of the plans) by hand: what is out, malformed or `none` ends the case."""
    values: list[float] = []
    for number, draft in enumerate(drafts):
        broken = {"A": 1 / 4, "words": 1.0}.get(draft, 0.0)
        if draft in ("none", "words") or draft in drafts[:number]:
            assert number + 1 == len(drafts)
            return -0.2 * broken - 0.1, [*values, 0.0]
        values.append(VALUES[draft])
    reward = VALUES[drafts[-1]] * CARRIED - 0.2 * (drafts[-1] == "A") / 4
    return reward, values


def test_a_world_is_worth_what_its_seats_really_get() -> None:
    world = realise_case(make_case(), SimulatedOutcomes(make_case(), seed=0))
    assert world.truth["vetoes"] == {"A": ["coo"], "B": [], "C": [], "D": []}
    assert world.seats["coo"].facts["utilities"] == {"A": 16 * 90, "B": 6000, "C": 4000, "D": 5600}
    for option, value in VALUES.items():
        decision = Decision(option=option, escalate=False)
        assert realised_value(world, decision) == pytest.approx(value)
    assert realised_value(world, None) == 0.0


def test_two_options_may_turn_out_equally_best() -> None:
    case = make_case()
    facts = {
        role: {**seat.facts, "utilities": dict.fromkeys("ABCD", 60)} for role, seat in case.seats.items()
    }
    level = replace(case, truth=weigh(facts))
    for option in "ABCD":
        decision = Decision(option=option, escalate=False)
        assert realised_value(level, decision) == 1.0


def test_rewards_of_replanned_episodes_by_hand(courses: ScoredGroup) -> None:
    seen = {tuple(list_drafts(one)) for one in firsts(courses)}
    assert {("A", "B", "D"), ("A", "words"), ("A", "none"), ("A", "A"), ("B", "D"), ("D",)} <= seen
    for one in firsts(courses):
        assert one.plans is not None
        drafts = list_drafts(one)
        reward, values = expected_course(drafts)
        assert one.verdict.reward == pytest.approx(reward), drafts
        assert one.verdict.value == pytest.approx(values[-1])
        assert one.plans.values == pytest.approx(tuple(values))
        assert one.plans.of_call == tuple(range(len(drafts)))
        assert one.plans.ruled_out == tuple(drafts[:-1])
    assert min(one.verdict.reward for one in firsts(courses)) == pytest.approx(-0.3)  # a malformed draft
    metrics = plan_metrics([courses])
    by_hand = [expected_course(list_drafts(one))[1] for one in firsts(courses)]
    assert metrics["replans"] == pytest.approx(sum(len(v) - 1 for v in by_hand) / 30)
    assert metrics["replanned"] == pytest.approx(sum(len(v) > 1 for v in by_hand) / 30)
    assert metrics["first_plan_value"] == pytest.approx(sum(v[0] for v in by_hand) / 30)
    assert metrics["last_plan_value"] == pytest.approx(sum(v[-1] for v in by_hand) / 30)


def test_who_is_not_asked_has_accepted() -> None:
    """Without rounds nobody votes, and Cost has nothing to object to."""
    played = firsts(play_courses("quiet", 0, 8))
    rewards = {tuple(list_drafts(one)): one.verdict.reward for one in played}
    assert rewards[("B",)] == pytest.approx(1.0)
    assert rewards[("D",)] == pytest.approx(VALUES["D"])
    assert all(not one.episode.votes for one in played)


def share_by_hand(advantage: float, values: Sequence[float]) -> list[float]:
    moves = [abs(b - a) for a, b in zip([0.0, *values], values, strict=False)]
    if sum(moves) == 0:
        return [advantage] * len(values)
    return [advantage * len(values) * move / sum(moves) for move in moves]


def test_each_plans_drafts_have_its_share_of_the_advantage(courses: ScoredGroup) -> None:
    rows = rows_of(make_learner(FULL), RECONCILER, [courses])
    rewards = [expected_course(list_drafts(one))[0] for one in firsts(courses)]
    mean, seen = sum(rewards) / len(rewards), set()
    for one, row, reward in zip(firsts(courses), rows, rewards, strict=True):
        drafts = list_drafts(one)
        expected = share_by_hand(reward - mean, expected_course(drafts)[1])
        lengths = [len(turn.completion_ids) for turn in one.episode.trajectories[RECONCILER].turns]
        by_token = [value for value, n in zip(expected, lengths, strict=True) for _ in range(n)]
        assert row.own_advantages() == pytest.approx(by_token, abs=1e-12), drafts
        assert row.advantage == pytest.approx(reward - mean)
        seen.add(tuple(drafts))
        if drafts == ["B", "D"]:  # from 0 to 1, then to 19/36
            assert expected == pytest.approx([(reward - mean) * 72 / 53, (reward - mean) * 34 / 53])
    assert ("B", "D") in seen


@pytest.mark.parametrize("credit", ["shared", "episode", "role_normalised"])
def test_a_specialists_row_has_the_reports_advantage(courses: ScoredGroup, credit: str) -> None:
    learner = make_learner(change(credit__scheme=credit, rounds=2))  # votes, too, have the one reward
    rewards = [expected_course(list_drafts(one))[0] for one in firsts(courses)]
    centred = [reward - sum(rewards) / 30 for reward in rewards]
    deviation = (sum(value * value for value in centred) / 30) ** 0.5 + 1e-4
    scale = deviation if credit == "role_normalised" else 1.0
    rows = rows_of(learner, "coo", [courses])
    assert [row.advantage for row in rows] == pytest.approx([value / scale for value in centred])
    assert all(row.token_advantages is None for row in rows)


def test_all_sets_of_a_case_meet_one_world() -> None:
    """Whatever a set decides, an option that two of them carry out brings both the same."""
    cases, met = draw(6), dict[tuple[str, str], set[tuple[Any, ...]]]()
    num_seen, shocks = 0, set()
    for number in range(4):
        for record in asyncio.run(play_set(cases, make_seating(half_expert_team(cases), f"s/{number}"), 1)):
            assert record is not None
            assert {answer.ruling for c in record.chapters for answer in c.answers} == {"approve"}
            for chapter in record.chapters:
                if chapter.kpis:
                    key = (record.episode.scenario_key, chapter.proposal["option"])
                    met.setdefault(key, set()).add((chapter.shock, tuple(sorted(chapter.kpis.items()))))
                    shocks.add(chapter.shock)
                    num_seen += 1
    assert num_seen > len(met) + 6
    assert len(shocks) > 2
    assert all(len(outcomes) == 1 for outcomes in met.values())


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_rows_are_exactly_what_was_sampled(scripted: Engines, rounds: int) -> None:
    learner = make_learner(change(rounds=rounds))
    groups = play(learner, CASES)
    rows, sampled = learner.make_rows(groups), transcripts(scripted[0])
    plans = [one.plans for one in firsts(*groups) if one.plans is not None]
    assert any(len(one.values) > 1 for one in plans)
    assert any(len(one.of_call) > len(one.values) for one in plans) == (rounds == 2)  # a plan of two drafts
    for role, of_role in rows.items():
        assert len(of_role) == 3 * 3
        assert {(row.token_ids, row.loss_mask, row.sampling_logprobs) for row in of_role} == sampled[role]


def test_random_weights_are_played_and_handed_over(real: Engines) -> None:
    """Nothing valid is said: every case ends on the reviewer's desk, and no group has a difference."""
    learner = make_learner(change(max_completion_tokens=8), scale=6.0)
    groups = play(learner, draw(2))
    rows, sampled = learner.make_rows(groups), transcripts(real[0])
    for role, of_role in rows.items():
        assert {(row.token_ids, row.loss_mask, row.sampling_logprobs) for row in of_role} == sampled[role]
        assert not any(row.has_signal for row in of_role)
    assert all(one.verdict.reward == pytest.approx(-0.3) for one in firsts(*groups))


def test_a_fault_leaves_its_whole_case_out(scripted: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = CASES
    healthy = play(make_learner(FULL), cases)

    def fails(session: str) -> bool:
        return session.startswith("marl/0/governed/1/") and cases[1].key in session

    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(fails))
    groups = play(make_learner(FULL), cases)
    assert [group.scenario.key for group in groups] == [cases[0].key, cases[2].key]
    kept = [group for group in healthy if group.scenario.key != cases[1].key]
    assert [one.verdict for one in firsts(*groups)] == [one.verdict for one in firsts(*kept)]
    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(lambda session: True))
    learner = make_learner(FULL)
    before = weights_of(learner.models["cto"])
    assert learner.step(cases) == {"sets": 0.0}
    assert same_weights(before, weights_of(learner.models["cto"]))


def test_a_part_of_a_step_plays_as_in_the_whole(scripted: Engines) -> None:
    """Ranks divide a step's cases; each plays its own as one process would."""
    cases = CASES
    whole, part = play(make_learner(FULL), cases), play(make_learner(FULL), cases[1:], 1)
    trajectories = [one.episode.trajectories for one in firsts(*whole[1:])]
    assert [one.episode.trajectories for one in firsts(*part)] == trajectories
    assert make_learner(FULL).play([]) == []


def test_a_step_changes_every_role_and_tells_of_plans(scripted: Engines) -> None:
    learner = make_learner(FULL)
    before = {role: weights_of(model) for role, model in learner.models.items()}
    metrics = learner.step(CASES)
    for role, model in learner.models.items():
        assert metrics[f"signal/{role}"] > 0
        assert not same_weights(before[role], weights_of(model))
    assert 0 < metrics["replanned"] <= metrics["replans"] <= 3
    assert metrics["last_plan_value"] == pytest.approx(metrics["value"])


@pytest.mark.parametrize("staleness", [0, 1])
def test_two_steps_resume_exactly(scripted: Engines, staleness: int) -> None:
    config = change(max_staleness=staleness, loss__importance="token")

    def cases_of(step: int) -> list[TeamScenario]:
        return CASES[:2] if step else CASES[2:]

    whole = OverlappedLearner(make_learner(config), cases_of, 2)
    whole.step()
    whole.step()
    first = OverlappedLearner(make_learner(config), cases_of, 2)
    first.step()
    state = copy.deepcopy(first.state())
    again = OverlappedLearner(make_learner(config), cases_of, 2)
    again.load_state(state)
    again.step()
    for trainer in (whole, first, again):
        trainer.close()
    for role in ROLES:
        assert same_weights(weights_of(whole.learner.models[role]), weights_of(again.learner.models[role])), (
            role
        )
        assert not same_weights(
            weights_of(first.learner.models[role]), weights_of(again.learner.models[role])
        )


def test_remax_compares_with_the_case_played_greedily(scripted: Engines) -> None:
    learner = make_learner(change(credit__estimator="remax"))
    groups = play(learner, draw(2))
    greedy = [r for r, _ in scripted[0].calls if r.session.startswith("marl/0/greedy/")]
    assert greedy
    assert all(request.sampling.temperature == 0 for request in greedy)
    rows = iter(rows_of(learner, "cto", groups))
    for group in groups:
        assert group.greedy_reward is not None
        for one in firsts(group):
            expected = one.verdict.reward - group.greedy_reward
            assert next(rows).advantage == pytest.approx(expected, abs=1e-9)


def test_value_heads_credit_whole_courses(scripted: Engines) -> None:
    learner = make_learner(change(credit__estimator="gae"))
    before = weights_of(learner.models[RECONCILER])
    learner.step(draw(2))
    assert not same_weights(before, weights_of(learner.models[RECONCILER]))


def test_the_best_team_is_chosen_by_governed_play(scripted: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(FULL)
    best = BestTeam(learner, draw(2))
    reward = best.validate()["validation_reward"]
    calls = scripted[-1].calls
    assert {request.session.split("/")[1] for request, _ in calls} == {"governed"}
    groups = learner.player.play_greedily(learner.make_engine(), draw(2), "validation")
    rewards = [one.verdict.reward for one in firsts(*learner.scorer.score(groups))]
    assert reward == pytest.approx(sum(rewards) / 2)


def test_what_is_out_counts_as_vetoed_where_reports_are_judged(courses: ScoredGroup) -> None:
    one = next(one for one in firsts(courses) if list_drafts(one) == ["A", "D"])
    assert one.plans == Plans(values=(0.0, VALUES["D"]), of_call=(0, 1), ruled_out=("A",))
    heard = heard_episode(courses.scenario, one)
    assert all('"veto": ["A"]' in text for text in heard.reports.values())
    assert all('"veto": []' in text for text in one.episode.reports.values())
    assert heard_episode(courses.scenario, replace(one, plans=None)) == one.episode


@pytest.mark.parametrize("credit", ["difference", "cross_rescored", "hierarchical"])
def test_credit_that_needs_other_decisions_is_refused(credit: str) -> None:
    with pytest.raises(ValueError, match=f"{credit}.*protocol full.*set it to shared, episode"):
        MarlConfig().changed(protocol="full", credit__scheme=credit)
    MarlConfig().changed(protocol="assess", credit__scheme=credit)


def test_a_config_with_credit_that_protocol_full_has_not_is_told_so() -> None:
    with pytest.raises(UserError, match=r"marl.*hierarchical.*set it to shared"):
        load_config(None, ["marl.protocol=full", "marl.credit.scheme=hierarchical"])
    assert load_config(None, ["marl.protocol=full"]).marl.protocol == "full"
    assert MarlConfig().protocol == "assess"
