"""The adapters of several roles in one pass: each role's gradients are those of its own pass."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import small_model, speak_by_adapters
from training_rows import make_rows

from emads.reliability.joint.scripted_models import next_token_logprobs
from training.config.marl_config import MarlConfig
from training.learner.learner import backward_role, backward_team
from training.learner.lora_batch import routed_roles
from training.learner.packing import join_rows, make_batches
from training.learner.token_logprobs import token_logprobs
from training.models.adapters import activate, named_role_parameters

CONFIG = MarlConfig().changed(memory__row_layout="shared_prompt")
TEAM = ("cto", "coo", "reconcile")


def adapted_model() -> Any:
    """Three adapters that all say something: B is not zero."""
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(0, 6.0), lora, adapter_name=TEAM[0])
    for role in TEAM[1:]:
        model.add_adapter(role, lora)
    return speak_by_adapters(model)


def team_rows(model: Any) -> dict[str, Any]:
    rows = {}
    for number, role in enumerate(TEAM):
        activate(model, role)
        rows[role] = make_rows(model, [2, 3 - number], role=role)
    return rows


def role_gradients(model: Any, role: str) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in named_role_parameters(model, role) if p.grad is not None}


@pytest.mark.parametrize("layout", ["padded", "packed", "shared_prompt"])
@pytest.mark.parametrize("micro_batch_tokens", [50, 9999])
def test_one_pass_over_all_roles_equals_a_pass_of_each(layout: str, micro_batch_tokens: int) -> None:
    model = adapted_model()
    rows = team_rows(model)
    expected, losses = {}, {}
    for role in TEAM:
        model.zero_grad()
        activate(model, role)
        losses[role] = backward_role(model, rows[role], MarlConfig()).loss
        expected[role] = role_gradients(model, role)
        assert len(expected[role]) == 2 * 7  # A and B of the seven linear layers
        assert not any(role_gradients(model, other) for other in TEAM if other != role)
    model.zero_grad()
    activate(model, "coo")  # whoever was active must not matter
    config = CONFIG.changed(memory__row_layout=layout, memory__micro_batch_tokens=micro_batch_tokens)
    stats = backward_team(model, rows, config)
    for role in TEAM:
        assert stats[role].loss == pytest.approx(losses[role], abs=1e-5)
        found = role_gradients(model, role)
        assert found.keys() == expected[role].keys()
        largest = max(float(gradient.abs().max()) for gradient in expected[role].values())
        assert max(float((found[n] - expected[role][n]).abs().max()) for n in found) < 1e-4 * largest
    assert not any(p.grad is not None for n, p in model.named_parameters() if "lora" not in n)


def test_roles_that_share_an_adapter_add_their_gradients() -> None:
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(0, 6.0), lora, adapter_name="team").eval()
    rows = {role: make_rows(model, [2], role=role) for role in ("cto", "coo")}
    backward_team(model, rows, CONFIG)
    together = role_gradients(model, "cto")
    model.zero_grad()
    for role in rows:
        backward_role(model, rows[role], CONFIG)  # gradients add up
    apart = role_gradients(model, "coo")
    assert max(float((together[n] - apart[n]).abs().max()) for n in together) < 1e-5
    assert max(float(gradient.abs().max()) for gradient in apart.values()) > 1e-3


def test_each_token_hears_its_own_role_only() -> None:
    model = adapted_model()
    rows = team_rows(model)
    batch = join_rows([rows["cto"][:2], rows["coo"][:2]])
    with torch.no_grad(), routed_roles(model, batch):
        found, _ = token_logprobs(model, batch)
    expected: list[float] = []
    for role in ("cto", "coo"):
        activate(model, role)
        for row in rows[role][:2]:
            predicted = next_token_logprobs(model, row.token_ids)
            expected += [float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i]]
    assert found.tolist() == pytest.approx(expected, abs=2e-5)


def test_afterwards_the_active_adapter_speaks_again() -> None:
    model = adapted_model()
    rows = team_rows(model)
    activate(model, "cto")
    ids = rows["cto"][0].token_ids
    before = next_token_logprobs(model, ids)
    backward_team(model, rows, CONFIG)
    assert torch.equal(next_token_logprobs(model, ids), before)


def test_scattered_tokens_of_an_adapter_are_refused() -> None:
    model = adapted_model()
    rows = team_rows(model)
    with pytest.raises(ValueError, match="do not stand together"):
        join_rows([rows["cto"][:1], rows["coo"][:1], rows["cto"][1:2]])
    (batch,) = make_batches(
        [row for of_role in rows.values() for row in of_role], layout="packed", max_tokens=9999
    )
    assert list(batch.role_tokens) == list(TEAM)
