"""Signal and noise of GRPO gradients: hand-made gradients, and a group's gradient by plain passes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import small_model

from benchmarks.roles.gradient_signal import group_gradient, half_cosine, split_signal


def test_the_common_part_of_two_gradients_is_signal_and_the_rest_is_noise() -> None:
    signal, noise, cosine = split_signal(torch.tensor([[2.0, 1.0], [2.0, -1.0]]))
    assert (signal, noise, cosine) == pytest.approx((3.0, 2.0, 0.6))  # dot product 4 - 1, squared length 5
    assert split_signal(torch.tensor([[1.0, 1.0], [1.0, -1.0]])) == pytest.approx((0.0, 2.0, 0.0))
    assert split_signal(torch.tensor([[1.0, 2.0]] * 3)) == pytest.approx((5.0, 0.0, 1.0))
    assert split_signal(torch.zeros(2, 2)) == (0.0, 0.0, 0.0)


def test_halves_are_compared_as_they_are_and_as_adam_would_go() -> None:
    """(4, 1) and (4, -1): 15 of 17 as they are; Adam's (1, 1) and (4, -1): 3 of the root of 2 x 17."""
    pair = torch.tensor([[4.0, 1.0], [4.0, -1.0]])
    assert half_cosine(pair) == pytest.approx(15 / 17)
    assert half_cosine(pair, 1e-9) == pytest.approx(3 / 34**0.5)
    assert half_cosine(pair, 1e6) == pytest.approx(15 / 17, abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_groups_gradient_is_that_of_its_own_tokens_by_their_advantage(temperature: float) -> None:
    texts = [([5, 6, 7, 8], [0, 0, 1, 1]), ([5, 6, 9, 4, 3], [0, 0, 1, 0, 1]), ([5, 6, 2], [0, 0, 1])]
    group: list[Any] = [
        SimpleNamespace(trajectory=SimpleNamespace(token_ids=tuple(ids), loss_mask=tuple(own)))
        for ids, own in texts
    ]
    advantages = torch.tensor([0.5, -0.5, 0.0])
    model = small_model()
    total = torch.zeros(())
    for (ids, own), advantage in zip(texts, advantages, strict=True):
        logprobs = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, :-1] / temperature, -1)
        taken = logprobs[range(len(ids) - 1), ids[1:]]
        total = total + advantage * (taken * torch.tensor(own[1:])).sum()
    torch.autograd.backward(total)
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    found = group_gradient(small_model(), group, advantages, temperature)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
