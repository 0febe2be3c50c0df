"""Joint training: what is trained on is what was sampled, compared with what it may be compared with."""

import asyncio
import copy
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from tiny_models import (
    RecordingEngine,
    ScriptedModelEngine,
    next_token_logprobs,
    same_weights,
    small_model,
    tiny_chat,
    weights_of,
)

from roles.errors import InfrastructureError
from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS
from scenarios.team import TeamScenario, generate
from simulator.agents.scripted_policies import oracle_team, random_team
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import SeededPolicy
from simulator.reward import TeamRewardWeights, score_episode
from training.config.run_config import MarlConfig
from training.joint import marl
from training.joint.credit.counterfactuals import leave_out
from training.joint.marl import JointLearner
from training.joint.played import PlayedSet, complete_groups, group_by_scenario
from training.learner.learner import backward_role
from training.learner.rows import TrainingRow

CONFIG = MarlConfig(
    scenarios_per_step=3,
    report_sets=3,
    decisions_per_set=2,
    credit="shared",  # the other schemes: test_joint_options.py
    learning_rate=1e-3,
    max_completion_tokens=40,
)
SHORT = CONFIG.model_copy(update={"max_completion_tokens": 8})  # for models that say nothing sensible
WEIGHTS = TeamRewardWeights()
SEATS = SPECIALISTS


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def half_expert(scenarios: Sequence[TeamScenario]) -> dict[str, SeededPolicy]:
    """Experts half of the time, well-formed nonsense otherwise: rewards differ within every group."""
    expert, monkey = oracle_team(scenarios), random_team(SEATS)

    def mix(role: str) -> SeededPolicy:
        def speak(transcript: str, rng: random.Random) -> str:
            return (expert if rng.random() < 0.5 else monkey)[role](transcript, rng)

        return speak

    return {role: mix(role) for role in ROLES}


class FaultyEngine(ScriptedModelEngine):
    """Loses the sessions that `fails` names."""

    fails: Callable[[str], bool] = staticmethod(lambda session: False)

    async def complete(self, request: CompletionRequest) -> Completion:
        if self.fails(request.session):
            await asyncio.sleep(0)
            raise InfrastructureError("worker lost")
        return await super().complete(request)


Engines = list[Any]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Joint learners play scripted words; the engines that they make are collected here."""
    engines: Engines = []

    def make(*, end_id: int, seed: int) -> ScriptedModelEngine:
        engine = FaultyEngine(half_expert(draw(8)), end_id=end_id, seed=seed)
        engines.append(engine)
        return engine

    monkeypatch.setattr(marl, "TransformersEngine", make)
    return engines


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Joint learners play on the real engine, recorded."""
    engines: Engines = []

    def make(**options: Any) -> RecordingEngine:
        engine = RecordingEngine(**options)
        engines.append(engine)
        return engine

    monkeypatch.setattr(marl, "TransformersEngine", make)
    return engines


def make_learner(
    config: MarlConfig = CONFIG, *, seed: int = 0, scale: float = 1.0, **options: Any
) -> JointLearner:
    models = {role: small_model(place, scale) for place, role in enumerate(ROLES)}
    return JointLearner(models, config, chat=tiny_chat(), reward_weights=WEIGHTS, seed=seed, **options)


def all_rows(learner: JointLearner, played: Sequence[PlayedSet]) -> dict[str, list[TrainingRow]]:
    groups = group_by_scenario(played)
    return {role: learner.rows(role, groups) for role in ROLES}


def transcripts(engine: Any) -> dict[str, set[tuple[Any, ...]]]:
    """Of every policy: (ids, own-token mask, logprobs) of each session, from the engine's own record."""
    ids: dict[tuple[str, str], tuple[int, ...]] = {}
    own: dict[tuple[str, str], dict[int, float]] = {}
    for request, completion in engine.calls:
        key, start = (request.policy, request.session), len(request.prompt_ids)
        ids[key] = request.prompt_ids + completion.token_ids
        own.setdefault(key, {}).update(zip(range(start, len(ids[key])), completion.logprobs, strict=True))
    found: dict[str, set[tuple[Any, ...]]] = {}
    for key, tokens in ids.items():
        places = range(len(tokens))
        row = (tokens, tuple(int(i in own[key]) for i in places), tuple(own[key].get(i, 0.0) for i in places))
        found.setdefault(key[0], set()).add(row)
    return found


