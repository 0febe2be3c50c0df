"""GRPO with every common prompt computed once: values, entropies and gradients of the padded batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import small_model, tiny_chat, tiny_tokenizer
from torch import Tensor

from simulator.agents.solo import SoloEpisode
from training.config.grpo_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.learner.row_attention import RowLayout
from training.learner.token_logprobs import token_logprobs
from training.roles.grpo import ResumableGrpoTrainer, run_grpo
from training.roles.sft import OnStep
from training.roles.shared_prompts import completion_logprobs

PROMPTS = ([5, 9, 11, 40, 41, 42], [7, 8])
# rows in a shuffled order, as a trainer hands them over; the last one is a row that was left out
ROWS = (
    (PROMPTS[0], [20, 21, 22]),
    (PROMPTS[1], [30]),
    (PROMPTS[0], [23, 24]),
    (PROMPTS[1], [31, 32, 33, 34]),
    (PROMPTS[0], [20, 21, 25, 26]),
    ([2], [2]),
)


def pad(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, int]:
    """Prompts padded on the left and completions on the right, as TRL has them."""
    before, after = (max(len(row[part]) for row in rows) for part in (0, 1))
    ids, mask = (torch.zeros(len(rows), before + after, dtype=torch.long) for _ in range(2))
    for i, (prompt, completion) in enumerate(rows):
        stretch = slice(before - len(prompt), before + len(completion))
        ids[i, stretch] = torch.tensor(prompt + completion)
        mask[i, stretch] = 1
    return ids, mask, after


def plain_logprobs(model: Any, temperature: float) -> tuple[Tensor, Tensor]:
    """Every row alone, without padding, through the whole model."""
    values, entropies = (torch.zeros(len(ROWS), 4) for _ in range(2))
    for i, (prompt, completion) in enumerate(ROWS):
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        logprobs = torch.log_softmax(logits / temperature, -1)
        values[i, : len(completion)] = logprobs[range(len(completion)), completion]
        entropies[i, : len(completion)] = -(logprobs.exp() * logprobs).sum(-1)
    return values, entropies


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_single_rows(temperature: float) -> None:
    weights = torch.rand(len(ROWS), 4, generator=torch.Generator().manual_seed(1))
    gradients = []
    found = []
    for share in (False, True):
        model = small_model()
        if share:
            ids, mask, keep = pad(ROWS)
            values, entropies = completion_logprobs(model, ids, mask, keep, temperature=temperature)
        else:
            values, entropies = plain_logprobs(model, temperature)
        torch.autograd.backward((values * weights).sum())
        gradients.append([parameter.grad for parameter in model.parameters()])
        found.append((values.detach(), entropies.detach()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for own, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-5)


def test_a_common_prompt_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RowLayout] = []

    def note(model: Any, batch: Any, **options: Any) -> Any:
        seen.append(batch.layout)
        return token_logprobs(model, batch, **options)

    monkeypatch.setattr("training.roles.shared_prompts.token_logprobs", note)
    ids, mask, keep = pad(ROWS)
    completion_logprobs(small_model(), ids, mask, keep, temperature=1.0)
    # 6 + 3 + 2 + 4 of the first prompt, 2 + 1 + 4 of the second, 2 of the row left out
    assert seen[0].segments[-1].stop == 15 + 7 + 2


def reward(monkeypatch: pytest.MonkeyPatch, value: Callable[[SoloEpisode], float]) -> None:
    monkeypatch.setattr(
        "training.roles.rollouts.episode_reward", lambda episode, config: {"total": value(episode)}
    )


def train(model: Any, output_dir: Path, on_step: OnStep, **settings: Any) -> None:
    """GRPO of the COO, one turn per play, on as many scenarios as its steps take."""
    config = GrpoConfig().changed(prompts_per_step=2, group_size=4, max_turns=1, **settings)
    run_grpo(
        model,
        tiny_tokenizer(),
        [role_scenario("coo", "train", 0, i, (1,), "full") for i in range(2 * config.max_steps)],
        config,
        role="coo",
        chat=tiny_chat(),
        output_dir=output_dir,
        seed=0,
        on_step=on_step,
    )


@pytest.mark.parametrize(
    ("micro", "logged_alike"),
    [
        (0, ("loss", "entropy", "grad_norm", "kl")),
        (4, ("loss", "grad_norm", "kl")),  # entropy is a mean of passes' means, and passes hold other rows
    ],
)
def test_a_step_of_grpo_ends_with_the_weights_of_the_padded_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro: int, logged_alike: Sequence[str]
) -> None:
    """One micro-batch or two, KL to the start, rewards that differ: the same step but for rounding."""
    reward(monkeypatch, lambda episode: sum(episode.trajectory.token_ids) % 7 / 7)
    trained, logged = [], []
    for layout in ("padded", "shared_prompt"):
        model = small_model()
        model.save_pretrained(tmp_path / "start")
        model.config._name_or_path = str(tmp_path / "start")  # where the reference comes from
        train(
            model,
            tmp_path,
            lambda step, metrics: logged.append(metrics),
            max_steps=2,
            memory__micro_batch_size=micro,
            loss__kl_coefficient=0.1,
            learning_rate=1e-3,
            max_completion_tokens=8,
            memory__row_layout=layout,
        )
        trained.append([parameter.detach().clone() for parameter in model.parameters()])
    start = list(small_model().parameters())
    assert any(not torch.equal(a, b) for a, b in zip(trained[1], start, strict=True))
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)
    for name in logged_alike:
        for one, other in zip(logged[:2], logged[2:], strict=True):
            assert one[name] == pytest.approx(other[name], rel=2e-3, abs=1e-5), name


def test_a_pass_holds_rows_of_one_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL shuffles the rows of all prompts; a micro-batch of the size of a group is a group again."""
    reward(monkeypatch, lambda episode: sum(episode.trajectory.token_ids) % 7 / 7)
    passes: list[set[tuple[int, ...]]] = []

    def note(
        model: Any, ids: Tensor, mask: Tensor, num_completion: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled():
            rows = zip(ids[:, :-num_completion], mask[:, :-num_completion].bool(), strict=True)
            passes.append({tuple(row[seen].tolist()) for row, seen in rows})
        return completion_logprobs(model, ids, mask, num_completion, temperature)

    monkeypatch.setattr("training.roles.shared_prompts.completion_logprobs", note)
    train(
        small_model(),
        tmp_path,
        lambda step, metrics: None,
        max_steps=4,
        steps_per_generation=2,
        memory__micro_batch_size=4,
        max_completion_tokens=4,
        memory__row_layout="shared_prompt",
    )
    assert [len(prompts) for prompts in passes] == [1] * 8
    assert len(set.union(*passes)) == 8


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note of every pass whether it has gradients."""
    passes: list[bool] = []

    def note(*given: Any) -> tuple[Tensor, Tensor]:
        passes.append(torch.is_grad_enabled())
        return completion_logprobs(*given)

    monkeypatch.setattr("training.roles.shared_prompts.completion_logprobs", note)
    return passes


def test_groups_without_a_signal_take_no_pass_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scenario's plays earn alike: leaving out their pass ends with the same weights."""
    quiet = role_scenario("coo", "train", 0, 0, (1,), "full").key

    def value(episode: SoloEpisode) -> float:
        return 0.5 if episode.scenario.key == quiet else sum(episode.trajectory.token_ids) % 7 / 7

    reward(monkeypatch, value)
    passes = count_passes(monkeypatch)
    trained = []
    for leaves_out in (True, False):
        if not leaves_out:
            monkeypatch.setattr(ResumableGrpoTrainer, "_is_silent", lambda self, inputs: False)
        model = small_model()
        train(
            model,
            tmp_path,
            lambda step, metrics: None,
            max_steps=1,
            memory__micro_batch_size=4,
            max_completion_tokens=8,
            learning_rate=1e-3,
        )
        trained.append([parameter.detach().clone() for parameter in model.parameters()])
    assert passes == [True] + 2 * [True]
    assert all(torch.equal(*pair) for pair in zip(*trained, strict=True))
    assert any(not torch.equal(*pair) for pair in zip(trained[0], small_model().parameters(), strict=True))


@pytest.mark.parametrize("reuses", [False, True])
def test_rows_that_are_not_learnt_from_take_no_pass_and_the_step_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reuses: bool
) -> None:
    """Padded, every row passes; with shared prompts two of four do. KL and ratios see the same rows."""
    reward(monkeypatch, lambda episode: sum(episode.trajectory.token_ids) % 7 / 7)
    rows: list[int] = []

    def note(model: Any, ids: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled():
            rows.append(len(ids))
        return completion_logprobs(model, ids, *given)

    monkeypatch.setattr("training.roles.shared_prompts.completion_logprobs", note)
    trained = []
    for layout in ("padded", "shared_prompt"):
        model = small_model()
        model.save_pretrained(tmp_path / "start")
        model.config._name_or_path = str(tmp_path / "start")
        train(
            model,
            tmp_path,
            lambda step, metrics: None,
            max_steps=2,
            steps_per_generation=2 if reuses else 1,
            trained_per_group=2,
            loss__kl_coefficient=0.0 if reuses else 0.1,
            learning_rate=1e-3,
            max_completion_tokens=8,
            memory__micro_batch_size=4 if reuses else 0,
            memory__row_layout=layout,
        )
        trained.append([parameter.detach().clone() for parameter in model.parameters()])
    assert rows == ([2] * 4 if reuses else [4] * 2)
    assert any(not torch.equal(*pair) for pair in zip(trained[1], small_model().parameters(), strict=True))
    if not reuses:  # with reuse TRL shuffles the padded rows, and steps hold others
        for one, other in zip(*trained, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)


def test_a_batch_without_any_signal_leaves_the_weights_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward(monkeypatch, lambda episode: 1.0)
    passes = count_passes(monkeypatch)
    model, start = small_model(), small_model()
    settings = {"max_steps": 2, "memory__micro_batch_size": 4, "max_completion_tokens": 4}
    train(model, tmp_path, lambda step, metrics: None, **settings)
    assert passes == []
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), start.parameters(), strict=True))


def test_ratios_to_the_engines_own_numbers_save_a_pass_and_train_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of two steps is played once: the learner would compute it anew before the first."""
    reward(monkeypatch, lambda episode: sum(episode.trajectory.token_ids) % 7 / 7)
    passes = count_passes(monkeypatch)
    trained, counts = [], []
    for source in ("learner", "engine"):
        passes.clear()
        model = small_model()
        train(
            model,
            tmp_path,
            lambda step, metrics: None,
            max_steps=2,
            steps_per_generation=2,
            max_completion_tokens=8,
            learning_rate=1e-3,
            loss__old_logprobs=source,
        )
        trained.append([parameter.detach().clone() for parameter in model.parameters()])
        counts.append((passes.count(False), passes.count(True)))
    assert counts[0][0] > 0
    assert counts[1] == (0, counts[0][1])
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)
    assert any(not torch.equal(*pair) for pair in zip(trained[1], small_model().parameters(), strict=True))
