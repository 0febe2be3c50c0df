"""The learner against hand numbers, plain forward passes and TRL's own loss on the same batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny_models import same_weights, small_model, tiny_tokenizer, weights_of
from training_rows import backward_role
from training_rows import make_rows as make_sampled_rows
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from reliability.joint.scripted_models import next_token_logprobs
from training.config.rl_config import MarlConfig
from training.learner.learner import backward_team, clipped_surrogate, estimate_kl
from training.learner.rows import TrainingRow, micro_batches, pad_rows
from training.learner.token_logprobs import compute_in_bf16, token_logprobs
from training.rl.credit import ESTIMATORS

CONFIG = MarlConfig().changed(loss__clip_low=0.2, loss__clip_high=0.3)
SCALE = 8.0  # of the random weights, so that the policy is far from uniform


def make_model(seed: int = 0) -> Any:
    return small_model(seed, SCALE).eval()


def make_rows(
    advantages: Sequence[float], *, model: Any = None, seed: int = 0, shift: float = 0.0
) -> list[TrainingRow]:
    """Rows of unequal length with own tokens in two stretches; sampled by `model`, `shift` nats off."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for place, advantage in enumerate(advantages):
        length = 9 + 3 * place
        ids = tuple(torch.randint(2, 200, (length,), generator=generator).tolist())
        mask = tuple(int(3 <= i < 5 or i >= 7) for i in range(length))
        logprobs = [0.0] * length
        if model is not None:
            predicted = next_token_logprobs(model, ids)
            logprobs = [float(predicted[i - 1, ids[i]]) + shift if mask[i] else 0.0 for i in range(length)]
        rows.append(
            TrainingRow(
                role="cto",
                token_ids=ids,
                loss_mask=mask,
                sampling_logprobs=tuple(logprobs),
                advantage=advantage,
            )
        )
    return rows


def gradients(
    model: Any, rows: Sequence[TrainingRow], config: MarlConfig = CONFIG, reference: Any = None
) -> dict[str, torch.Tensor]:
    model.zero_grad()
    backward_role(model, rows, config, reference=reference)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def largest_difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    assert one
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_clipped_surrogate_by_hand() -> None:
    """Ratios 1, 1.5, 1.5, 0.5 and 0.5 with the range 0.8 to 1.3."""
    ratios = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5])
    advantages = torch.tensor([2.0, 1.0, -1.0, 1.0, -1.0])
    losses, is_clipped = clipped_surrogate(ratios, advantages, clip_low=0.2, clip_high=0.3)
    # -min(r A, clip(r) A): 2; min(1.5, 1.3); min(-1.5, -1.3); min(0.5, 0.8); min(-0.5, -0.8)
    assert losses.tolist() == pytest.approx([-2.0, -1.3, 1.5, -0.5, 0.8])
    assert is_clipped.tolist() == [False, True, False, False, True]


def test_a_clipped_token_has_no_gradient_and_the_others_have_ratio_times_advantage() -> None:
    ratios = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5])
    logprobs = ratios.log().requires_grad_()
    losses, is_clipped = clipped_surrogate(
        logprobs.exp(), torch.tensor([2.0, 1.0, -1.0, 1.0, -1.0]), clip_low=0.2, clip_high=0.3
    )
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-2.0, 0.0, 1.5, -0.5, 0.0])
    assert (logprobs.grad == 0).tolist() == is_clipped.tolist()


def test_kl_k3_by_hand() -> None:
    """d = log 2 gives 2 - 1 - log 2, d = -log 2 gives 1/2 - 1 + log 2, d = 0 gives 0."""
    policy = torch.tensor([-1.0 - math.log(2), -1.0 + math.log(2), -1.0])
    estimate = estimate_kl(policy, torch.full((3,), -1.0))
    assert estimate.tolist() == pytest.approx([1 - math.log(2), math.log(2) - 0.5, 0.0], abs=1e-6)
    assert float(estimate_kl(torch.randn(1000), torch.randn(1000)).min()) >= -1e-6  # rounding near 0


def test_token_logprobs_are_those_of_the_full_softmax() -> None:
    model = make_model()
    rows = make_rows([1.0, 1.0, 1.0])
    logprobs, entropies = token_logprobs(model, pad_rows(rows))
    expected, spread = [], []
    for row in rows:
        predicted = next_token_logprobs(model, row.token_ids)
        own = [i for i, bit in enumerate(row.loss_mask) if bit]
        expected += [float(predicted[i - 1, row.token_ids[i]]) for i in own]
        spread += [float(-(predicted[i - 1].exp() * predicted[i - 1]).sum()) for i in own]
    assert logprobs.tolist() == pytest.approx(expected, abs=2e-5)
    assert entropies.tolist() == pytest.approx(spread, abs=2e-4)