@pytest.mark.parametrize("engines", ["scripted", "real"])
def test_rows_are_exactly_what_the_role_sampled(engines: str, request: pytest.FixtureRequest) -> None:
    made: Engines = request.getfixturevalue(engines)
    learner = make_learner(CONFIG if engines == "scripted" else SHORT, scale=6.0)
    rows = all_rows(learner, learner.play(draw(3)))
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
    (first, *_) = learner.play(draw(1))
    (row, *_) = all_rows(learner, [first] * 2)["coo"]
    own = [token for token, bit in zip(row.token_ids, row.loss_mask, strict=True) if bit]
    spoken = f"{first.episode.reports['coo']}<|end|>{first.episode.votes['coo']}"
    assert tiny_chat().decode(tuple(own)) == spoken


def prompt_of(row: TrainingRow) -> tuple[int, ...]:
    return row.token_ids[: row.loss_mask.index(1)]


def test_reconcilers_are_compared_on_the_same_reports_only(scripted: Engines) -> None:
    learner = make_learner()
    played = learner.play(draw(3))
    rows = learner.rows(RECONCILER, group_by_scenario(played))
    assert len({prompt_of(row) for row in rows}) > 3  # sets of one scenario differ in their reports
    for place, one in enumerate(played):
        group = rows[2 * place : 2 * place + 2]
        rewards = [verdict.reward for verdict in one.verdicts]
        assert len({prompt_of(row) for row in group}) == 1
        expected = [reward - statistics.fmean(rewards) for reward in rewards]
        assert [row.advantage for row in group] == pytest.approx(expected)
        for row, episode in zip(group, one.decisions, strict=True):
            assert tiny_chat().decode(row.token_ids[row.loss_mask.index(1) :]) == episode.decision
    assert any(row.advantage for row in rows)


def test_specialists_are_compared_across_the_sets_of_their_scenario(scripted: Engines) -> None:
    learner = make_learner()
    played = learner.play(draw(3))
    for role in SEATS:
        rows = learner.rows(role, group_by_scenario(played))
        for place in range(3):
            group, sets = rows[3 * place : 3 * place + 3], played[3 * place : 3 * place + 3]
            assert len({prompt_of(row) for row in group}) == 1
            means = [statistics.fmean(verdict.reward for verdict in one.verdicts) for one in sets]
            expected = [mean - statistics.fmean(means) for mean in means]
            assert [row.advantage for row in group] == pytest.approx(expected, abs=1e-12)
        assert any(row.advantage for row in rows)


def test_rewards_are_the_verifiers_and_replays_take_the_first_ones_consensus(scripted: Engines) -> None:
    learner = make_learner()
    for one in learner.play(draw(3)):
        whole = score_episode(one.scenario, one.episode, WEIGHTS)
        assert one.verdicts[0] == whole
        for episode, verdict in zip(one.decisions[1:], one.verdicts[1:], strict=True):
            alone = score_episode(one.scenario, episode, WEIGHTS)
            assert (verdict.value, verdict.unresolved) == (alone.value, alone.unresolved)
            bonus = (1 + 0.25 * whole.consensus) / 1.25
            expected = verdict.value * bonus - 0.2 * verdict.unresolved - 0.1 * verdict.escalation
            assert verdict.reward == pytest.approx(expected)


def test_an_update_takes_its_own_gradient_only_scaled_down_to_the_limit(scripted: Engines) -> None:
    """Nothing of the step before is left in it."""
    learner = make_learner(CONFIG.model_copy(update={"max_grad_norm": 0.01}))
    rows = all_rows(learner, learner.play(draw(3)))["cost"]
    model = learner.models["cost"]
    learner.update("cost", rows[:3])
    twin = copy.deepcopy(model)
    twin.zero_grad()
    backward_role(twin, rows[3:], learner.config)
    expected = torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None])
    learner.update("cost", rows[3:])
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert float(expected.norm()) > 0.01
    assert torch.allclose(found, expected * 0.01 / expected.norm(), atol=1e-6)


@pytest.mark.parametrize(
    ("credit", "lost"),
    [
        ("shared", "marl/0/episodes/1.2/"),  # one full episode of scenario 1
        ("shared", "marl/0/decisions/5.0/"),  # one more decision on a set of scenario 1
        ("difference", "marl/0/without/decisions/"),  # every counterfactual
    ],
)
def test_a_lost_episode_takes_its_whole_scenario_out_and_is_never_scored(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch, credit: str, lost: str
) -> None:
    """Sessions are numbered by place: episodes by scenario and repeat, decisions by set (3 a scenario)."""
    scenarios = draw(3)
    learner = make_learner(CONFIG.model_copy(update={"credit": credit}))
    healthy = {one.scenario.key: one for one in learner.play(scenarios)[::3]}
    monkeypatch.setattr(FaultyEngine, "fails", staticmethod(lambda session: session.startswith(lost)))
    played = learner.play(scenarios)
    kept = [] if credit == "difference" else [scenarios[0].key, scenarios[2].key]
    assert [one.scenario.key for one in played] == [key for key in kept for _ in range(3)]
    metrics = learner.step(scenarios)
    assert metrics["sets"] == 3 * len(kept)
    if kept:
        survivors = [verdict.reward for one in played for verdict in one.verdicts]
        assert metrics["team_reward"] == pytest.approx(statistics.fmean(survivors))
        assert all(one.verdicts == healthy[one.scenario.key].verdicts for one in played[::3])
    else:
        assert metrics == {"sets": 0.0}


