"""SFT on real trainer steps: the loss is over own tokens only, it falls, what is masked is nothing to it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import DIFFICULTIES, same_weights, small_model, tiny_chat, tiny_tokenizer, weights_of

from reliability.joint.scripted_models import next_token_logprobs
from roles.team import RECONCILER
from scenarios.base import Style
from training.config.model_config import ModelConfig
from training.config.run_config import DataConfig, RunConfig, SftConfig
from training.data.demonstrations import TokenRow, supervised_rows
from training.roles import sft
from training.roles.sft import TrainingSite, run_sft

CONFIG = SftConfig(batch_size=4)
PADDED = CONFIG.model_copy(update={"row_layout": "padded"})
Log = list[tuple[int, Mapping[str, float]]]


def make_rows(count: int, role: str = RECONCILER) -> list[TokenRow]:
    return list(
        supervised_rows(
            RunConfig(data=DataConfig(difficulties=DIFFICULTIES)),
            role,
            tiny_chat(),
            num_rows=count,
            first_row=0,
            seat_share=1.0,
        )
    )


def train(
    rows: Sequence[TokenRow], folder: Path, *, steps: int = 10, config: SftConfig = CONFIG, seed: int = 0
) -> tuple[Any, Log]:
    """The trained model and what was logged."""
    model, log = small_model(), Log()
    run_sft(
        model,
        tiny_tokenizer(),
        rows,
        config,
        TrainingSite(output_dir=folder, seed=seed, on_step=lambda step, metrics: log.append((step, metrics))),
        max_steps=steps,
    )
    return model, log


def own_loss(model: Any, rows: Sequence[TokenRow]) -> float:
    """Mean negative log-probability of own tokens, by plain forward passes."""
    model.eval()
    losses = []
    for row in rows:
        predicted = next_token_logprobs(model, row.token_ids)
        losses += [-float(predicted[i - 1, t]) for i, t in enumerate(row.token_ids) if row.loss_mask[i]]
    return statistics.fmean(losses)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_few_steps_lower_the_loss_on_own_tokens(tmp_path: Path, optimizer: str) -> None:
    rows = make_rows(80)
    before = own_loss(small_model(), rows[:20])
    config = CONFIG.model_copy(update={"optimizer": optimizer, "learning_rate": 0.01})
    model, log = train(rows, tmp_path, steps=20, config=config)
    assert before > math.log(len(tiny_tokenizer())) - 0.5  # an untrained model knows nothing
    assert own_loss(model, rows[:20]) < before - 1.5
    assert [step for step, _ in log] == list(range(1, 21))  # a short stage logs every step
    losses = [metrics["loss"] for _, metrics in log]
    assert statistics.fmean(losses[10:]) < statistics.fmean(losses[:10]) < before
    assert all(isinstance(value, float) for _, metrics in log for value in metrics.values())


def test_muon_takes_orthogonal_steps_and_adamw_does_not(tmp_path: Path) -> None:
    """One step at the full rate: a change's singular values are about the rate itself, from the median up.

    Directions that the batch says next to nothing of stay small: five iterations cannot lift them.
    """

    def spread(optimizer: str) -> tuple[float, float]:
        changes = {"optimizer": optimizer, "muon_learning_rate": 0.02, "batch_size": 48}
        config = CONFIG.model_copy(update=changes)  # enough rows for a gradient of full rank
        model, _ = train(make_rows(48), tmp_path, steps=1, config=config)
        name = "model.layers.0.mlp.up_proj.weight"
        values = torch.linalg.svdvals(weights_of(model)[name] - weights_of(small_model())[name]) / 0.02
        return float(values.median()), float(values.max())

    low, high = spread("muon")
    rows_per_column = 48 / 32
    assert 0.6 < low / rows_per_column**0.5 < high / rows_per_column**0.5 < 1.3
    low, high = spread("adamw")
    assert high > 2.5 * low


def test_shared_prompts_end_with_the_weights_of_the_padded_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of two passes each: the same losses and weights but for rounding."""
    monkeypatch.setattr("training.learner.rows.MIN_TRUNK", 2)
    changes = {"optimizer": "adamw", "learning_rate": 0.003, "micro_batch_size": 2}
    rows, found = [*make_rows(6), *make_rows(6, "cto")], []
    for layout in ("padded", "shared_prompt"):
        config = CONFIG.model_copy(update={**changes, "row_layout": layout})
        model, log = train(rows, tmp_path, steps=3, config=config)
        found.append((weights_of(model), log[-1][1]["loss"]))
    (padded, loss), (shared, other) = found
    assert other == pytest.approx(loss, rel=1e-5)
    validated = [sft.mean_loss(model, rows, rows_per_pass=5, share=share) for share in (False, True)]
    assert validated[1] == pytest.approx(validated[0], rel=1e-5)
    before = weights_of(small_model())
    for name, weight in padded.items():
        moved = float((weight - before[name]).abs().max())
        torch.testing.assert_close(shared[name], weight, rtol=0, atol=max(1e-6, 0.01 * moved))


