"""Joint training: what is trained on is what was sampled, compared with what it may be compared with."""

import copy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from joint_learning import (
    CONFIG,
    SEATS,
    WEIGHTS,
    Engines,
    FaultyEngine,
    draw,
    make_learner,
    make_rows,
    play,
    rows_of,
    sets_of,
    transcripts,
)
from team_tables import CHAT
from tiny_models import same_weights, small_model, tiny_chat, weights_of

from reliability.joint.scripted_models import next_token_logprobs
from roles.errors import InfrastructureError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import PlanGame
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.reading import read_episode
from simulator.reward import score_episode
from training.learner.learner import backward_team
from training.learner.rows import TrainingRow
from training.rl.credit import shapley_values
from training.rl.records import EpisodeGroup, GroupAdvantages, ScoredGroup, SetAdvantages
from training.rl.team.algorithm import MAX_EMPTY_STEPS
from training.rl.team.play import AssessPlayer, complete_groups
from training.runs.run_errors import FaultyRunError

SHORT = CONFIG.changed(max_completion_tokens=8)  # for models that say nothing sensible


@pytest.mark.parametrize("engines", ["scripted", "real"])
def test_rows_are_exactly_what_the_role_sampled(engines: str, request: pytest.FixtureRequest) -> None:
    made: Engines = request.getfixturevalue(engines)
    learner = make_learner(CONFIG if engines == "scripted" else SHORT, scale=6.0)
    rows = make_rows(learner, play(learner, draw(3)))
    assert {role: len(of_role) for role, of_role in rows.items()} == {
        **dict.fromkeys(SEATS, 3 * 3),
        RECONCILER: 3 * 3 * 2,
    }
    sampled = transcripts(made[0])
    for role, of_role in rows.items():
        for row in of_role:
            assert row.role == role
            assert (row.token_ids, row.loss_mask, row.sampling_logprobs) in sampled[role]
            assert 0 < sum(row.loss_mask) < len(row.loss_mask)


def test_a_specialists_row_holds_its_report_and_its_vote(scripted: Engines) -> None:
    learner = make_learner()
    groups = play(learner, draw(1))
    first = groups[0].report_sets[0].first
    (row, *_) = rows_of(learner, "coo", groups)
    own = [token for token, bit in zip(row.token_ids, row.loss_mask, strict=True) if bit]
    spoken = f"{first.episode.reports['coo']}<|end|>{first.episode.votes['coo']}"
    assert tiny_chat().decode(tuple(own)) == spoken


def prompt_of(row: TrainingRow) -> tuple[int, ...]:
    return row.token_ids[: row.loss_mask.index(1)]


def test_reconcilers_are_compared_on_the_same_reports_only(scripted: Engines) -> None:
    learner = make_learner()
    groups = play(learner, draw(3))
    rows = rows_of(learner, RECONCILER, groups)
    assert len({prompt_of(row) for row in rows}) > 3  # sets of one scenario differ in their reports
    for place, (_, one) in enumerate(sets_of(groups)):
        group = rows[2 * place : 2 * place + 2]
        rewards = one.rewards
        assert len({prompt_of(row) for row in group}) == 1
        expected = [reward - statistics.fmean(rewards) for reward in rewards]
        assert [row.advantage for row in group] == pytest.approx(expected)
        for row, scored in zip(group, one.scored, strict=True):
            assert tiny_chat().decode(row.token_ids[row.loss_mask.index(1) :]) == scored.episode.decision
    assert any(row.advantage for row in rows)


def test_specialists_are_compared_across_the_sets_of_their_scenario(scripted: Engines) -> None:
    learner = make_learner()
    groups = play(learner, draw(3))
    for role in SEATS:
        rows = rows_of(learner, role, groups)
        for place in range(3):
            group, sets = rows[3 * place : 3 * place + 3], groups[place].report_sets
            assert len({prompt_of(row) for row in group}) == 1
            means = [statistics.fmean(one.rewards) for one in sets]
            expected = [mean - statistics.fmean(means) for mean in means]
            assert [row.advantage for row in group] == pytest.approx(expected, abs=1e-12)
        assert any(row.advantage for row in rows)


def test_rewards_are_the_verifiers_and_replays_take_the_first_ones_consensus(scripted: Engines) -> None:
    learner = make_learner()
    for scenario, one in sets_of(play(learner, draw(3))):
        whole = score_episode(scenario, one.first.episode, WEIGHTS)
        assert one.first.verdict == whole
        for scored in one.scored[1:]:
            verdict, alone = scored.verdict, score_episode(scenario, scored.episode, WEIGHTS)
            assert (verdict.value, verdict.unresolved) == (alone.value, alone.unresolved)
            bonus = (1 + 0.25 * whole.consensus) / 1.25
            expected = verdict.value * bonus - 0.2 * verdict.unresolved - 0.1 * verdict.escalation
            assert verdict.reward == pytest.approx(expected)


