"""The peak memory of a training step in a process of its own: `python peak_child.py KIND` prints bytes.

Large blocks are given back to the system at once where MALLOC_MMAP_THRESHOLD_ is set, so that the resident
peak is that of live tensors. What a step of a tiny model loads beside them does not count.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny_models import small_model, tiny_chat, tiny_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.gpu.sizes import list_config_values
from roles.registry import ROLES
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.engine import TransformersEngine
from training.config.model_config import ModelConfig
from training.config.rl_config import GrpoConfig, MarlConfig
from training.config.run_config import RunConfig, SftConfig
from training.data.demonstrations import TokenRow, role_scenario
from training.learner.rows import TrainingRow
from training.models.adapters import attach
from training.models.shapes import SHAPES
from training.planning import Workload, joint_memory, role_memory
from training.rl import loop
from training.rl.solo import algorithm
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.rl.update import PolicyUpdater
from training.roles.sft import TrainingSite, run_sft

SHAPE = SHAPES["smollm2-135m"]
ROWS, LENGTH, OWN = 4, 64, 32
LORA = ModelConfig(preset="smollm2-135m", adapter="lora")
CONFIG = RunConfig(model=LORA)


def planned(kind: str) -> float:
    """Bytes that the plan expects of a step of this kind."""
    if kind == "joint":
        return joint_memory(SHAPE, CONFIG.changed(marl__memory__logit_rows=64), 1, tokens=ROWS * LENGTH).total
    phase = Workload(name=kind, trained=0.0, row=float(LENGTH), step_rows=float(ROWS))
    return role_memory(SHAPE, RunConfig(model=ModelConfig(preset="smollm2-135m")), phase).total


def build() -> Any:
    """A model of the shape of SmolLM2-135M, weights drawn."""
    return Qwen2ForCausalLM(Qwen2Config(**list_config_values(SHAPE)))


def learn_jointly(make: Callable[[], Any]) -> None:
    """One update of one role's adapter beside four others; rows of one pass."""
    model: Any = attach(make(), LORA, seed=0, name="cto")
    for role in list(ROLES)[1:]:
        model.add_adapter(role, model.peft_config["cto"])
    config = MarlConfig().changed(memory__logit_rows=64)
    updater = PolicyUpdater(dict.fromkeys(ROLES, model), config)
    rows = [
        TrainingRow(
            role="cto",
            token_ids=tuple(20 + (7 * place + number) % 100 for place in range(LENGTH)),
            loss_mask=(0,) * (LENGTH - OWN) + (1,) * OWN,
            sampling_logprobs=(-1.0,) * LENGTH,
            advantage=1.0 - 2 * (number % 2),
        )
        for number in range(ROWS)
    ]
    for _ in range(2):
        updater.update({"cto": rows} | {role: [] for role in list(ROLES)[1:]})


def learn_from_rows(make: Callable[[], Any]) -> None:
    """Two steps of SFT, the second with an optimizer's state."""
    row = TokenRow(token_ids=tuple(range(20, 20 + LENGTH)), loss_mask=(0,) * (LENGTH - OWN) + (1,) * OWN)
    config = SftConfig(optimizer="adamw", batch_size=ROWS)
    with tempfile.TemporaryDirectory() as folder:
        run_sft(
            make(),
            tiny_tokenizer(),
            [row] * 2 * ROWS,
            config,
            TrainingSite(output_dir=Path(folder), seed=0, on_step=lambda step, metrics: None),
            max_steps=2,
        )


class Recital(TransformersEngine):
    """Completes every prompt to the length of a row, with words that differ, and keeps nothing."""

    num_calls = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.num_calls += 1
        count = max(1, LENGTH - len(request.prompt_ids))
        ids = tuple(20 + (self.num_calls + place) % 90 for place in range(count))
        return Completion(
            token_ids=ids, logprobs=(-6.0,) * count, finish_reason="length", policy_version=request.policy
        )


def learn_by_grpo(make: Callable[[], Any]) -> None:
    """Two steps of GRPO on episodes of one turn."""
    config = GrpoConfig(
        max_steps=2, prompts_per_step=1, group_size=ROWS, max_turns=1, max_completion_tokens=LENGTH
    )
    setattr(algorithm, "ReferencePolicy", lambda model: None)  # noqa: B010 (alarms measure nothing)
    setattr(algorithm.SoloMonitor, "_watch", lambda self, groups, metrics: {})  # noqa: B010
    setattr(loop, "check_engine", lambda metrics: None)  # noqa: B010 (recited words have no likelihoods)
    scenarios = [role_scenario("cto", "train", 0, index, (1,), "short") for index in range(2)]
    pay = iter([0.0, 1.0] * 8)
    player, chat = SoloPlayer(config=config, chat=tiny_chat()), tiny_chat()
    learner = make_solo_learner(
        {"cto": make()}, config, player=player, chat=chat, seed=0, engine=Recital(end_id=1, seed=0)
    )
    learner.scorer._score = lambda episode: {"total": next(pay)}  # type: ignore[attr-defined]
    for scenario in scenarios:
        learner.step([scenario])


STEPS = {"joint": learn_jointly, "sft": learn_from_rows, "grpo": learn_by_grpo}


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    step = STEPS[sys.argv[1]]
    step(small_model)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    step(build)
    print(resident("VmHWM") - before)