def test_the_trained_loss_is_the_mean_over_own_tokens(tmp_path: Path) -> None:
    """At a rate near 0 all ten steps see the same weights; two rows of unequal length in every batch."""
    rows = [make_rows(1)[0], make_rows(1, "cto")[0]]
    assert len({sum(row.loss_mask) for row in rows}) == 2
    config = SftConfig(batch_size=2, optimizer="adamw", learning_rate=1e-12)
    _, log = train(rows * 10, tmp_path, config=config)
    losses = [own_loss(small_model(), pair) for pair in ([rows[0]] * 2, rows, [rows[1]] * 2)]
    low, high = min(losses), max(losses)
    assert low - 1e-3 <= log[0][1]["loss"] <= high + 1e-3
    _, log = train(rows[:1] * 20, tmp_path, config=config)
    assert log[0][1]["loss"] == pytest.approx(losses[0], abs=2e-3)
    everything = own_loss(
        small_model(), [replace(rows[0], loss_mask=(0, *[1] * (len(rows[0].token_ids) - 1)))]
    )
    assert log[0][1]["loss"] != pytest.approx(everything, abs=2e-3)


def with_tail(rows: Sequence[TokenRow], tail: tuple[int, ...], bit: int) -> list[TokenRow]:
    """Rows that end with an observation, which no own token can see."""
    return [
        TokenRow(token_ids=row.token_ids + tail, loss_mask=(*row.loss_mask, *[bit] * len(tail)))
        for row in rows
    ]


def test_masked_tokens_are_not_trained(tmp_path: Path) -> None:
    rows = make_rows(20)
    quiet, other = (
        train(with_tail(rows, tail, 0), tmp_path, steps=3)[0] for tail in ((7, 8, 9), (90, 91, 92))
    )
    assert same_weights(weights_of(quiet), weights_of(other))
    spoken = train(with_tail(rows, (90, 91, 92), 1), tmp_path, steps=3)[0]
    assert not same_weights(weights_of(quiet), weights_of(spoken))


def test_the_same_seed_trains_the_same_weights(tmp_path: Path) -> None:
    rows = make_rows(20)
    first, again, other = (weights_of(train(rows, tmp_path, steps=3, seed=seed)[0]) for seed in (0, 0, 1))
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_no_steps_leave_the_model_as_it_is(tmp_path: Path) -> None:
    model, log = train(make_rows(4), tmp_path, steps=0)
    assert same_weights(weights_of(model), weights_of(small_model()))
    assert log == []


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no supervised rows"):
        train([], tmp_path)


def test_a_frozen_parameter_stays(tmp_path: Path) -> None:
    model = small_model()
    model.get_input_embeddings().weight.requires_grad_(False)
    before = weights_of(model)
    run_sft(
        model,
        tiny_tokenizer(),
        make_rows(8),
        CONFIG,
        TrainingSite(output_dir=tmp_path, seed=0, on_step=lambda step, metrics: None),
        max_steps=2,
    )
    after = weights_of(model)
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    assert not same_weights(before, after)


def tool_rows(count: int, style: Style = "short") -> list[TokenRow]:
    """Demonstrations with tool observations between own words; in full style of several calls."""
    return list(
        supervised_rows(
            RunConfig(data=DataConfig(difficulties=DIFFICULTIES), model=ModelConfig(prompts=style)),
            "cost",
            tiny_chat(),
            num_rows=count,
            first_row=0,
            seat_share=0.0,
        )
    )