def test_incomplete_groups_are_left_out_by_count(scripted: Engines) -> None:
    played = make_learner().play(draw(2))
    assert complete_groups(played, 3) == played
    assert complete_groups(played[1:], 3) == played[3:]
    assert complete_groups([*played[:3], *played[4:]], 3) == played[:3]


def test_without_any_advantage_the_weights_stay_bit_identical(real: Engines) -> None:
    """Random weights never say anything valid: every reward is the same."""
    learner = make_learner(SHORT)
    before = {role: weights_of(model) for role, model in learner.models.items()}
    metrics = learner.step(draw(2))
    assert metrics["sets"] == 6
    for role, model in learner.models.items():
        assert metrics[f"signal/{role}"] == 0.0
        assert same_weights(before[role], weights_of(model))
        assert learner.optimizers[role].state_dict()["state"] == {}


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
    credited = learner._decision_advantages
    monkeypatch.setattr(
        learner,
        "_decision_advantages",
        lambda groups: [[[0.0] * len(one) for one in of_group] for of_group in credited(groups)],
    )
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
    rows = all_rows(learner, learner.play(draw(3)))
    for role, model in learner.models.items():
        before = rewarded_logprob(model, rows[role])
        learner.update(role, rows[role])
        assert rewarded_logprob(model, rows[role]) > before + 1e-4


def test_repeated_updates_on_one_set_prefer_its_better_decision(scripted: Engines) -> None:
    """Tokens that the better decision shares with the worse cancel; those that it has alone go up."""
    learner = make_learner()
    rows = learner.rows(RECONCILER, group_by_scenario(learner.play(draw(3))))
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
        learner.update(RECONCILER, [worse, better])
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


def test_difference_credit_plays_every_absence(scripted: Engines) -> None:
    """The reconciler decides once more with each report left out; what is lost is the role's credit."""
    learner = make_learner(CONFIG.model_copy(update={"credit": "difference"}))
    played = learner.play(draw(2))
    prompts = [
        tiny_chat().decode(request.prompt_ids)
        for request, _ in scripted[0].calls
        if request.session.startswith("marl/0/without/")
    ]
    assert len(prompts) == 2 * 3 * 4
    for place, role in enumerate(SEATS):
        assert all(f"{role} no report" in prompt for prompt in prompts[place::4])
    for role in SEATS:
        rows = learner.rows(role, group_by_scenario(played))
        for group, sets in ((rows[:3], played[:3]), (rows[3:], played[3:])):
            gains = [statistics.fmean(v.reward for v in one.verdicts) - one.without[role] for one in sets]
            expected = [gain - statistics.fmean(gains) for gain in gains]
            assert [row.advantage for row in group] == pytest.approx(expected, abs=1e-12)


def test_leaving_a_report_out_leaves_the_others(scripted: Engines) -> None:
    (first, *_) = make_learner().play(draw(1))
    reduced = leave_out(first.episode, "risk")
    assert reduced.reports == {**first.episode.reports, "risk": ""}
    assert first.episode.reports["risk"] != ""


def test_kl_to_the_starting_team_is_zero_at_first_and_grows(scripted: Engines) -> None:
    config = CONFIG.model_copy(update={"kl_coefficient": 0.1, "learning_rate": 0.01})
    references = {role: small_model(place).eval() for place, role in enumerate(ROLES)}
    learner = make_learner(config, references=references)
    first, second = learner.step(draw(3)), learner.step(draw(3))
    for role in ROLES:
        assert first[f"kl/{role}"] == pytest.approx(0.0, abs=1e-5)
        assert second[f"kl/{role}"] > 1e-4


def test_own_scores_and_team_parts_are_reported(scripted: Engines) -> None:
    learner = make_learner()
    played = learner.play(draw(3))
    metrics = learner.step(draw(3))
    verdicts = [verdict for one in played for verdict in one.verdicts]
    for name in ("value", "unresolved", "escalation"):
        assert metrics[name] == pytest.approx(statistics.fmean(getattr(v, name) for v in verdicts))
    assert metrics["team_reward"] == pytest.approx(statistics.fmean(v.reward for v in verdicts))
    assert metrics["consensus"] == pytest.approx(
        statistics.fmean(one.verdicts[0].consensus for one in played)
    )
    assert all(0.3 < metrics[f"own_score/{role}"] < 1 for role in ROLES)  # half of the words are expert's
