"""Rows end to end, shared prompts, logits in pieces: the same losses and gradients as rows by themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import small_model, tiny_tokenizer
from training_rows import backward_role, make_rows
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from reliability.joint.scripted_models import next_token_logprobs
from roles.errors import UserError
from training.config.rl_config import MarlConfig
from training.learner.learner import LossStats, MismatchSums, call_weights, ratios_of
from training.learner.row_attention import RowLayout, Segment
from training.learner.rows import (
    LayoutName,
    TrainingRow,
    join_rows,
    make_batches,
    pad_rows,
    share_between_plans,
    spread_over_plans,
)
from training.learner.token_logprobs import token_logprobs

CONFIG = MarlConfig().changed(loss__clip_low=0.2, loss__clip_high=0.3)
Gradients = dict[str, torch.Tensor]


def llama_model() -> Any:
    """Grouped-query attention, untied head: another architecture than the tiny model's."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(8.0)
    return model.eval()


MODELS = {"qwen3": lambda: small_model(0, 8.0).eval(), "llama": llama_model}


def learn(model: Any, rows: Sequence[TrainingRow], **options: Any) -> tuple[LossStats, Gradients]:
    model.zero_grad()
    stats = backward_role(model, rows, CONFIG.changed(**options))
    return stats, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gap(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 16_384])
def test_layout_and_cuts_change_nothing(architecture: str, micro_batch_tokens: int) -> None:
    model = MODELS[architecture]()
    rows = make_rows(model, [3, 1, 4])
    expected, gradients = learn(model, rows, memory__row_layout="padded")
    options = {"memory__row_layout": "shared_prompt", "memory__micro_batch_tokens": micro_batch_tokens}
    for order in (rows, rows[::-1]):
        stats, found = learn(model, order, **options)
        assert stats.loss == pytest.approx(expected.loss, abs=1e-5)
        assert (stats.num_rows, stats.num_tokens) == (expected.num_rows, expected.num_tokens)
        assert stats.entropy == pytest.approx(expected.entropy, rel=1e-4)
        assert gap(found, gradients) < 2e-5 < 1e-3 * max(float(g.abs().max()) for g in gradients.values())


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("logit_rows", [1, 7, 1000])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logits_in_pieces_change_nothing(architecture: str, logit_rows: int, temperature: float) -> None:
    model = MODELS[architecture]()
    rows = make_rows(model, [2, 3])
    options = {"temperature": temperature, "loss__importance": "token"}  # the clip would leave little at 0.7
    expected, gradients = learn(model, rows, **options)
    stats, found = learn(model, rows, **options, memory__logit_rows=logit_rows)
    assert stats.loss == pytest.approx(expected.loss, abs=1e-6)
    assert stats.entropy == pytest.approx(expected.entropy, rel=1e-4)
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    assert largest > 1e-3
    assert gap(found, gradients) < 1e-4 * largest


def test_a_frozen_head_gets_no_gradient_and_the_rest_the_same() -> None:
    model = llama_model()
    rows = make_rows(model, [2, 3])
    _, gradients = learn(model, rows)
    model.lm_head.requires_grad_(False)
    _, found = learn(model, rows, memory__logit_rows=4)
    assert gradients.keys() - found.keys() == {"lm_head.weight"}
    assert gap(found, {name: gradients[name] for name in found}) < 2e-5


def test_a_shared_prompt_is_computed_once() -> None:
    rows = make_rows(MODELS["qwen3"](), [3, 1, 4])
    prompts, tails = (5, 9, 13), (6, 8, 10, 12)
    once = sum(prompts) + sum(tails[:3]) + tails[0] + sum(tails)
    (shared,) = make_batches(rows, layout="shared_prompt", max_tokens=9999)
    assert shared.token_ids.numel() == once < sum(len(row.token_ids) for row in rows)
    assert shared.targets.tolist() == [
        t for row in rows for t, bit in zip(row.token_ids, row.loss_mask, strict=True) if bit
    ]


def begin(row: TrainingRow, trunk: Sequence[int]) -> TrainingRow:
    """The row after some more tokens of prompt."""
    nothing = (0,) * len(trunk)
    return replace(
        row,
        token_ids=(*trunk, *row.token_ids),
        loss_mask=(*nothing, *row.loss_mask),
        sampling_logprobs=(*nothing, *row.sampling_logprobs),
    )


