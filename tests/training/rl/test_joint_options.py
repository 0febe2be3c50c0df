"""Options of joint training: credit, estimators, roles that learn, several rounds."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fast_loop import slow_except
from joint_learning import (
    CONFIG,
    SEATS,
    WEIGHTS,
    Engines,
    change,
    draw,
    make_learner,
    make_rows,
    play,
    rows_of,
    sets_of,
)
from peft import LoraConfig, get_peft_model
from tiny_models import same_weights, small_model, tiny_chat, weights_of

from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from training.config.loading import load_config
from training.models.adapters import named_role_parameters
from training.rl.credit import ESTIMATORS, SCHEMES
from training.rl.loop import RLLearner
from training.rl.team.algorithm import make_team_learner


def all_weights(learner: RLLearner) -> dict[str, dict[str, torch.Tensor]]:
    return {role: weights_of(model) for role, model in learner.models.items()}


def moved(learner: RLLearner, before: Mapping[str, Mapping[str, torch.Tensor]]) -> set[str]:
    return {
        role for role, model in learner.models.items() if not same_weights(before[role], weights_of(model))
    }


@pytest.mark.parametrize("credit", SCHEMES)
def test_every_scheme_trains_every_role(scripted: Engines, credit: str) -> None:
    learner = make_learner(change(credit__scheme=credit))
    before = all_weights(learner)
    metrics = learner.step(draw(2))
    assert moved(learner, before) == set(ROLES)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(metrics[f"signal/{role}"] > 0 for role in ROLES)
    assert all(metrics[f"credit_variance/{role}"] > 0 and metrics[f"grad_norm/{role}"] > 0 for role in ROLES)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_trains_every_role(scripted: Engines, estimator: str) -> None:
    learner = make_learner(change(credit__estimator=estimator))
    before = all_weights(learner)
    metrics = learner.step(draw(2))
    assert moved(learner, before) == set(ROLES)
    assert all(math.isfinite(value) for value in metrics.values())


def test_value_heads_learn_the_reward_and_give_each_token_its_advantage(
    scripted: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.rl.critic.GAE_LAMBDA", 1.0)
    learner = make_learner(change(credit__estimator="gae"))
    rows = rows_of(learner, "cto", play(learner, draw(2)))
    assert learner.values is not None
    critic = learner.values.critics["cto"]
    credited, first = critic.credit(learner.models["cto"], rows)
    for row in credited:  # heads start at 0, so with lambda 1 every token has the reward
        assert row.own_advantages() == pytest.approx([row.own_advantages()[0]] * row.num_own)
    rewards = sorted((row.token_ids, round(row.own_advantages()[0], 9)) for row in credited)
    assert rewards == sorted((row.token_ids, round(row.advantage, 9)) for row in rows)
    for _ in range(20):
        credited, last = critic.credit(learner.models["cto"], rows)
    assert last < 0.7 * first
    assert len({round(a, 4) for row in credited for a in row.own_advantages()}) > len(rows)


def test_frozen_roles_play_and_stay(scripted: Engines) -> None:
    learner = make_learner(change(rate_factors={"cto": 0.0, RECONCILER: 0.0}))
    before = all_weights(learner)
    metrics = learner.step(draw(2))
    assert moved(learner, before) == set(ROLES) - {"cto", RECONCILER}
    assert metrics["signal/cto"] > 0


def test_roles_have_learning_rates_of_their_own() -> None:
    learner = make_learner(change(rate_factors={"cto": 0.5}))
    rates = {role: one.param_groups[0]["lr"] for role, one in learner.updater.optimizers.items()}
    assert rates == {role: CONFIG.learning_rate * (0.5 if role == "cto" else 1) for role in ROLES}


def test_rates_fall_in_a_straight_line_to_zero_unless_they_are_constant(scripted: Engines) -> None:
    falling = make_learner(change(max_steps=4, rate_schedule="linear", rate_factors={"cto": 0.4}))
    constant = make_learner(change(max_steps=4, rate_schedule="constant"))
    groups = constant.play(draw(2))
    for share in (1.0, 0.75, 0.5, 0.25):
        falling.learn(groups)
        constant.learn(groups)
        rates = {role: one.param_groups[0]["lr"] for role, one in falling.updater.optimizers.items()}
        assert rates == pytest.approx(
            {role: share * CONFIG.learning_rate * (0.4 if role == "cto" else 1) for role in ROLES}
        )
        assert constant.updater.optimizers["cto"].param_groups[0]["lr"] == CONFIG.learning_rate
    before = all_weights(falling)
    falling.learn(groups)  # past the last step nothing is learnt
    assert moved(falling, before) == set()
    resumed = make_learner(change(max_steps=4, rate_schedule="linear"))
    resumed.updater.num_steps = 3
    resumed.learn(groups)
    assert resumed.updater.optimizers["coo"].param_groups[0]["lr"] == pytest.approx(
        0.25 * CONFIG.learning_rate
    )


@pytest.mark.parametrize(
    ("schedule", "shares"), [("constant", (1 / 3, 2 / 3, 1, 1)), ("linear", (1 / 3, 0.9 * 2 / 3, 0.8, 0.7))]
)
def test_rates_rise_in_the_first_steps(scripted: Engines, schedule: str, shares: tuple[float, ...]) -> None:
    """At full rate Adam's first step, which knows one gradient, has broken a role beyond repair."""
    groups = make_learner(CONFIG).play(draw(2))
    learner = make_learner(change(max_steps=10, rate_schedule=schedule, warm_up_steps=2))
    for share in shares:
        learner.learn(groups)
        rate = learner.updater.optimizers["cto"].param_groups[0]["lr"]
        assert rate == pytest.approx(share * CONFIG.learning_rate)