def test_an_update_takes_its_own_gradient_only_scaled_down_to_the_limit(scripted: Engines) -> None:
    """Nothing of the step before is left in it."""
    learner = make_learner(CONFIG.changed(max_grad_norm=0.001))
    rows = make_rows(learner, play(learner, draw(3)))["cost"]
    model = learner.models["cost"]
    learner.updater.update_all({"cost": rows[:3]})
    twin = copy.deepcopy(model)
    twin.zero_grad()
    backward_team(twin, {rows[3].role: rows[3:]}, learner.config)
    expected = torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None])
    learner.updater.update_all({"cost": rows[3:]})
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert float(expected.norm()) > 0.001
    assert torch.allclose(found, expected * 0.001 / expected.norm(), atol=1e-7)


@pytest.mark.parametrize(
    "lost",
    [
        "marl/0/episodes/1.2/",  # one full episode of scenario 1
        "marl/0/decisions/5.0/",  # one more decision on a set of scenario 1
    ],
)
def test_a_lost_episode_takes_its_whole_scenario_out_and_is_never_scored(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Sessions are numbered by place: episodes by scenario and repeat, decisions by set (3 a scenario)."""
    scenarios = draw(3)
    learner = make_learner()
    healthy = play(learner, scenarios)
    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(lambda session: session.startswith(lost)))
    played = learner.play(scenarios)
    groups = learner.scorer.score(played)
    assert groups == [healthy[0], healthy[2]]
    metrics = learner.learn(played)
    assert metrics["sets"] == 3 * 2
    survivors = [reward for _, one in sets_of(groups) for reward in one.rewards]
    assert metrics["team_reward"] == pytest.approx(statistics.fmean(survivors))


def test_where_every_episode_is_lost_nothing_is_learnt(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(lambda session: True))
    assert learner.step(draw(2)) == {"sets": 0.0}


def test_steps_without_any_whole_group_end_the_run(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead engine must not count on: untrained weights would be published."""
    learner, resumed = make_learner(), make_learner()
    learner.step(draw(2))
    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(lambda session: True))
    for _ in range(MAX_EMPTY_STEPS - 1):
        learner.step(draw(2))
    assert "2 of 2 groups left out" in caplog.text
    resumed.load_state(learner.state())
    for one in (learner, resumed):
        with pytest.raises(FaultyRunError, match="5 joint steps in a row had no whole group"):
            one.step(draw(2))
    with pytest.raises(InfrastructureError, match="2 of 2 episodes were lost"):
        learner.validate(draw(2))


def test_completions_that_other_weights_sampled_are_not_learnt_from(scripted: Engines) -> None:
    """As where a server answers for one adapter with another."""
    learner, other = make_learner(), make_learner()
    sound = learner.step(draw(2))
    assert 0 <= sound["mismatch_call/cost"] <= sound["mismatch_max/cost"] < 1e-3
    other.updater.actors = {**other.models, "cost": small_model(9, 8.0)}
    with pytest.raises(InfrastructureError, match=r"by \d+\.\d+ nats per token in a completion of cost"):
        other.step(draw(2))


def test_groups_with_a_lost_episode_are_left_out(scripted: Engines) -> None:
    first, second = make_learner().play(draw(2))
    (one, *others), lost = first.report_sets, replace(first.report_sets[0].episodes[1], error="worker lost")
    spoilt = replace(first, report_sets=(*others, replace(one, episodes=(one.episodes[0], lost))))
    assert complete_groups([first, second]) == [first, second]
    assert complete_groups([spoilt, second]) == [second]


def test_without_any_advantage_the_weights_stay_bit_identical(real: Engines) -> None:
    """Random weights never say anything valid: every reward is the same."""
    learner = make_learner(SHORT)
    before = {role: weights_of(model) for role, model in learner.models.items()}
    metrics = learner.step(draw(2))
    assert metrics["sets"] == 6
    for role, model in learner.models.items():
        assert metrics[f"signal/{role}"] == 0.0
        assert same_weights(before[role], weights_of(model))
        assert learner.updater.optimizers[role].state_dict()["state"] == {}


def test_a_step_with_advantages_changes_every_role(scripted: Engines) -> None:
    learner = make_learner()
    before = {role: weights_of(model) for role, model in learner.models.items()}
    metrics = learner.step(draw(3))
    for role, model in learner.models.items():
        assert 0 < metrics[f"signal/{role}"] <= 1
        assert not same_weights(before[role], weights_of(model))
        assert metrics[f"clip_fraction/{role}"] == 0.0  # on policy
        assert metrics[f"entropy/{role}"] > 0