def test_the_loss_is_the_mean_over_own_tokens() -> None:
    """On policy the ratio is 1, so a row's loss is minus its advantage per own token."""
    model = make_model()
    rows = make_rows([0.5, -1.0, 0.25], model=model)
    tokens = [sum(row.loss_mask) for row in rows]
    assert tokens == [4, 7, 10]
    stats = backward_role(model, rows, CONFIG)
    assert stats.loss == pytest.approx(-(0.5 * 4 - 1.0 * 7 + 0.25 * 10) / 21, abs=1e-5)
    assert (stats.num_rows, stats.num_tokens) == (3, 21)
    assert stats.clip_fraction == 0.0
    assert stats.kl is None
    assert 0 < stats.entropy < math.log(len(tiny_tokenizer()))


def test_clip_fraction_counts_tokens() -> None:
    """Sampled 1 nat less likely than now: ratio e is clipped for positive advantages, not for negative."""
    model = make_model()
    rows = make_rows([1.0, -1.0], model=model, shift=-1.0)
    assert backward_role(model, rows, CONFIG).clip_fraction == pytest.approx(4 / 11)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_ratio_is_one_on_policy_at_every_temperature(temperature: float) -> None:
    model = make_model()
    rows = []
    for row in make_rows([0.5, -1.0]):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.token_ids])).logits[0].float()
        predicted = torch.log_softmax(logits / temperature, -1)
        sampled = [float(predicted[i - 1, t]) * row.loss_mask[i] for i, t in enumerate(row.token_ids)]
        rows.append(replace(row, sampling_logprobs=tuple(sampled)))
    stats = backward_role(model, rows, CONFIG.changed(temperature=temperature))
    assert stats.clip_fraction == 0.0
    assert stats.loss == pytest.approx(-(0.5 * 4 - 1.0 * 7) / 11, abs=1e-5)


