"""SFT with every common prompt computed once: values and gradients of single rows."""

from typing import Any

import pytest
import torch
from tiny_models import small_model

from training.learner.row_attention import RowLayout
from training.learner.token_logprobs import token_logprobs
from training.roles.sft import own_logprobs

PROMPTS = ([5, 9, 11, 40, 41, 42], [7, 8])
ROWS = (
    (PROMPTS[0], [20, 21, 22]),
    (PROMPTS[1], [30]),
    (PROMPTS[0], [23, 24]),
    (PROMPTS[1], [31, 32, 33, 34]),
    (PROMPTS[0], [20, 21, 25, 26]),
)
TEXTS = [(prompt + answer, [0] * len(prompt) + [1] * len(answer)) for prompt, answer in ROWS]


def plain_logprobs(model: Any) -> torch.Tensor:
    """Every row alone, through the whole model."""
    found = []
    for prompt, answer in ROWS:
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        found.append(torch.log_softmax(logits, -1)[range(len(answer)), answer])
    return torch.cat(found)


def test_values_and_gradients_are_those_of_single_rows() -> None:
    gradients, values = [], []
    for compute in (plain_logprobs, lambda model: own_logprobs(model, TEXTS)):
        model = small_model()
        found = compute(model)
        torch.autograd.backward(found.square().sum())  # tells rows apart, whatever their order
        gradients.append([parameter.grad for parameter in model.parameters()])
        values.append(found.detach().sort().values)
    torch.testing.assert_close(values[0], values[1], rtol=1e-4, atol=1e-5)
    for own, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-5)


def test_a_common_prompt_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RowLayout] = []

    def note(model: Any, batch: Any, **options: Any) -> Any:
        seen.append(batch.layout)
        return token_logprobs(model, batch, **options)

    monkeypatch.setattr("training.roles.sft.token_logprobs", note)
    own_logprobs(small_model(), TEXTS)
    # 6 + 3 + 2 + 4 of the first prompt, 2 + 1 + 4 of the second
    assert seen[0].segments[-1].stop == 15 + 7


def test_nothing_after_the_last_own_token_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []

    def note(model: Any, batch: Any, **options: Any) -> Any:
        widths.append(batch.token_ids.numel())
        return token_logprobs(model, batch, **options)

    monkeypatch.setattr("training.roles.sft.token_logprobs", note)
    found = own_logprobs(small_model(), [([5, 9, 20, 40, 41], [0, 0, 1, 0, 0]), ([7], [0])])
    assert (len(found), widths) == (1, [3])
