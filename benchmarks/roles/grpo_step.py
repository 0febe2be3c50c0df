"""One GRPO step of a role beside stock TRL: same model, role, scenarios, group size, tools and limits.

    python -m benchmarks.roles.grpo_step [--role cost] [--steps 12] [--rounds 3]

Ours is the RL loop (training/rl/loop.py). Stock is TRL's `GRPOTrainer` with our tools as its
`environment_factory` and its own generation by transformers. Both start from the same weights, trained by SFT
for a moment so that tools are used; rounds alternate, the first step is not counted.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from transformers.trainer_callback import PrinterCallback, TrainerCallback
from trl import GRPOConfig as TrlGrpoConfig
from trl import GRPOTrainer

from serving.environments.trl_env import environment_factory
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.config.rl_config import GrpoConfig
from training.config.run_config import DataConfig, RunConfig, SftConfig
from training.data.demonstrations import corpus, role_scenario, supervised_rows
from training.data.interop import prepare_tokenizer, verified_reward, write_trl_folder
from training.models.base_model import build_tiny_model, quiet_libraries, train_tokenizer
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.roles.sft import TrainingSite, run_sft

DIFFICULTIES = (1, 2)
FIRST_INDEX = 0


@dataclass(slots=True)
class Timing:
    """Seconds of counted steps, and what they were spent on."""

    step_s: list[float] = field(default_factory=list)
    rollout_s: list[float] = field(default_factory=list)
    learner_s: list[float] = field(default_factory=list)  # forward, backward; of ours the optimizer, too
    tokens: list[float] = field(default_factory=list)  # per trajectory
    reward: list[float] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--role", default="cost")
    parser.add_argument("--steps", type=int, default=12, help="counted steps per side and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8, help="scenarios per step")
    parser.add_argument("--group", type=int, default=8, help="trajectories per scenario")
    parser.add_argument("--sft-steps", type=int, default=300)
    parser.add_argument("--row-layout", choices=("padded", "shared_prompt"), default="padded", help="of ours")
    options = parser.parse_args(arguments)
    quiet_libraries()
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        folder = Path(scratch)
        chat, tokenizer = _prepare(folder, options)
        ours, stock = Timing(), Timing()
        for round_number in range(options.rounds):
            sides: list[Callable[[], None]] = [
                lambda: _time_ours(folder, options, chat, ours),
                lambda: _time_stock(folder, options, tokenizer, stock),
            ]
            for side in sides if round_number % 2 == 0 else reversed(sides):
                side()
    for line in _table(ours, stock, options):
        print(line)
    return 0


def _prepare(folder: Path, options: argparse.Namespace) -> tuple[HFChat, Any]:
    """A tiny model that plays the role with tools, its tokenizer, and the cases as TRL reads them."""
    tokenizer = train_tokenizer(corpus(RunConfig(data=DataConfig(difficulties=DIFFICULTIES)), 200), 512)
    model = build_tiny_model(ModelConfig(), tokenizer, seed=0)
    chat = HFChat(tokenizer, short_prompts=True)
    config = SftConfig(max_steps=options.sft_steps)
    rows = list(
        supervised_rows(
            RunConfig(data=DataConfig(difficulties=DIFFICULTIES)),
            options.role,
            chat,
            num_rows=config.max_steps * config.batch_size,
            first_row=10_000,
            seat_share=0.0,
        )
    )
    run_sft(
        model,
        tokenizer,
        rows,
        config,
        TrainingSite(output_dir=folder / "scratch", seed=0, on_step=lambda step, metrics: None),
        max_steps=config.max_steps,
    )
    model.save_pretrained(folder / "start")
    tokenizer.save_pretrained(folder / "start")
    count = (options.steps + 1) * options.prompts
    write_trl_folder(folder, options.role, count=count, difficulties=DIFFICULTIES, style="short")
    return chat, prepare_tokenizer(tokenizer)


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder / "start", dtype=torch.float32)


def _timed(owner: Any, name: str, into: list[float]) -> None:
    """Replace a method by one that notes how long each call takes."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = original(*args, **kwargs)
        into.append(time.perf_counter() - start)
        return result

    setattr(owner, name, call)


