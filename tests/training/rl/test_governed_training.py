"""Joint training on governed episodes: one world per case, what a course of plans was worth, its credit."""

import asyncio
import copy
import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import pytest
from fast_loop import slow_except
from joint_learning import (
    CONFIG,
    WEIGHTS,
    Engines,
    FaultyEngine,
    draw,
    make_learner,
    make_rows,
    play,
    rows_of,
    transcripts,
)
from tiny_models import same_weights, tiny_chat, weights_of

from reliability.joint.scripted_models import half_expert_team
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.company.optimum import scale_worth
from scenarios.execution import look_back
from scenarios.team import PlanGame, PlayableCase, TeamScenario, generate
from scenarios.team.funding import choose_best, list_fundings
from simulator.agents.scripted_policies import oracle_team, read_table, remember_cases
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.governance import resolution
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.graph.seating import Seating
from simulator.reading import read_episode
from simulator.reward import list_right_votes
from training.config.loading import load_config
from training.config.rl_config import MarlConfig
from training.rl.credit import coalition_reward
from training.rl.hosts import serve_roles
from training.rl.loop import BestWeights
from training.rl.overlap import OverlappedLearner
from training.rl.records import EpisodeGroup, ScoredEpisode, ScoredGroup
from training.rl.team.algorithm import plan_metrics
from training.rl.team.play import play_governed_groups, play_set
from training.rl.team.score import TeamScorer

FULL = CONFIG.changed(protocol="full", max_completion_tokens=400)
CASES = draw(7)[4:]  # where some experts' plans fail
CASE = next(  # which option is run is a matter of choice, and the first plan on A meets a shock
    case
    for index in range(200)
    if (case := generate("train", 0, index, 3)).optimum is not None
    and all(case.parts_of(seat, option)[0].keeps_limit for seat in case.seats for option in case.options)
    and {True, False} <= {bool(shocks) for shocks in SimulatedOutcomes(case).world.shocks.values()}
)
CHOICES = ("A", "B", "C", "none", "words")
NUM_COURSES = 45  # one in five plans again, and each ending is among them


def change(**options: Any) -> MarlConfig:
    return FULL.changed(**options)


def speakers() -> dict[str, SeededPolicy]:
    """Experts; Cost objects to every draft; ReconcileGPT funds all it can on an option of its own choice."""
    known: list[PlayableCase] = KNOWN
    experts = oracle_team(known, report_habit="measured", funding_habit="exact")

    def object_always(transcript: str, rng: random.Random) -> str:
        is_vote = transcript.rstrip().endswith("Vote.") or "Vote.<" in transcript[-60:]
        return '{"vote": "object"}' if is_vote else experts["cost"](transcript, rng)

    def decide(transcript: str, rng: random.Random) -> str:
        choice = rng.choice(CHOICES if "Execution of" in transcript else "AABC")
        if choice == "words":
            return "let us see"
        table = read_table(transcript)
        plan = None if choice == "none" else choose_best(list_fundings(table.public, table.reports, choice))
        if plan is None:
            return '{"option": "none", "fund": [], "escalate": true}'
        fund = [offer.label for offer in plan.offers]
        return json.dumps({"option": choice, "fund": fund, "escalate": False})

    return {**experts, "cost": object_always, RECONCILER: decide}


KNOWN: list[PlayableCase] = [CASE]


def make_seating(
    speaking: Mapping[str, SeededPolicy], stream: str, known: list[PlayableCase] | None = None
) -> Seating:
    return Seating(
        team={role: role for role in TEAM_ROLES},
        engine=ScriptedEngine(tiny_chat(), seeded=speaking),
        chat=tiny_chat(),
        sampling=Sampling(max_completion_tokens=2_000),
        stream=stream,
        max_turns=4,
        roles=ROLES,
        make_game=remember_cases(KNOWN if known is None else known, partial(PlanGame, style="short")),
    )


@pytest.fixture(scope="module")
def courses() -> ScoredGroup:
    """Twelve courses of the scripted case."""
    return play_courses("courses", FULL.rounds, 12)[1]


def play_courses(stream: str, rounds: int, num_sets: int) -> tuple[EpisodeGroup, ScoredGroup]:
    seating = make_seating(speakers(), stream)
    groups = asyncio.run(play_governed_groups([CASE], seating, rounds, num_sets=num_sets))
    (group,) = TeamScorer(weights=WEIGHTS).score(groups)
    return groups[0], group


def firsts(*groups: ScoredGroup) -> list[ScoredEpisode]:
    return [one.first for group in groups for one in group.report_sets]


def list_drafts(scored: ScoredEpisode) -> list[str]:
    return [turn.text for turn in scored.episode.trajectories[RECONCILER].turns]


