"""Engine against learner in GRPO: what is measured, and what a truncated weight per call does to a step."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_cases import CONFIG, ROLE, draw
from tiny_models import small_model, tiny_chat, tiny_tokenizer, weights_of

from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.engine import TransformersEngine
from training.config.loading import load_config, validate_config
from training.roles.engine_mismatch import weigh_calls
from training.roles.grpo import run_grpo
from training.roles.rollouts import Rollouts


def test_weights_are_of_whole_calls_and_truncated() -> None:
    gap = torch.tensor([[0.1, 0.2, 9.0, -0.4, 0.0], [0.9, 0.9, 9.0, 9.0, -1.0]])
    own = torch.tensor([[1, 1, 0, 1, 0], [1, 1, 0, 0, 1]])
    weights = weigh_calls(gap, own, cap=2.0)
    expected = [
        [math.exp(0.3), math.exp(0.3), 1.0, math.exp(-0.4), 1.0],
        [2.0, 2.0, 1.0, 1.0, math.exp(-1.0)],
    ]
    assert weights.tolist() == [pytest.approx(row) for row in expected]


def test_a_call_that_ends_a_row_is_not_one_with_the_next_rows_first() -> None:
    gap = torch.tensor([[0.0, 0.1], [0.2, 0.0]])
    own = torch.tensor([[0, 1], [1, 0]])
    weights = weigh_calls(gap, own, cap=2.0)
    assert weights[0, 1].item() == pytest.approx(math.exp(0.1))
    assert weights[1, 0].item() == pytest.approx(math.exp(0.2))


class OffEngine(TransformersEngine):
    """Says of every token that it was less likely than it was: the learner seems surer by `shift`."""

    shift = 0.0
    versions: list[str]

    async def complete(self, request: CompletionRequest) -> Completion:
        completion = await super().complete(request)
        return replace(completion, logprobs=tuple(v - self.shift for v in completion.logprobs))

    def set_policy(self, policy: str, model: Any, *, version: str, adapter: str | None = None) -> None:
        self.versions.append(version)
        super().set_policy(policy, model, version=version, adapter=adapter)


def train(
    folder: Path, shift: float, **options: Any
) -> tuple[dict[str, torch.Tensor], list[Mapping[str, float]], OffEngine]:
    """One role's GRPO on one engine for all steps; what changed, what was logged, and the engine."""
    config = CONFIG.changed(**{"loss__kind": "dapo"} | options)
    model = small_model()
    before = weights_of(model)
    engine = OffEngine(end_id=tiny_chat().end_id, seed=0)
    engine.shift, engine.versions = shift, []
    logged: list[Mapping[str, float]] = []

    def make_rollouts(*args: Any, **kwargs: Any) -> Rollouts:
        rollouts = Rollouts(*args, **kwargs, engine=engine)
        rollouts._score = lambda episode: {"total": float(sum(episode.trajectory.token_ids) % 7)}  # type: ignore[method-assign]
        return rollouts

    run_grpo(
        model,
        tiny_tokenizer(),
        draw(8),
        config,
        role=ROLE,
        chat=tiny_chat(),
        output_dir=folder,
        seed=0,
        on_step=lambda step, metrics: logged.append(metrics),
        make_rollouts=make_rollouts,
    )
    return {name: weight - before[name] for name, weight in weights_of(model).items()}, logged, engine


def test_every_step_logs_the_mismatch_and_new_weights_are_new_versions(tmp_path: Path) -> None:
    _, exact, engine = train(tmp_path, 0.0)
    steps = [row for row in exact if "mismatch_mean" in row]
    assert len(steps) == CONFIG.max_steps
    for row in steps:
        assert row["mismatch_max"] < 1e-4
        assert row["effective_share"] == pytest.approx(1.0, abs=1e-4)
    assert engine.versions == [f"{ROLE}@0", f"{ROLE}@1"]
    _, off, _ = train(tmp_path, 0.25)
    for row in (row for row in off if "mismatch_mean" in row):
        assert row["mismatch_mean"] == pytest.approx(0.25, abs=1e-3)
        assert row["mismatch_max"] == pytest.approx(0.25, abs=1e-3)
        assert row["mismatch_kl"] == pytest.approx(math.exp(0.25) - 1.25, abs=1e-3)


@pytest.mark.slow
def test_the_correction_weighs_a_step_by_what_the_engine_said(tmp_path: Path) -> None:
    """The learner is surer of every token, so every call weighs as much as the cap: twice the gradient."""
    options = {"max_steps": 1, "loss__importance_cap": 2.0}
    _, plain, _ = train(tmp_path, 3.0, **options)
    _, corrected, _ = train(tmp_path, 3.0, loss__importance="call", **options)
    _, agreed, _ = train(tmp_path, 0.0, loss__importance="call", **options)
    norms = [
        next(row["grad_norm"] for row in rows if "grad_norm" in row) for rows in (plain, corrected, agreed)
    ]
    assert norms[0] > 0
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-3)
    assert norms[2] == pytest.approx(norms[0], rel=1e-3)


def test_engines_that_are_not_the_learners_are_corrected_unless_the_config_says_otherwise() -> None:
    embedded = load_config()
    assert (embedded.grpo.loss.importance, embedded.marl.loss.importance) == ("none", "ratio")
    vllm = load_config(None, ["engine.name=vllm", "marl.max_steps=3"])
    assert (vllm.grpo.loss.importance, vllm.marl.loss.importance, vllm.marl.max_steps) == ("call", "call", 3)
    told = load_config(None, ["engine.name=vllm", "grpo.loss.importance=none", "marl.loss.importance=token"])
    assert (told.grpo.loss.importance, told.marl.loss.importance) == ("none", "token")
    again = validate_config(json.loads(vllm.model_dump_json()), "what a run keeps")
    assert again == vllm


def test_ratios_are_taken_to_what_the_engine_said_where_asked_to(tmp_path: Path) -> None:
    """Every token is e times as likely to the learner: where it pays, the ratio is clipped."""
    options = {"max_steps": 2, "steps_per_generation": 2, "loss__old_logprobs": "engine"}
    _, agreed, _ = train(tmp_path, 0.0, **options)
    _, off, _ = train(tmp_path, 1.0, **options)
    assert agreed[0]["clip_ratio/high_mean"] == 0.0
    assert off[0]["clip_ratio/high_mean"] > 0.1


def test_a_correction_without_anything_to_correct_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves nothing to correct"):
        CONFIG.changed(loss__old_logprobs="engine", loss__importance="call")