@pytest.mark.parametrize("architecture", MODELS)
def test_what_prompts_begin_with_in_common_is_computed_once(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trunk of 7 for all but the last row, 4 further tokens for two of the groups under it."""
    monkeypatch.setattr("training.learner.rows.MIN_TRUNK", 4)
    model, trunk, branch = MODELS[architecture](), range(50, 57), range(60, 64)
    drawn = make_rows(model, [2, 1, 3, 1])
    rows = [
        *(begin(row, [*trunk, *branch]) for row in drawn[:2]),
        *(begin(row, trunk) for row in drawn[2:3]),
        *(begin(row, [*trunk, *branch]) for row in drawn[3:6]),
        *drawn[6:],
    ]
    (batch,) = make_batches(rows, layout="shared_prompt", max_tokens=9999)
    prompts, tails = (5, 9, 13, 17), (6, 8, 10)
    own = sum(tails[:2]) + tails[0] + sum(tails) + tails[0]
    assert batch.token_ids.numel() == len(trunk) + len(branch) + sum(prompts) + own
    assert sorted(row.token_ids for row in batch.rows) == sorted(row.token_ids for row in rows)
    expected, gradients = learn(model, rows)
    for limit in (40, 9999):
        stats, found = learn(
            model, rows, memory__row_layout="shared_prompt", memory__micro_batch_tokens=limit
        )
        assert stats.loss == pytest.approx(expected.loss, abs=1e-5)
        assert gap(found, gradients) < 2e-5 < 1e-3 * max(float(g.abs().max()) for g in gradients.values())


def test_batches_hold_every_row_once_and_keep_the_limit() -> None:
    rows = make_rows(MODELS["qwen3"](), [3, 1, 4])
    for layout in ("padded", "shared_prompt"):
        batches = list(make_batches(rows, layout=layout, max_tokens=45))
        held = [row for batch in batches for row in batch.rows]
        assert sorted(row.token_ids for row in held) == sorted(row.token_ids for row in rows)
        assert all(batch.token_ids.numel() <= 45 or len(batch.rows) == 1 for batch in batches)
        assert len(batches) > 1


def test_nothing_of_a_neighbour_is_seen() -> None:
    """Changing one row leaves the log-probabilities of all others bit for bit as they were."""
    model = MODELS["qwen3"]()
    rows = make_rows(model, [3, 2])
    other = replace(rows[1], token_ids=(*rows[1].token_ids[:-3], 7, 8, 9))
    before, _ = token_logprobs(model, join_rows([rows[:3], rows[3:]]))
    after, _ = token_logprobs(model, join_rows([[rows[0], other, rows[2]], rows[3:]]))
    changed = before != after
    own = [row.num_own for row in rows]
    assert changed[own[0] : own[0] + own[1]].any()
    assert not changed[: own[0]].any()
    assert not changed[own[0] + own[1] :].any()


def test_a_layout_with_a_gap_or_a_look_ahead_is_refused() -> None:
    for segments in (
        [Segment(0, 3), Segment(4, 5)],
        [Segment(0, 3, ((0, 2),))],
        [Segment(0, 0)],
    ):
        with pytest.raises(ValueError, match="segment"):
            RowLayout.of(segments, "cpu")


def test_the_model_computes_as_before_without_a_layout() -> None:
    model = MODELS["qwen3"]()
    rows = make_rows(model, [2, 2])
    before = [next_token_logprobs(model, row.token_ids) for row in rows]
    token_logprobs(model, join_rows([rows[:2], rows[2:]]))
    for row, expected in zip(rows, before, strict=True):
        assert torch.equal(next_token_logprobs(model, row.token_ids), expected)


def test_sequence_ratios_are_geometric_means_of_their_row() -> None:
    gaps = torch.tensor([0.2, 0.4, -0.3])
    ratios = ratios_of(gaps, torch.zeros(3), torch.tensor([0, 0, 1]), 2, level="sequence")
    assert ratios.log().tolist() == pytest.approx([0.3, 0.3, -0.3])
    assert ratios_of(gaps, torch.zeros(3), torch.tensor([0, 0, 1]), 2, level="token").log().tolist() == (
        pytest.approx([0.2, 0.4, -0.3])
    )


def two_calls() -> TrainingRow:
    return TrainingRow(
        role="cto",
        token_ids=(9, 3, 4, 9, 5, 6),
        loss_mask=(0, 1, 1, 0, 1, 1),
        sampling_logprobs=(0.0, -1.0, -1.0, 0.0, -1.0, -1.0),
        advantage=0.5,
    )


def test_importance_weights_per_token_and_call_are_truncated() -> None:
    batch = pad_rows([two_calls(), two_calls()])
    assert batch.call_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    now = torch.tensor([-0.9, -0.8, -1.5, -1.0, 0.0, 0.0, -1.0, -1.0])
    by_token = call_weights(now, batch, level="token", cap=1.15).log().tolist()
    limit = float(torch.tensor(1.15).log())
    assert by_token == pytest.approx([0.1, limit, -0.5, 0.0, limit, limit, 0.0, 0.0])
    by_call = call_weights(now, batch, level="call", cap=2.0).log().tolist()
    log_2 = float(torch.tensor(2.0).log())
    assert by_call == pytest.approx([0.3, 0.3, -0.5, -0.5, log_2, log_2, 0.0, 0.0])


def test_truncated_importance_weights_the_gradient_and_mismatch_is_measured() -> None:
    model = MODELS["qwen3"]()
    rows = make_rows(model, [2], shift=0.0)
    _, on_policy = learn(model, rows, loss__importance="token")
    shifted = make_rows(model, [2], shift=-0.8)  # sampled exp(0.8) times less likely than the learner says
    stats, weighted = learn(model, shifted, loss__importance="token")
    assert gap(weighted, {name: 2.0 * gradient for name, gradient in on_policy.items()}) < 1e-4
    assert stats.mismatch.mean == pytest.approx(0.8, abs=1e-4)
    assert stats.mismatch.largest == pytest.approx(0.8, abs=1e-4)
    assert stats.mismatch.kl == pytest.approx(float(torch.tensor(0.8).exp()) - 1.8, abs=1e-4)
    assert stats.mismatch.effective_share == pytest.approx(1.0, abs=1e-4)
    assert stats.mismatch.worst_call == pytest.approx(0.8, abs=1e-4)
    exact = learn(model, rows)[0].mismatch
    assert exact.mean == pytest.approx(0.0, abs=1e-5)
    assert exact.kl == pytest.approx(0.0, abs=1e-6)


def test_the_worst_call_is_that_of_the_largest_mean_gap() -> None:
    sums = MismatchSums()
    learner, engine = (
        torch.tensor([-1.0, -3.0, -0.5, -0.5, -2.0]),
        torch.tensor([-1.0, -1.0, -1.2, -1.2, -1.9]),
    )
    sums.add(learner, engine, torch.tensor([0, 0, 1, 1, 2]), 3)
    assert sums.result().worst_call == pytest.approx(1.0)  # (0 + 2) / 2 against 0.7 and 0.1
    assert sums.result().largest == pytest.approx(2.0)
    sums.add(torch.tensor([-1.5]), torch.tensor([0.0]), torch.tensor([3]), 4)
    assert sums.result().worst_call == pytest.approx(1.5)


def test_token_advantages_take_the_place_of_the_rows() -> None:
    model = MODELS["qwen3"]()
    (row,) = make_rows(model, [1])
    same = replace(row, advantage=9.0, token_advantages=tuple(row.advantage * bit for bit in row.loss_mask))
    assert gap(learn(model, [row])[1], learn(model, [same])[1]) == 0.0
    silent = replace(row, token_advantages=(0.0,) * len(row.token_ids))
    assert learn(model, [silent])[1] == {}


def test_shares_of_plans_by_hand() -> None:
    assert share_between_plans(0.4, [0.7]) == [0.4]
    # the first plan moved the value by 0.2, the second by 0.6: a quarter and three quarters, times two plans
    assert share_between_plans(0.4, [0.2, 0.8]) == pytest.approx([0.2, 0.6])
    assert share_between_plans(-0.4, [0.9, 0.9]) == pytest.approx([-0.8, 0.0])  # the re-plan changed nothing
    assert share_between_plans(0.4, [0.0, 0.0]) == [0.4, 0.4]
    assert sum(share_between_plans(0.3, [0.5, 0.1, 0.8])) / 3 == pytest.approx(0.3)


def test_each_plans_calls_get_its_advantage() -> None:
    row = spread_over_plans(two_calls(), [0, 1], [0.2, 0.6])
    assert row.token_advantages == (0.0, 0.2, 0.2, 0.0, 0.6, 0.6)
    with pytest.raises(ValueError, match="plans named"):
        spread_over_plans(two_calls(), [0], [0.2])


@pytest.mark.parametrize(
    ("loss", "weights"),
    [
        ("dapo", (1 / 20, 1 / 20)),  # 5 + 7 own tokens of these rows and 8 of one without advantage
        ("grpo", (1 / (5 * 3), 1 / (7 * 3))),  # 1 / length, 1 / rows
        ("dr_grpo", (1 / (32 * 3), 1 / (32 * 3))),  # 1 / max_completion_tokens, 1 / rows
    ],
)
def test_what_a_token_weighs_in_each_loss(loss: str, weights: tuple[float, float]) -> None:
    model = MODELS["qwen3"]()
    one, other = make_rows(model, [2], shift=0.0)
    assert (one.num_own, other.num_own) == (5, 7)
    idle = replace(one, token_ids=(*one.token_ids, 5, 6, 7), loss_mask=(*one.loss_mask, 1, 1, 1))
    idle = replace(idle, sampling_logprobs=(*one.sampling_logprobs, 0.0, 0.0, 0.0), advantage=0.0)
    stats, _ = learn(model, [one, other, idle], loss__kind=loss, max_completion_tokens=32)
    expected = -(one.advantage * 5 * weights[0] + other.advantage * 7 * weights[1])
    assert stats.loss == pytest.approx(expected, abs=1e-5)


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "divided logits": ("granite", {"logits_scaling": 8.0}),
    "multiplied logits": ("cohere", {"logit_scale": 0.25}),
    "capped logits": ("gemma2", {"head_dim": 8, "final_logit_softcapping": 3.0}),
    "no layout in its attention": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "a window": ("mistral", {"sliding_window": 8}),
    "a recurrent state": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
}


@pytest.mark.parametrize("logit_rows", [0, 4])
@pytest.mark.parametrize("layout", ["padded", "shared_prompt"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_those_of_the_models_own_pass_or_the_layout_is_refused(
    family: str, layout: LayoutName, logit_rows: int
) -> None:
    kind, settings = FAMILIES[family]
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(
        kind, **size, num_key_value_heads=2, vocab_size=97, pad_token_id=0, **settings
    )
    model = AutoModelForCausalLM.from_config(config).eval().float()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.25)
    ids = [[*range(5, 25), *(5 + (11 * n + 3 * k) % 80 for k in range(9))] for n in range(3)]
    rows = [
        TrainingRow(
            role="cto",
            token_ids=tuple(one),
            loss_mask=(0,) * 20 + (1,) * 9,
            sampling_logprobs=(0.0,) * 29,
            advantage=1.0,
        )
        for one in ids
    ]
    (batch,) = make_batches(rows, layout=layout, max_tokens=4096)
    with torch.no_grad():
        every = torch.log_softmax(model(input_ids=torch.tensor(ids)).logits.float(), -1)
        if layout != "padded" and not family.endswith("logits"):
            with pytest.raises(UserError, match="use row_layout padded"):
                token_logprobs(model, batch, logit_rows=logit_rows)
            return
        if layout != "padded" and kind == "gemma2":
            with pytest.raises(UserError, match="row_layout padded"):  # it caps its scores as well
                token_logprobs(model, batch, logit_rows=logit_rows)
            return
        found, _ = token_logprobs(model, batch, logit_rows=logit_rows)
    wanted = every[:, 19:-1].gather(2, torch.tensor(ids)[:, 20:, None]).flatten()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_masks_are_made_where_sdpa_asks_for_them_alone() -> None:
    """The varlen kernel of a GPU needs none, and those of a long batch are large."""
    layout = RowLayout.of([Segment(0, 3), Segment(3, 5, ((0, 3),))], "cpu")
    assert layout._masks == {}
    assert layout.mask(3, 3) is None
    assert layout.mask(2, 5).tolist() == [[True] * 4 + [False], [True] * 5]  # type: ignore[union-attr]
    assert list(layout._masks) == [(2, 5)]