def test_a_planted_zero_advantage_shows_as_missing_signal(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    assign = learner.credit.assign

    def plant(roles: Sequence[str], groups: Sequence[ScoredGroup]) -> dict[str, list[GroupAdvantages]]:
        level = [tuple(SetAdvantages(episodes=(0.0, 0.0)) for _ in g.report_sets) for g in groups]
        return {**assign(roles, groups), RECONCILER: level}

    monkeypatch.setattr(learner, "credit", SimpleNamespace(assign=plant, make_rows=learner.credit.make_rows))
    before = weights_of(learner.models[RECONCILER])
    metrics = learner.step(draw(3))
    assert metrics[f"signal/{RECONCILER}"] == 0.0
    assert all(metrics[f"signal/{role}"] > 0 for role in SEATS)
    assert same_weights(before, weights_of(learner.models[RECONCILER]))


def rewarded_logprob(model: Any, rows: Sequence[TrainingRow]) -> float:
    """Sum over rows of advantage times log-probability of the role's own tokens."""
    model.eval()
    total = 0.0
    for row in rows:
        predicted = next_token_logprobs(model, row.token_ids)
        own = (float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i])
        total += row.advantage * sum(own)
    return total


def test_updates_make_rewarded_decisions_more_likely(scripted: Engines) -> None:
    learner = make_learner()
    rows = make_rows(learner, play(learner, draw(3)))
    for role, model in learner.models.items():
        before = rewarded_logprob(model, rows[role])
        learner.updater.update_all({role: rows[role]})
        assert rewarded_logprob(model, rows[role]) > before + 1e-4


def test_repeated_updates_on_one_set_prefer_its_better_decision(scripted: Engines) -> None:
    """Tokens that the better decision shares with the worse cancel; those that it has alone go up."""
    learner = make_learner()
    rows = rows_of(learner, RECONCILER, play(learner, draw(3)))
    worse, better = next(
        sorted(pair, key=lambda row: row.advantage)
        for pair in zip(rows[::2], rows[1::2], strict=True)
        if pair[0].advantage != pair[1].advantage
    )
    model = learner.models[RECONCILER]

    def mean_logprob(row: TrainingRow) -> float:
        predicted = next_token_logprobs(model, row.token_ids)
        return statistics.fmean(
            float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i]
        )

    lead = mean_logprob(better) - mean_logprob(worse)
    for _ in range(5):
        learner.updater.update_all({RECONCILER: [worse, better]})
    assert mean_logprob(better) - mean_logprob(worse) > lead + 0.01


def test_the_same_seed_gives_the_same_metrics_and_weights(scripted: Engines) -> None:
    def train(seed: int) -> tuple[list[dict[str, float]], Mapping[str, torch.Tensor]]:
        learner = make_learner(seed=seed)
        metrics = [learner.step(draw(2)), learner.step(draw(4)[2:])]
        return metrics, weights_of(learner.models["cost"])

    first, again, other = train(0), train(0), train(1)
    assert first[0] == again[0]
    assert same_weights(first[1], again[1])
    assert first[0] != other[0]


def test_the_same_seed_samples_the_same_and_every_step_samples_afresh(real: Engines) -> None:
    for seed in (0, 0, 1):
        learner = make_learner(SHORT, seed=seed)
        learner.step(draw(1))
        learner.step(draw(1))
    sampled = [{completion.token_ids for _, completion in engine.calls} for engine in real]
    assert sampled[:2] == sampled[2:4]
    assert len(sampled[0] & sampled[1]) < len(sampled[0]) / 2  # an untrained model may repeat itself
    assert len(sampled[0] & sampled[4]) < len(sampled[0]) / 2
    versions = [{completion.policy_version for _, completion in engine.calls} for engine in real[:2]]
    assert versions == [{f"{role}@0" for role in ROLES}, {f"{role}@1" for role in ROLES}]


def test_offers_are_valued_by_the_verifier_and_nothing_is_generated(scripted: Engines) -> None:
    learner = make_learner(CONFIG.changed(credit__scheme="shapley"))
    groups = play(learner, draw(2))
    assert {request.session.split("/")[2] for request, _ in scripted[0].calls} == {"episodes", "decisions"}
    for scenario, one in sets_of(groups):
        found = shapley_values(scenario, read_episode(scenario, one.first.episode).table, WEIGHTS)
        assert one.counterfactual_rewards == {role: (worth,) for role, worth in found.items()}
    for role in SEATS:
        rows = rows_of(learner, role, groups)
        for group, sets in ((rows[:3], groups[0].report_sets), (rows[3:], groups[1].report_sets)):
            worths = [one.counterfactual_rewards[role][0] for one in sets]
            expected = [worth - statistics.fmean(worths) for worth in worths]
            assert [row.advantage for row in group] == pytest.approx(expected, abs=1e-12)