def test_rewards_of_replanned_episodes_by_hand() -> None:
    """From what was observed: V of what is in place, U of limits broken in the end, H of the last draft."""
    outcomes = SimulatedOutcomes(CASE, seed=0)
    back = look_back(outcomes.world)
    assert back.best is not None
    assert back.blind is not None
    group, scored = play_courses("by hand", FULL.rounds, NUM_COURSES)
    endings = set()
    for one, report_set in zip(firsts(scored), group.report_sets, strict=True):
        record = report_set.governed
        assert record is not None
        told = [chapter.observation for chapter in record.chapters if chapter.observation is not None]
        last = record.chapters[-1]
        values = [scale_worth(seen["worth"], back.blind, back.best) for seen in told]
        values = [v * (min(seen["kpis"].values()) >= 100) for v, seen in zip(values, told, strict=True)]
        if last.observation is not None:
            endings.add("carried out")
            broken = sum(kpi < 100 for kpi in last.kpis.values()) / 4
            assert (one.verdict.value, one.verdict.unresolved) == pytest.approx((values[-1], broken))
            assert one.verdict.escalation == 0.0
        elif "let us see" in list_drafts(one)[-1]:
            endings.add("malformed")
            assert (one.verdict.value, one.verdict.unresolved, one.verdict.escalation) == (0.0, 1.0, 1.0)
            assert one.verdict.reward == pytest.approx(-0.3)
        else:
            endings.add("handed over")
            assert (one.verdict.value, one.verdict.unresolved) == (0.0, 0.0)
        assert one.plans is not None
        assert one.plans.values[: last.attempt] == pytest.approx(values[: last.attempt])
        assert one.plans.values[-1] == one.verdict.value
        assert len(one.plans.of_call) == len(list_drafts(one))
        c, v = one.verdict.consensus, one.verdict.value
        by_parts = v * (1 + 0.25 * c) / 1.25 - 0.2 * one.verdict.unresolved - 0.1 * one.verdict.escalation
        assert one.verdict.reward == pytest.approx(by_parts)
    assert endings == {"carried out", "malformed", "handed over"}
    plans = [one.plans for one in firsts(scored) if one.plans is not None]
    metrics = plan_metrics([scored])
    assert metrics["replans"] == pytest.approx(sum(len(p.values) - 1 for p in plans) / NUM_COURSES)
    assert metrics["replanned"] == pytest.approx(sum(len(p.values) > 1 for p in plans) / NUM_COURSES)
    assert metrics["first_plan_value"] == pytest.approx(sum(p.values[0] for p in plans) / NUM_COURSES)
    assert metrics["last_plan_value"] == pytest.approx(sum(p.values[-1] for p in plans) / NUM_COURSES)


def test_a_scored_episode_shows_its_first_plan_on_the_case_as_it_was_drawn(courses: ScoredGroup) -> None:
    for one in firsts(courses):
        read = read_episode(CASE, one.episode)
        assert one.episode.decision in list_drafts(one)
        assert read.decision is not None
        for report in read.table.values():
            assert report is not None
            assert report.false_claims == ()


def test_who_is_not_asked_has_accepted() -> None:
    """Without rounds nobody votes, and Cost has nothing to object to."""
    played = firsts(play_courses("quiet", 0, 8)[1])
    assert all(not one.episode.votes for one in played)
    carried = [one for one in played if one.verdict.unresolved == 0 and one.verdict.value > 0]
    assert carried
    assert all(one.verdict.consensus == 1.0 for one in carried)


def share_by_hand(advantage: float, values: Sequence[float]) -> list[float]:
    moves = [abs(b - a) for a, b in zip([0.0, *values], values, strict=False)]
    if sum(moves) == 0:
        return [advantage] * len(values)
    return [advantage * len(values) * move / sum(moves) for move in moves]


def test_each_plans_drafts_have_its_share_of_the_advantage(courses: ScoredGroup) -> None:
    rows = rows_of(make_learner(FULL), RECONCILER, [courses])
    rewards = [one.verdict.reward for one in firsts(courses)]
    mean, shared = sum(rewards) / len(rewards), 0
    for one, row, reward in zip(firsts(courses), rows, rewards, strict=True):
        assert one.plans is not None
        of_plan = share_by_hand(reward - mean, one.plans.values)
        calls = [one.plans.of_call.count(number) for number in range(len(of_plan))]
        turns = one.episode.trajectories[RECONCILER].turns
        by_call = [of_plan[plan] / calls[plan] * len(turns) / len(of_plan) for plan in one.plans.of_call]
        lengths = [len(turn.completion_ids) for turn in turns]
        if all(count == 1 for count in calls):
            by_token = [value for value, n in zip(by_call, lengths, strict=True) for _ in range(n)]
            assert row.own_advantages() == pytest.approx(by_token, abs=1e-12)
            shared += len(calls) > 1
        assert row.advantage == pytest.approx(reward - mean)
    assert shared


def test_a_specialists_row_has_the_reports_advantage(courses: ScoredGroup) -> None:
    learner = make_learner(change(credit__scheme="shared", rounds=2))  # votes, too, have the one reward
    rewards = [one.verdict.reward for one in firsts(courses)]
    centred = [reward - fmean(rewards) for reward in rewards]
    rows = rows_of(learner, "coo", [courses])
    assert [row.advantage for row in rows] == pytest.approx(centred)
    assert all(row.token_advantages is None for row in rows)