def _time_learner(trainer: Any, made: Timing) -> None:
    """Forward by the loss, backward by accelerate: their sum per step."""
    spent = [0.0]
    original_loss, original_backward = trainer._compute_loss, trainer.accelerator.backward

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = original_loss(*args, **kwargs)
        spent[0] = time.perf_counter() - start
        return result

    def backward(*args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        original_backward(*args, **kwargs)
        made.learner_s.append(spent[0] + time.perf_counter() - start)

    trainer._compute_loss, trainer.accelerator.backward = compute_loss, backward


def _time_ours(folder: Path, options: argparse.Namespace, chat: HFChat, timing: Timing) -> None:
    config = GrpoConfig().changed(
        max_steps=options.steps + 1,
        prompts_per_step=options.prompts,
        group_size=options.group,
        memory__row_layout=options.row_layout,
    )
    made = Timing()
    learner = make_solo_learner(
        {options.role: _load(folder)},
        config,
        player=SoloPlayer(config=config, chat=chat),
        chat=chat,
        seed=0,
    )
    _timed(learner, "play", made.rollout_s)
    _timed(learner.updater, "update", made.learner_s)
    for step in range(config.max_steps):
        scenarios = [
            role_scenario(
                options.role, "train", 0, FIRST_INDEX + step * options.prompts + place, DIFFICULTIES
            )
            for place in range(options.prompts)
        ]
        start = time.perf_counter()
        metrics = learner.step(scenarios)
        made.step_s.append(time.perf_counter() - start)
        made.reward.append(metrics["verified"])
        made.tokens.append(metrics["own_tokens"])
    _take(made, timing)


def _time_stock(folder: Path, options: argparse.Namespace, tokenizer: Any, timing: Timing) -> None:
    limits = GrpoConfig()
    made = Timing()
    args = TrlGrpoConfig(
        output_dir=str(folder / "scratch"),
        max_steps=options.steps + 1,
        per_device_train_batch_size=options.prompts * options.group,
        num_generations=options.group,
        learning_rate=limits.learning_rate,
        adam_epsilon=limits.adam_epsilon,
        beta=0.0,
        loss_type=limits.loss.kind,
        scale_rewards="none",
        max_completion_length=limits.max_turns * limits.max_completion_tokens,
        max_tool_calling_iterations=limits.max_turns - 1,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        seed=0,
    )

    class Keep(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs and "reward" in logs:
                made.reward.append(logs["reward"])
                made.step_s.append(logs["step_time"])
                made.tokens.append(logs["completions/mean_length"])

    trainer = GRPOTrainer(
        model=_load(folder),
        reward_funcs=[verified_reward],
        args=args,
        train_dataset=load_dataset(str(folder / "grpo"))["train"],
        processing_class=tokenizer,
        environment_factory=environment_factory(options.role),
        callbacks=[Keep()],
    )
    trainer.remove_callback(PrinterCallback)
    _timed(trainer, "_generate", made.rollout_s)
    _time_learner(trainer, made)
    trainer.train()
    _take(made, timing)


def _take(made: Timing, timing: Timing) -> None:
    """Add a round without its first step."""
    for name in ("step_s", "rollout_s", "learner_s", "tokens", "reward"):
        getattr(timing, name).extend(getattr(made, name)[1:])


def _table(ours: Timing, stock: Timing, options: argparse.Namespace) -> list[str]:
    lines = [
        f"role {options.role}, {options.prompts} scenarios x {options.group}, {options.rounds} rounds of"
        f" {options.steps} steps, {torch.get_num_threads()} threads, torch {torch.__version__},"
        f" ours {options.row_layout}",
        "",
        "| | step, s | rollout, s | learner, s | rest, s | tokens per trajectory | reward |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, side in (("ours", ours), ("stock TRL", stock)):
        step = statistics.median(side.step_s)
        rollout, learner = (statistics.median(part) for part in (side.rollout_s, side.learner_s))
        rest = step - rollout - learner
        spent = " | ".join(f"{part:.3f} ({part / step:.0%})" for part in (rollout, learner, rest))
        lines.append(
            f"| {name} | {step:.3f} | {spent} | {statistics.fmean(side.tokens):.0f}"
            f" | {statistics.fmean(side.reward):.3f} |"
        )
    ratio = statistics.median(stock.step_s) / statistics.median(ours.step_s)
    return [*lines, "", f"stock TRL / ours: {ratio:.2f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