def test_kl_is_logged_where_it_was_measured_only(scripted: Engines) -> None:
    references = {role: small_model(place).eval() for place, role in enumerate(ROLES)}
    measured = make_learner(CONFIG.changed(loss__kl_coefficient=0.01), references=references)
    assert {f"kl/{role}" for role in ROLES} <= measured.step(draw(3)).keys()
    assert not [name for name in make_learner().step(draw(3)) if name.startswith("kl/")]


def test_kl_to_the_starting_team_is_zero_at_first_and_grows(scripted: Engines) -> None:
    config = CONFIG.changed(loss__kl_coefficient=0.1, learning_rate=0.01, adam_epsilon=1e-8)
    references = {role: small_model(place).eval() for place, role in enumerate(ROLES)}
    learner = make_learner(config, references=references)
    first, second = learner.step(draw(3)), learner.step(draw(3))
    for role in ROLES:
        assert first[f"kl/{role}"] == pytest.approx(0.0, abs=1e-5)
        assert second[f"kl/{role}"] > 1e-4


def test_own_scores_and_team_parts_are_reported(scripted: Engines) -> None:
    learner = make_learner()
    sets = sets_of(play(learner, draw(3)))
    metrics = learner.step(draw(3))
    verdicts = [scored.verdict for _, one in sets for scored in one.scored]
    for name in ("value", "unresolved", "escalation"):
        assert metrics[name] == pytest.approx(statistics.fmean(getattr(v, name) for v in verdicts))
    assert metrics["team_reward"] == pytest.approx(statistics.fmean(v.reward for v in verdicts))
    assert metrics["consensus"] == pytest.approx(
        statistics.fmean(one.first.verdict.consensus for _, one in sets)
    )
    assert all(0.3 < metrics[f"own_score/{role}"] < 1 for role in ROLES)  # half of the words are expert's


def learn_on_one_batch(
    groups: Sequence[EpisodeGroup], **options: Any
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The CTO's weights and metrics after one joint step on these groups."""
    learner = make_learner(CONFIG.changed(**options))
    metrics = learner.learn(groups)
    return {name: p.detach().clone() for name, p in learner.models["cto"].named_parameters()}, metrics


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(one[name], other[name]) for name in one)


def test_the_clip_acts_from_the_second_update_on_a_batch_on(scripted: Engines) -> None:
    """With one update every ratio is 1, so that a narrow clip and a wide one give the same weights."""
    narrow, wide = ({"loss__clip_low": clip, "loss__clip_high": clip} for clip in (0.001, 0.9))
    groups = make_learner().play(draw(3))
    once = [learn_on_one_batch(groups, **clip)[0] for clip in (narrow, wide)]
    assert not differ(*once)
    (often, metrics), (far, free) = (
        learn_on_one_batch(groups, **clip, updates_per_batch=3, learning_rate=1e-2) for clip in (narrow, wide)
    )
    assert differ(often, far)
    assert metrics["clip_fraction/cto"] > 0.05
    assert free["clip_fraction/cto"] < metrics["clip_fraction/cto"]


def test_minibatches_are_updates_on_stretches_of_the_rows(scripted: Engines) -> None:
    learner, twin = make_learner(CONFIG.changed(minibatches=3)), make_learner()
    rows = make_rows(learner, play(learner, draw(3)))
    stats = learner.updater.update(rows)
    for part in range(3):
        cut = {role: r[len(r) * part // 3 : len(r) * (part + 1) // 3] for role, r in rows.items()}
        twin.updater.update_all(cut)
    for role in learner.models:
        one, other = (dict(x.models[role].named_parameters()) for x in (learner, twin))
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert stats[role].num_rows == sum(row.has_signal for row in rows[role])
    assert learner.num_steps == 1


def test_every_decision_of_a_step_may_ask_and_is_answered() -> None:
    """Else a question is no decision in all but one of a set, and training unlearns what pays."""
    cases, make_game = draw(4), partial(PlanGame, questions=2)
    experts = oracle_team(cases, report_habit="measured", funding_habit="exact", asks=True)
    config = CONFIG.changed(max_completion_tokens=1200)
    player = AssessPlayer(config=config, chat=CHAT, roles=tuple(ROLES), make_game=make_game)
    groups = player.play(ScriptedEngine(CHAT, seeded=experts), cases, "step")
    sets = [one for group in groups for one in group.report_sets]
    assert len(sets) == 4 * CONFIG.report_sets
    assert max(len(episode.asked) for one in sets for episode in one.episodes) == 2
    for one in sets:
        first, *further = one.episodes
        assert [episode.asked for episode in further] == [first.asked] * len(further)
        assert all(episode.decision == first.decision for episode in further)