def test_masked_tokens_of_tool_trajectories_get_exactly_no_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of the trainer's own loss where each token is predicted: zero but before own tokens."""
    rows = tool_rows(4, "full")
    for row in rows:
        edges = sum(a != b for a, b in pairwise(row.loss_mask))
        assert edges >= 5  # prompt, own words, observation, own words, observation, answer
    model = small_model()
    seen: list[torch.Tensor] = []

    def keep(module: Any, inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(seen.append)  # type: ignore[no-untyped-call]

    model.get_decoder().norm.register_forward_hook(keep)  # what the output head reads, place by place
    batches: list[Any] = []
    compute_loss = sft.ResumableSftTrainer.compute_loss

    def note(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        batches.append({name: value.clone() for name, value in inputs.items()})
        return compute_loss(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(sft.ResumableSftTrainer, "compute_loss", note)
    run_sft(
        model,
        tiny_tokenizer(),
        rows,
        PADDED,
        TrainingSite(output_dir=tmp_path, seed=0, on_step=lambda step, metrics: None),
        max_steps=1,
    )
    (gradient,), (batch,) = seen, batches
    assert gradient.shape[:2] == batch["labels"].shape
    by_ids = {row.token_ids: row.loss_mask for row in rows}
    for ids, attention, at_place in zip(batch["input_ids"], batch["attention_mask"], gradient, strict=True):
        real = tuple(ids[attention.bool()].tolist())
        mask = [*by_ids[real][1:], 0] + [0] * (len(ids) - len(real))  # position i predicts token i + 1
        touched = at_place.abs().sum(-1)
        assert [bool(value) for value in touched != 0] == [bool(bit) for bit in mask]


def test_packed_rows_do_not_see_each_other(tmp_path: Path) -> None:
    """Two rows end to end train as two rows side by side do: same loss, same step."""
    rows = tool_rows(4)
    width = max(len(row.token_ids) for row in rows)
    config = CONFIG.model_copy(update={"optimizer": "adamw"})
    apart, log = train(rows, tmp_path, steps=1, config=config)
    assert 4 * width < 1024
    packed, packed_log = train(
        rows, tmp_path, steps=1, config=config.model_copy(update={"row_layout": "packed", "batch_size": 1})
    )
    assert packed_log[0][1]["loss"] == pytest.approx(log[0][1]["loss"], abs=1e-5)
    pairs = zip(weights_of(apart).values(), weights_of(packed).values(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)
    assert not same_weights(weights_of(packed), weights_of(small_model()))


def test_micro_batches_leave_the_step_as_it_is(tmp_path: Path) -> None:
    rows = tool_rows(4)
    whole, cut = (
        train(rows, tmp_path, steps=2, config=CONFIG.model_copy(update={"micro_batch_size": size}))[0]
        for size in (0, 1)
    )
    pairs = zip(weights_of(whole).values(), weights_of(cut).values(), strict=True)
    assert all(torch.allclose(one, other, atol=2e-4) for one, other in pairs)


def test_validation_keeps_the_best_weights_and_stops(tmp_path: Path) -> None:
    """At a rate that destroys, validation loss rises: early weights are the best and patience ends it."""
    rows, held_out = tool_rows(40), tool_rows(46)[40:]
    config = CONFIG.model_copy(
        update={"optimizer": "adamw", "learning_rate": 1.0, "validate_every": 2, "patience": 2}
    )
    model, log = small_model(), Log()
    step = run_sft(
        model,
        tiny_tokenizer(),
        rows,
        config,
        TrainingSite(output_dir=tmp_path, seed=0, on_step=lambda at, metrics: log.append((at, metrics))),
        max_steps=30,
        validation_rows=held_out,
    )
    losses = {at: row["validation/loss"] for at, row in log if "validation/loss" in row}
    assert losses[0] == pytest.approx(own_loss(small_model(), held_out), abs=1e-4)
    best = min(losses, key=lambda at: losses[at])
    assert step == best < max(losses) == best + 4 < 30
    assert own_loss(model, held_out) == pytest.approx(losses[best], abs=1e-4)


def test_validation_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none to validate on"):
        train(make_rows(4), tmp_path, config=CONFIG.model_copy(update={"validate_every": 2}))
