"""Tokens are drawn from the distribution of their logits, by a number of their own transcript and place."""

import pytest
import torch
from torch import Tensor

from simulator.engines import sampling
from simulator.engines.sampling import sample_tokens

CHANCES = torch.tensor([0.5, 0.0, 0.25, 0.15, 0.1, 0.0])


@pytest.fixture(params=["small", "large"], autouse=True)
def _vocabulary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for small vocabularies, with noise per token, and for large ones, with one number."""
    monkeypatch.setattr(sampling, "MOST_NOISE", 6 if request.param == "small" else 5)


def draw(logits: Tensor, temperature: float, streams: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return sample_tokens(logits, torch.full((len(logits),), temperature), streams, positions)


def test_tokens_come_as_often_as_their_chances_say_and_impossible_ones_never() -> None:
    count = 40_000
    logits = CHANCES.log().expand(count, -1)
    for streams, positions in (
        (torch.arange(count), torch.zeros(count, dtype=torch.long)),
        (torch.full((count,), 7), torch.arange(count)),
    ):
        ids, logprobs = draw(logits, 1.0, streams, positions)
        found = torch.bincount(ids, minlength=6) / count
        assert found[CHANCES == 0].tolist() == [0.0, 0.0]
        errors = (found - CHANCES).abs() / (CHANCES * (1 - CHANCES) / count).sqrt().clamp(min=1e-9)
        assert float(errors[CHANCES > 0].max()) < 4  # standard errors
        assert torch.allclose(logprobs, CHANCES[ids].log())


def test_temperature_sharpens_the_draw_and_its_log_probabilities() -> None:
    count = 40_000
    sharp = CHANCES**2 / (CHANCES**2).sum()
    ids, logprobs = draw(
        CHANCES.log().expand(count, -1), 0.5, torch.arange(count), torch.zeros(count, dtype=torch.long)
    )
    assert float((ids == 0).float().mean()) == pytest.approx(float(sharp[0]), abs=0.01)
    assert torch.allclose(logprobs, sharp[ids].log(), atol=1e-5)


def test_a_draw_depends_on_stream_and_position_and_not_on_the_other_rows() -> None:
    torch.manual_seed(0)
    logits = torch.randn(64, 6)
    streams, positions = torch.arange(64) * 977, torch.arange(64)
    whole, _ = draw(logits, 1.0, streams, positions)
    rows = [slice(i, i + 1) for i in range(64)]
    alone = [int(draw(logits[one], 1.0, streams[one], positions[one])[0]) for one in rows]
    assert whole.tolist() == alone
    assert whole.tolist() != draw(logits, 1.0, streams + 1, positions)[0].tolist()
    assert whole.tolist() != draw(logits, 1.0, streams, positions + 1)[0].tolist()


def test_some_rows_are_drawn_at_a_time_and_pick_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a whole batch over a large vocabulary, in float64, it would take more than the model."""
    made: list[int] = []
    draw_noise = sampling.uniform_noise

    def note(streams: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
        made.append(len(streams))
        return draw_noise(streams, positions, vocab_size)

    monkeypatch.setattr(sampling, "uniform_noise", note)
    given = (torch.randn(7, 6), torch.ones(7), torch.arange(7), torch.arange(7))
    whole = sample_tokens(*given)
    monkeypatch.setattr(sampling, "NUMBERS_AT_ONCE", 13)
    parts = sample_tokens(*given)
    assert made == [7, 2, 2, 2, 1]
    assert torch.equal(whole[0], parts[0])


def test_temperature_0_takes_the_likeliest_beside_rows_that_draw() -> None:
    logits = CHANCES.log().expand(200, -1)
    temperatures = torch.tensor([0.0, 1.0]).repeat(100)
    ids, logprobs = sample_tokens(logits, temperatures, torch.arange(200), torch.arange(200))
    assert set(ids[::2].tolist()) == {0}
    assert len(set(ids[1::2].tolist())) > 1
    assert torch.allclose(logprobs, CHANCES[ids].log())


def test_logits_that_are_not_numbers_give_a_log_probability_that_is_none() -> None:
    ids, logprobs = draw(torch.full((2, 6), torch.nan), 1.0, torch.arange(2), torch.arange(2))
    assert bool(((ids >= 0) & (ids < 6)).all())
    assert bool(logprobs.isnan().all())
