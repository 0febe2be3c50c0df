"""DPO, reward models and PPO on real trainer steps: numbers by hand at the start, and what they move."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from played_labels import PLAY, ROLE, draw_labels
from tiny_models import DIFFICULTIES, small_model, tiny_chat, tiny_tokenizer
from transformers import AutoModelForSequenceClassification

from scenarios.registry import families
from training.config.feedback_config import DpoConfig, PpoConfig, RewardModelConfig
from training.data.demonstrations import TokenRow, role_scenario
from training.feedback.reward_model import RewardModel
from training.feedback.rows import PreferenceRow, preference_rows
from training.feedback.trainers import run_dpo, run_reward_model, sum_logprobs
from training.rl.loop import RLLearner
from training.rl.records import RewardParts
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer, add_model_scores
from training.roles.sft import TrainingSite

Log = list[tuple[int, Mapping[str, float]]]


def train(run: Any, model: Any, rows: Any, config: Any, folder: Path) -> Log:
    log = Log()
    site = TrainingSite(output_dir=folder, seed=0, on_step=lambda step, metrics: log.append((step, metrics)))
    run(model, tiny_tokenizer(), rows, config, site)
    return log


def margins(model: Any, rows: list[PreferenceRow]) -> list[float]:
    chosen, rejected = (
        sum_logprobs(model, [getattr(r, side) for r in rows]) for side in ("chosen", "rejected")
    )
    return [one - other for one, other in zip(chosen, rejected, strict=True)]


def test_dpo_begins_at_log_2_and_moves_probability_to_what_was_preferred(tmp_path: Path) -> None:
    model = small_model(scale=0.5)
    rows = preference_rows(draw_labels(model, tiny_chat(), 8), tiny_chat())
    before = margins(model, rows)
    config = DpoConfig(epochs=6, batch_size=4, learning_rate=3e-3, beta=0.5)
    log = train(run_dpo, model, rows, config, tmp_path)
    assert log[0][1]["loss"] == pytest.approx(math.log(2), abs=1e-4)  # the policy is the reference
    assert [step for step, _ in log] == list(range(1, 13))
    gains = [now - then for now, then in zip(margins(model, rows), before, strict=True)]
    assert sum(gain > 0 for gain in gains) >= 7


def test_sft_beside_dpo_adds_the_loss_per_token_of_what_was_preferred(tmp_path: Path) -> None:
    model = small_model(scale=0.5)
    rows = preference_rows(draw_labels(model, tiny_chat(), 4), tiny_chat())
    chosen = [row.chosen for row in rows]
    per_token = -math.fsum(sum_logprobs(model, chosen)) / sum(sum(row.loss_mask) for row in chosen)
    config = DpoConfig(epochs=1, batch_size=4, sft_weight=2.0)
    ((_, metrics),) = train(run_dpo, model, rows, config, tmp_path)
    assert metrics["loss"] == pytest.approx(math.log(2) + 2 * per_token, rel=1e-4)


def sides(row: PreferenceRow) -> list[tuple[int, ...]]:
    return [row.chosen.token_ids, row.rejected.token_ids]


def test_a_reward_model_learns_to_tell_two_answers_apart(tmp_path: Path) -> None:
    def pair(prompt: int) -> PreferenceRow:
        better, worse = (TokenRow(token_ids=(prompt, answer, 2), loss_mask=(0, 1, 1)) for answer in (50, 60))
        return PreferenceRow(chosen=better, rejected=worse)

    rows = [pair(prompt) for prompt in range(100, 124)]
    small_model().save_pretrained(tmp_path / "model")
    model: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=1)
    torch.nn.init.zeros_(model.score.weight)
    judge = RewardModel(model)
    assert judge.accuracy(rows) == 0.5  # a head of zeros: all tie
    config = RewardModelConfig(epochs=4, batch_size=8, learning_rate=3e-3)
    log = train(run_reward_model, model, rows[:16], config, tmp_path)
    assert log[0][1]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert judge.accuracy(rows[16:]) == 1.0
    assert judge.accuracy([]) is None
    judge.set_spread(rows)
    assert statistics.pstdev(judge.score([(*ids,) for row in rows for ids in sides(row)])) == pytest.approx(
        1.0
    )
    lines = [(100, 50, 2), (100, 60, 60, 60, 2)]  # of unequal length: padding changes nothing
    assert judge.score(lines) == pytest.approx([*judge.score(lines[:1]), *judge.score(lines[1:])], abs=1e-5)


def test_a_reward_model_has_its_share_of_the_reward() -> None:
    scored = [
        RewardParts(parts={"correct": 1.0, "total": 1.0}),
        RewardParts(parts=None, fault="infrastructure", reason="lost"),
        RewardParts(parts={"correct": 0.0, "total": 0.25}),
    ]
    asked: list[Any] = []

    def judge(transcripts: Any) -> list[float]:
        asked.extend(transcripts)
        return [0.5, math.nan]

    first, lost, broken = add_model_scores(scored, [(1, 2), None, (3,)], judge, 0.25)
    assert first.parts == {"correct": 1.0, "model": 0.5, "total": 0.75 * 1.0 + 0.25 * 0.5}
    assert lost is scored[1]
    assert (broken.parts, broken.fault) == (None, "reward")
    assert asked == [(1, 2), (3,)]
    assert add_model_scores(scored, [(1, 2), None, (3,)], None, 0.0) == scored


def make_learner(model: Any, config: PpoConfig, judge: Any) -> RLLearner:
    grpo = config.as_grpo(PLAY)
    player = SoloPlayer(config=grpo, chat=tiny_chat(), families=families("short"))
    models, start = {ROLE: model}, {ROLE: small_model(scale=0.5)}
    references = start if grpo.needs_reference else None
    return make_solo_learner(
        models, grpo, player=player, judge=judge, references=references, chat=tiny_chat(), seed=0, name="ppo"
    )


def cases(step: int, count: int) -> list[Any]:
    return [role_scenario(ROLE, "train", 0, step * count + place, DIFFICULTIES) for place in range(count)]


def count_low_ids(transcripts: Any) -> list[float]:
    """Share of low token ids among the last ones, which are the policy's own."""
    return [sum(token < 130 for token in ids[-6:]) / 6 for ids in transcripts]