def own_logprob(model: Any, row: TrainingRow) -> float:
    predicted = next_token_logprobs(model, row.token_ids)
    return sum(float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_moves_the_sampled_tokens_with_the_sign_of_the_advantage(sign: float) -> None:
    model = make_model()
    (row,) = make_rows([sign * 0.5], model=model)
    before = own_logprob(model, row)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer.zero_grad()
    backward_role(model, [row], CONFIG)
    optimizer.step()
    assert sign * (own_logprob(model, row) - before) > 1e-3


def test_what_stands_under_the_mask_has_no_influence() -> None:
    """Sampling logprobs of prompt tokens, and masked tokens after the last own one, change nothing at all."""
    model = make_model()
    rows = make_rows([0.5, -1.0], model=model)
    expected = gradients(model, rows)
    corrupt = [
        replace(
            row,
            sampling_logprobs=tuple(
                value if bit else -7.7
                for value, bit in zip(row.sampling_logprobs, row.loss_mask, strict=True)
            ),
        )
        for row in rows
    ]
    assert largest_difference(gradients(model, corrupt), expected) == 0.0

    def with_tail(ids: tuple[int, ...]) -> list[TrainingRow]:
        return [
            replace(
                row,
                token_ids=row.token_ids + ids,
                loss_mask=(*row.loss_mask, 0, 0),
                sampling_logprobs=(*row.sampling_logprobs, 0.0, 0.0),
            )
            for row in rows
        ]

    assert largest_difference(gradients(model, with_tail((5, 6))), gradients(model, with_tail((9, 8)))) == 0.0
    assert largest_difference(gradients(model, with_tail((5, 6))), expected) < 1e-6
    own = [replace(row, loss_mask=(0, 0, 0, 1, *row.loss_mask[4:])) for row in rows]
    assert own == rows
    other = [replace(row, loss_mask=(0, 0, 1, 1, *row.loss_mask[4:])) for row in rows]
    assert largest_difference(gradients(model, other), expected) > 1e-4


@pytest.mark.parametrize("micro_batch_tokens", [1, 30, 45, 16_384])
def test_gradients_do_not_depend_on_padding_or_micro_batches(micro_batch_tokens: int) -> None:
    model = make_model()
    rows = make_rows([0.5, -1.0, 0.25, 0.8, -0.1], model=model, shift=0.1)
    whole = gradients(model, rows)
    cut = gradients(model, rows[::-1], CONFIG.changed(memory__micro_batch_tokens=micro_batch_tokens))
    assert largest_difference(cut, whole) < 1e-5 < 1e-3 * max(float(g.abs().max()) for g in whole.values())


def test_micro_batches_keep_every_row_and_the_limit() -> None:
    rows = make_rows([0.1] * 8)
    batches = list(micro_batches(rows, 60))
    assert sorted(len(row.token_ids) for batch in batches for row in batch) == [
        len(row.token_ids) for row in rows
    ]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(len(row.token_ids) for row in batch) <= 60
    # lengths 9 12 15 | 18 21 | 24 27 | 30: one more row would make 72, 72 and 90 padded tokens
    assert [len(batch) for batch in batches] == [3, 2, 2, 1]


def test_rows_without_advantage_add_nothing_yet_count_in_the_mean() -> None:
    model = make_model()
    live = make_rows([0.5, -1.0], model=model)
    idle = make_rows([0.0, 0.0, 0.0], model=model, seed=1)
    alone, diluted = gradients(model, live), gradients(model, [*live, *idle])
    share = 11 / (11 + 21)  # own tokens of the live rows
    scaled = {name: gradient * share for name, gradient in alone.items()}
    assert largest_difference(diluted, scaled) < 1e-6
    stats = backward_role(model, [*live, *idle], CONFIG)
    assert (stats.num_rows, stats.num_tokens) == (2, 11)


def test_no_advantage_at_all_leaves_no_gradient() -> None:
    model = make_model()
    model.zero_grad()
    stats = backward_role(model, make_rows([0.0, 0.0], model=model), CONFIG)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert (stats.loss, stats.num_rows, stats.num_tokens) == (0.0, 0, 0)


def test_kl_to_the_reference_enters_loss_and_gradient() -> None:
    model, reference = make_model(0), make_model(1)
    rows = make_rows([0.5, -1.0], model=model)
    config = CONFIG.changed(loss__kl_coefficient=0.3)
    expected = 0.0
    for row in rows:
        mine, theirs = (next_token_logprobs(one, row.token_ids) for one in (model, reference))
        for i, token in enumerate(row.token_ids):
            if row.loss_mask[i]:
                d = float(theirs[i - 1, token] - mine[i - 1, token])
                expected += (math.exp(d) - 1 - d) / 11
    plain = backward_role(model, rows, CONFIG)
    stats = backward_role(model, rows, config, reference=reference)
    assert stats.kl == pytest.approx(expected, rel=1e-4)
    assert stats.loss == pytest.approx(plain.loss + 0.3 * expected, rel=1e-4)
    assert backward_role(model, rows, config, reference=model).kl == pytest.approx(0.0, abs=1e-6)
    assert all(parameter.grad is None for parameter in reference.parameters())
    without, with_kl = gradients(model, rows), gradients(model, rows, config, reference)
    assert largest_difference(with_kl, without) > 1e-4


def test_a_reference_reads_a_row_once_a_step() -> None:
    """Later minibatches and epochs take what the first one kept: the same loss."""
    model, reference = make_model(0), make_model(1)
    rows, config = {"cto": make_rows([0.5, -1.0], model=model)}, CONFIG.changed(loss__kl_coefficient=0.3)
    passes: list[int] = []
    reference.get_decoder().register_forward_hook(lambda *_: passes.append(1))
    kept: dict[tuple[int, int], torch.Tensor] = {}
    found = []
    for _ in range(2):
        found += [backward_team(model, rows, config, references={"cto": reference}, kept=kept)["cto"]]
        assert passes, "the first one reads"
        passes.append(0)
    first, second = found
    assert passes[-2:] == [0, 0], "the second one does not"
    assert first == second
    assert (first.kl or 0.0) > 0


def test_kl_without_a_reference_is_refused() -> None:
    model = make_model()
    config = CONFIG.changed(loss__kl_coefficient=0.1)
    with pytest.raises(ValueError, match="needs a reference"):
        backward_role(model, make_rows([1.0]), config)


class _KeepGradients(TrainerCallback):
    def __init__(self) -> None:
        self.gradients: dict[str, torch.Tensor] = {}
        self.loss = math.nan

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        self.gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.loss = logs.get("loss", self.loss)


@pytest.mark.parametrize(
    ("loss", "scale", "level", "kl"),
    [
        ("dapo", "none", "token", None),  # the defaults: token mean over the batch, no std, no KL
        ("grpo", "group", "token", None),  # GRPO as published
        ("dr_grpo", "none", "token", None),
        ("gspo", "none", "sequence", None),
        ("dapo", "group", "token", "k3"),
        ("dapo", "none", "token", "k3"),
    ],
)
def test_loss_and_gradients_are_those_of_trls_grpo(
    tmp_path: Path, loss: Any, scale: str, level: Any, kl: str | None
) -> None:
    """One step of TRL's trainer on the same rows."""
    model, theirs = small_model(0, 4.0).eval(), small_model(0, 4.0)
    reference = small_model(0, 3.8).eval()  # near enough for an estimate of KL
    reference.save_pretrained(tmp_path / "reference")
    theirs.config._name_or_path = str(tmp_path / "reference")  # where TRL takes its reference from
    beta = 0.3 if kl else 0.0
    options = {
        "loss__kind": loss,
        "loss__kl_coefficient": beta,
        "max_completion_tokens": 64,
    }
    config = CONFIG.changed(**options)
    rewards = [1.0, 0.2, 0.0, 0.6]
    rows = make_rows([0.0] * 4, model=model)
    # one prompt of three tokens for the whole group, as TRL groups by prompt
    rows = [replace(row, token_ids=(7, 8, 9, *row.token_ids[3:])) for row in rows]
    estimate = ESTIMATORS["grpo" if scale == "group" else "dr_grpo"]
    (advantages,) = estimate([rewards], list)
    rows = [replace(row, advantage=advantage) for row, advantage in zip(rows, advantages, strict=True)]
    on_policy = []
    for row in rows:
        predicted = next_token_logprobs(model, row.token_ids)
        logprobs = [
            float(predicted[i - 1, t]) if row.loss_mask[i] else 0.0 for i, t in enumerate(row.token_ids)
        ]
        on_policy.append(replace(row, sampling_logprobs=tuple(logprobs)))

    def rollout(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        assert len(prompts) == 4
        return {
            "prompt_ids": [list(row.token_ids[:3]) for row in rows],
            "completion_ids": [list(row.token_ids[3:]) for row in rows],
            "logprobs": [list(row.sampling_logprobs[3:]) for row in on_policy],
            "env_mask": [list(row.loss_mask[3:]) for row in rows],
            "verdict": rewards,
        }

    def verdict_reward(completions: list[Any], verdict: list[float], **kwargs: Any) -> list[float | None]:
        return list(verdict)

    kept = _KeepGradients()
    trainer = GRPOTrainer(
        model=theirs,
        reward_funcs=[verdict_reward],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=64,
            beta=beta,
            use_bias_correction_kl=False,
            epsilon=CONFIG.loss.clip_low,
            epsilon_high=CONFIG.loss.clip_high,
            loss_type="grpo" if loss == "gspo" else loss,
            scale_rewards=scale,
            importance_sampling_level=level,
            max_grad_norm=0.0,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["0"]}),
        processing_class=tiny_tokenizer(),
        rollout_func=rollout,
        callbacks=[kept],
    )
    trainer.train()
    assert kept.gradients
    assert sum(row.advantage * sum(row.loss_mask) for row in rows) != 0
    for layout in ("padded", "shared_prompt"):
        laid_out = config.changed(memory__row_layout=layout, memory__logit_rows=5 * (layout != "padded"))
        model.zero_grad()
        stats = backward_role(model, on_policy, laid_out, reference=reference)
        ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        assert kept.loss == pytest.approx(stats.loss, abs=1e-5)
        assert (stats.kl is None) if beta == 0 else (stats.kl or 0.0) > 1e-3
        largest = max(float(gradient.abs().max()) for gradient in ours.values())
        assert largest > 1e-3
        assert largest_difference(kept.gradients, ours) < 1e-5


def test_the_learner_changes_no_weights_by_itself() -> None:
    model = make_model()
    before = weights_of(model)
    backward_role(model, make_rows([1.0], model=model), CONFIG)
    assert same_weights(before, weights_of(model))


@pytest.mark.parametrize("logit_rows", [0, 16])
def test_passes_in_bfloat16_teach_float32_weights_the_same(logit_rows: int) -> None:
    config = MarlConfig().changed(memory__logit_rows=logit_rows)
    plain, cast = small_model(0, 4.0), small_model(0, 4.0)
    rows = make_sampled_rows(plain, [3, 2], role="cto")
    compute_in_bf16(cast)
    seen: list[torch.dtype] = []
    projection: Any = cast.model.layers[0].mlp.gate_proj
    projection.register_forward_hook(lambda module, given, result: seen.append(result.dtype))
    losses = [backward_role(model, rows, config).loss for model in (plain, cast)]
    assert set(seen) == {torch.bfloat16}
    assert losses[0] == pytest.approx(losses[1], abs=0.05)
    for one, other in zip(plain.parameters(), cast.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert other.grad.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(one.grad.flatten(), other.grad.flatten(), 0) > 0.98