def test_first_reports_and_votes_have_their_own_credit_and_what_is_written_for_a_replan_none(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(change(credit__scheme="cross_valued"))
    groups = list(play(learner, CASES))
    monkeypatch.setattr(resolution, "ROUTINE_RISK", -1)  # first drafts are voted on, too
    groups += play(learner, CASES)
    counts = dict.fromkeys(("reports that differ", "votes", "second reports"), 0)
    for role, of_role in make_rows(learner, groups).items():
        rows = iter(of_role)
        for group in groups if role != RECONCILER else ():
            case, sets = group.scenario, firsts(group)
            read = [read_episode(case, one.episode) for one in sets]
            worth = [
                fmean(
                    coalition_reward(case, {**other.table, role: own.table[role]}, case.seats, WEIGHTS)
                    for other in read
                )
                for own in read
            ]
            right = fmean(one.verdict.value for one in sets) * 0.25 / 1.25 / 4  # what it adds to the reward
            votes = [right * (role in list_right_votes(case, one)) for one in read]
            counts["reports that differ"] += max(worth) - min(worth) > 1e-9
            for one, own, vote in zip(sets, worth, votes, strict=True):
                turns, said = one.episode.trajectories[role].turns, one.episode
                texts = [turn.text for turn in turns]
                end = texts.index(said.reports[role]) + 1
                voted = texts.index(said.votes[role], end) + 1 if role in said.votes else end
                counts["votes"] += voted - end
                of_turn = [own - fmean(worth)] * end + [vote - fmean(votes)] * (voted - end)
                of_turn += [0.0] * (len(turns) - voted)
                counts["second reports"] += any("offers" in text for text in texts[voted:])
                expected = [value for value, t in zip(of_turn, turns, strict=True) for _ in t.completion_ids]
                assert next(rows).own_advantages() == pytest.approx(expected, abs=1e-12)
    assert all(counts.values()), counts


def test_all_sets_of_a_case_meet_one_world() -> None:
    """Whatever a set decides, an option that two of them carry out brings both the same."""
    cases, met = draw(6), dict[tuple[str, str], set[tuple[Any, ...]]]()
    num_seen, shocks = 0, set()
    for number in range(4):
        known: list[PlayableCase] = list(cases)
        seating = make_seating(half_expert_team(known), f"s/{number}", known)
        for record in asyncio.run(play_set(cases, seating, 1)):
            assert record is not None
            assert {answer.ruling for c in record.chapters for answer in c.answers} == {"approve"}
            for chapter in record.chapters:
                if chapter.observation is not None and chapter.attempt == 0:
                    key = (record.episode.scenario_key, chapter.proposal["option"])
                    met.setdefault(key, set()).add(tuple(chapter.observation["shocks"]))
                    shocks |= set(chapter.observation["shocks"])
                    num_seen += 1
    assert num_seen > len(met) + 3
    assert len(shocks) > 2
    assert all(len(outcomes) == 1 for outcomes in met.values())


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_rows_are_exactly_what_was_sampled(scripted: Engines, rounds: int) -> None:
    learner = make_learner(change(rounds=rounds))
    groups = play(learner, CASES)
    rows, sampled = make_rows(learner, groups), transcripts(scripted[0])
    plans = [one.plans for one in firsts(*groups) if one.plans is not None]
    assert any(len(one.values) > 1 for one in plans)
    assert all(set(one.of_call) == set(range(len(one.values))) for one in plans)
    for role, of_role in rows.items():
        assert len(of_role) == 3 * 3
        assert {(row.token_ids, row.loss_mask, row.sampling_logprobs) for row in of_role} == sampled[role]


def test_random_weights_are_played_and_handed_over(real: Engines) -> None:
    """Nothing valid is said: every case ends on the reviewer's desk, and no group has a difference."""
    learner = make_learner(change(max_completion_tokens=8), scale=6.0)
    groups = play(learner, draw(2))
    rows, sampled = make_rows(learner, groups), transcripts(real[0])
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


@pytest.mark.parametrize("staleness", slow_except([0, 1], 1))
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


def test_value_heads_credit_whole_courses(scripted: Engines) -> None:
    learner = make_learner(change(credit__estimator="gae"))
    before = weights_of(learner.models[RECONCILER])
    learner.step(draw(2))
    assert not same_weights(before, weights_of(learner.models[RECONCILER]))


def test_the_best_team_is_chosen_by_governed_play(scripted: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(FULL)
    best = BestWeights(learner, draw(2))
    reward = best.validate()["validation_reward"]
    calls = scripted[-1].calls
    assert {request.session.split("/")[1] for request, _ in calls} == {"governed"}
    engine = serve_roles(learner._open_engine(), learner.updater.actors, learner.num_steps)
    groups = learner.player.play_validation(engine, draw(2), "validation")
    rewards = [one.verdict.reward for one in firsts(*learner.scorer.score(groups))]
    assert reward == pytest.approx(sum(rewards) / 2)


def test_protocol_full_is_chosen_in_the_config() -> None:
    assert load_config(None, ["marl.protocol=full", "marl.credit.scheme=shared"]).marl.protocol == "full"
    assert MarlConfig().protocol == "assess"