def test_several_rounds_train_both_drafts_and_votes_on_every_decision(scripted: Engines) -> None:
    learner = make_learner(change(rounds=2))
    groups = play(learner, draw(4))
    sets = [one for _, one in sets_of(groups)]
    assigned = learner.credit.assign(tuple(ROLES), groups)[RECONCILER]
    flat = [of_set.episodes for of_group in assigned for of_set in of_group]
    drafts = [len(scored.episode.trajectories[RECONCILER].turns) for one in sets for scored in one.scored]
    assert max(drafts) == 2
    assert min(drafts) == 1
    rows = make_rows(learner, groups)
    assert [row.calls()[-1] + 1 for row in rows[RECONCILER]] == drafts
    assert [row.advantage for row in rows[RECONCILER]] == [a for of_set in flat for a in of_set]
    for role in SEATS:
        assert len(rows[role]) == len(sets) * CONFIG.decisions_per_set
        for place, one in enumerate(sets):
            whole, votes = rows[role][2 * place], rows[role][2 * place + 1]
            own = whole.own_advantages()
            assert own[0] == pytest.approx(whole.advantage)
            assert own[-1] == pytest.approx(flat[place][0])
            assert set(votes.own_advantages()) == {flat[place][1]}
            words = tuple(t for t, bit in zip(votes.token_ids, votes.loss_mask, strict=True) if bit)
            assert tiny_chat().decode(words).endswith(one.scored[1].episode.votes[role])
            assert one.first.episode.reports[role] not in tiny_chat().decode(words)
    before = all_weights(learner)
    learner.step(draw(4))
    assert moved(learner, before) == set(ROLES)


def adapted_team() -> dict[str, Any]:
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    names = list(ROLES)
    torch.manual_seed(0)
    model: Any = get_peft_model(small_model(), lora, adapter_name=names[0])
    for role in names[1:]:
        model.add_adapter(role, lora)
    return dict.fromkeys(names, model)


@pytest.mark.parametrize("layout", slow_except(["padded", "shared_prompt"], "shared_prompt"))
def test_adapters_on_one_base_learn_together_and_each_its_own(scripted: Engines, layout: str) -> None:
    config = change(memory__row_layout=layout, rate_factors={"risk": 0.0})
    models = adapted_team()
    learner = make_team_learner(models, config, chat=tiny_chat(), reward_weights=WEIGHTS, seed=0)
    assert len({id(one) for one in learner.updater.optimizers.values()}) == len(ROLES)
    model = models["cto"]
    before = {role: {n: p.clone() for n, p in named_role_parameters(model, role)} for role in ROLES}
    base = {n: p.clone() for n, p in model.named_parameters() if "lora_" not in n}
    metrics = learner.step(draw(2))
    after = {role: dict(named_role_parameters(model, role)) for role in ROLES}
    changed = {
        role for role in ROLES if any(not torch.equal(before[role][n], p) for n, p in after[role].items())
    }
    assert changed == set(ROLES) - {"risk"}
    assert all(torch.equal(base[n], p) for n, p in model.named_parameters() if n in base)
    assert all(metrics[f"grad_norm/{role}"] > 0 for role in changed)
    state = learner.state()
    other = make_team_learner(adapted_team(), config, chat=tiny_chat(), reward_weights=WEIGHTS, seed=0)
    other.load_state(state)
    assert other.step(draw(2)) == learner.step(draw(2))


@pytest.mark.parametrize(
    ("assignments", "parts"),
    [
        (["marl.rate_factors={ctoo: 0.0}"], ["marl.rate_factors", "'ctoo'", "did you mean 'cto'"]),
        (["marl.rate_factors={legal: 0.1}"], ["rate_factors", "'legal'"]),
        (["marl.max_staleness=1"], ["max_staleness", "set loss.importance to token or call"]),
        (
            ["marl.rate_factors={cto: 0.0, coo: 0.0, risk: 0.0, cost: 0.0, reconcile: 0.0}"],
            ["nothing would be trained"],
        ),
    ],
)
def test_contradictions_are_refused_with_a_remedy(assignments: list[str], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_config(None, assignments)
    assert [part for part in parts if part not in str(caught.value)] == []