def test_ppo_raises_what_its_judge_pays_for_and_its_clip_acts() -> None:
    config = PpoConfig(prompts_per_step=16, learning_rate=4e-3, kl_coefficient=0.0)
    learner = make_learner(small_model(scale=0.5), config, count_low_ids)
    log = [learner.step(cases(step, 16)) for step in range(7)]
    paid = [one["reward/model"] for one in log]
    assert sum(paid[-2:]) > sum(paid[:2]) + 0.3
    assert all(one["reward/total"] == pytest.approx(one["reward/model"]) for one in log)
    assert log[0]["kl_to_start"] == pytest.approx(0.0, abs=1e-3)
    assert log[5]["kl_to_start"] > 0.05
    assert log[-1]["critic_error/cto"] < log[0]["critic_error/cto"]
    assert max(one["clip_fraction"] for one in log) > 0


def test_one_pass_per_batch_leaves_the_clip_without_work() -> None:
    config = PpoConfig(
        max_steps=1, prompts_per_step=8, updates_per_batch=1, minibatches=1, learning_rate=5e-3
    )
    learner = make_learner(small_model(scale=0.5), config, count_low_ids)
    assert learner.step(cases(0, 8))["clip_fraction"] == 0


def test_ppo_goes_on_from_its_state_in_every_bit() -> None:
    config = PpoConfig(max_steps=4, prompts_per_step=4, learning_rate=1e-3)
    whole = make_learner(small_model(scale=0.5), config, count_low_ids)
    for step in range(2):
        whole.step(cases(step, 4))
    state = dict(whole.state().items())
    state = torch.load(_saved(state), weights_only=True)
    expected = [whole.step(cases(step, 4)) for step in (2, 3)]
    resumed = make_learner(small_model(scale=0.5), config, count_low_ids)
    resumed.load_state(state)
    assert [resumed.step(cases(step, 4)) for step in (2, 3)] == expected
    both = zip(whole.models[ROLE].parameters(), resumed.models[ROLE].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)


def _saved(state: Any) -> Any:
    import io

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file
