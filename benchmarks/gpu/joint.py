"""A whole joint step of five adapters on one base: play, scores, rows, update; seconds, tokens, memory.

The weights are random, so every answer is noise and all rewards are equal: advantages are drawn in place of
the computed ones, so that every row is trained on. Seconds and memory do not depend on their values.
"""

import random
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.gpu.learner import LOGIT_ROWS, largest_batch, planned_memory
from benchmarks.gpu.records import Record
from benchmarks.gpu.sizes import Scale, build_team
from roles.team import TEAM_ROLES
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.run_config import RunConfig
from training.data.demonstrations import corpus
from training.learner.rows import TrainingRow
from training.models.base_model import train_tokenizer
from training.rl.loop import RLLearner
from training.rl.team.algorithm import make_team_learner
from training.stages.from_config import joint_cases


def measure_joint(scale: Scale, preset: str, record: Record, steps: int = 3) -> None:
    """A record per step, the first with the warming up of kernels in it."""
    shape = scale.shape(preset)
    config = RunConfig().changed(
        marl__max_steps=steps,
        marl__scenarios_per_step=scale.choose(8, 2),
        marl__report_sets=scale.choose(4, 2),
        marl__decisions_per_set=2,
        marl__max_completion_tokens=scale.choose(96, 8),
        marl__memory__row_layout="shared_prompt",
        marl__memory__logit_rows=LOGIT_ROWS,
        marl__memory__micro_batch_tokens=scale.choose(16_384, 2_048),
    )
    model = build_team(shape, scale, checkpointing=True, spread=1e-3)
    texts = corpus(RunConfig(), 40)
    chat = HFChat(train_tokenizer(texts, 512), short_prompts=True)
    learner = make_team_learner(
        dict.fromkeys(TEAM_ROLES, model),
        config.marl,
        chat=chat,
        reward_weights=config.team_reward,
        seed=0,
        engine=TransformersEngine(end_id=chat.end_id, seed=0),
    )
    for step in range(steps):
        record("joint", preset=preset, step=step, **_step(preset, learner, config, scale, step))


def _step(preset: str, learner: RLLearner, config: RunConfig, scale: Scale, step: int) -> dict[str, Any]:
    on_gpu = scale.device == "cuda"
    clock = _Clock(scale)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    groups = learner.play(joint_cases(config, step))
    play_s = clock.lap()
    playing = torch.cuda.max_memory_allocated() if on_gpu else 0
    scored = learner.scorer.score(groups)
    rows = learner.credit.make_rows(scored, learner.credit.assign(tuple(learner.models), scored))
    score_s = clock.lap()
    rng = random.Random(step)
    drawn = {role: [_draw_advantage(row, rng) for row in of_role] for role, of_role in rows.items()}
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    stats = learner.updater.update(drawn)
    update_s = clock.lap()
    tokens = [row for of_role in drawn.values() for row in of_role]
    planned = None
    if not scale.is_toy:
        planned = planned_memory(preset, config.marl, True, largest_batch(tokens, config.marl), moments=True)
    return {
        "play_s": play_s,
        "score_s": score_s,
        "update_s": update_s,
        "groups": len(groups),
        "rows": len(tokens),
        "row_tokens": sum(len(row.token_ids) for row in tokens),
        "sampled_tokens": sum(row.num_own for row in tokens),
        "sampled_per_s": sum(row.num_own for row in tokens) / play_s,
        "trained_per_s": sum(len(row.token_ids) for row in tokens) / update_s,
        "mismatch_mean": max(one.mismatch.mean for one in stats.values()),
        "mismatch_kl": max(one.mismatch.kl for one in stats.values()),
        "grad_norm": max(one.grad_norm for one in stats.values()),
        "playing_peak_gib": playing / 2**30,
        "planned_gib": planned,  # of the update, without the cache of what was played
        "update_peak_gib": (torch.cuda.max_memory_allocated() if on_gpu else 0) / 2**30,
    }


def _draw_advantage(row: TrainingRow, rng: random.Random) -> TrainingRow:
    return replace(row, advantage=rng.uniform(-1, 1), token_advantages=None)


class _Clock:
    """Seconds between laps, when the device is done."""

    def __init__(self, scale: Scale) -> None:
        self._scale, self._last = scale, time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        self._scale.wait()
        now = time.perf_counter()
        took, self._last = now - self._last, now
        return took
