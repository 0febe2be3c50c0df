"""The adapters of several roles in one pass: each role's gradients are those of its own pass."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from tiny_models import small_model, speak_by_adapters
from training_rows import backward_role, make_rows

from reliability.joint.scripted_models import next_token_logprobs
from roles.errors import UserError
from simulator.engines.adapter_names import START, adapter_of
from training.config.rl_config import MarlConfig
from training.learner.learner import backward_team
from training.learner.lora_batch import routed_roles
from training.learner.rows import join_rows, make_batches
from training.learner.token_logprobs import token_logprobs
from training.models.adapters import keep_start, named_role_parameters, role_parameters

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
        model.set_adapter(adapter_of(model, role))
        rows[role] = make_rows(model, [2, 3 - number], role=role)
    return rows


def role_gradients(model: Any, role: str) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in named_role_parameters(model, role) if p.grad is not None}


@pytest.mark.parametrize("layout", ["padded", "shared_prompt"])
@pytest.mark.parametrize("micro_batch_tokens", [50, 9999])
def test_one_pass_over_all_roles_equals_a_pass_of_each(layout: str, micro_batch_tokens: int) -> None:
    model = adapted_model()
    rows = team_rows(model)
    expected, losses = {}, {}
    for role in TEAM:
        model.zero_grad()
        model.set_adapter(adapter_of(model, role))
        losses[role] = backward_role(model, rows[role], MarlConfig()).loss
        expected[role] = role_gradients(model, role)
        assert len(expected[role]) == 2 * 7  # A and B of the seven linear layers
        assert not any(role_gradients(model, other) for other in TEAM if other != role)
    model.zero_grad()
    model.set_adapter(adapter_of(model, "coo"))  # whoever was active must not matter
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
        model.set_adapter(adapter_of(model, role))
        for row in rows[role][:2]:
            predicted = next_token_logprobs(model, row.token_ids)
            expected += [float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i]]
    assert found.tolist() == pytest.approx(expected, abs=2e-5)


def test_afterwards_the_active_adapter_speaks_again() -> None:
    model = adapted_model()
    rows = team_rows(model)
    model.set_adapter(adapter_of(model, "cto"))
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
        [row for of_role in rows.values() for row in of_role], layout="shared_prompt", max_tokens=9999
    )
    assert list(batch.role_tokens) == list(TEAM)


class Quantised(torch.nn.Module, LoraLayer):
    """What PEFT puts on a 4-bit layer: a LoRA layer that is not its `Linear`."""

    forward = LoraLinear.forward


def test_roles_on_a_quantised_base_are_routed_too() -> None:
    plain, quantised = adapted_model(), adapted_model()
    rows = team_rows(plain)
    for module in quantised.modules():
        if isinstance(module, LoraLinear):
            setattr(module, "__class__", Quantised)  # noqa: B010
    for model in (plain, quantised):
        backward_team(model, rows, CONFIG)
    for role in TEAM:
        found, expected = role_gradients(quantised, role), role_gradients(plain, role)
        assert found.keys() == expected.keys()
        assert len(found) == 2 * 7
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_adapters_on_embeddings_are_refused() -> None:
    lora = LoraConfig(r=4, target_modules=["embed_tokens"], task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(0), lora, adapter_name="cto")
    with pytest.raises(UserError, match=r"embed_tokens is of kind Embedding: set model\.lora_targets"):
        backward_role(model, make_rows(model, [2], role="cto"), CONFIG)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_kl_to_the_start_needs_no_second_base(checkpointing: bool) -> None:
    """The model with kept adapters gives the numbers and gradients that a second whole model gives."""
    config = CONFIG.changed(loss__kl_coefficient=0.5)
    model, second = adapted_model(), adapted_model()
    rows = team_rows(model)
    keep_start(model)
    with torch.no_grad():
        for role in TEAM:
            for parameter in role_parameters(model, role):
                parameter.add_(0.05)  # learnt since
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    found = backward_team(model, rows, config, references=dict.fromkeys(TEAM, model))
    gradients = {role: role_gradients(model, role) for role in TEAM}
    model.zero_grad()
    expected = backward_team(model, rows, config, references=dict.fromkeys(TEAM, second))
    for role in TEAM:
        assert found[role].kl == pytest.approx(expected[role].kl, abs=1e-9)
        assert (found[role].kl or 0.0) > 1e-3
        for name, value in role_gradients(model, role).items():
            torch.testing.assert_close(gradients[role][name], value)
    assert not any(p.grad is not None for name, p in model.named_parameters() if START in name)
    assert len({p.data_ptr() for n, p in model.named_parameters() if n.endswith("embed_tokens.weight")}) == 1
