"""Trains a role with TRL's own GRPOTrainer on this project's environment: its tools, its verifier.

    python examples/stock_grpo.py MODEL --role cost --steps 50

MODEL is a chat model's folder or hub id. `emads train grpo` runs the project's own loop instead.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from serving.environments.trl_env import environment_factory, played_reward
from training.data.interop import prepare_tokenizer, write_trl_folder


def train(model: str, role: str, steps: int, out: Path, *, size: int = 8, most_tokens: int = 560) -> float:
    """Train for `steps` steps of `size` prompts x `size` answers; returns the mean reward of the last."""
    with tempfile.TemporaryDirectory() as folder:
        write_trl_folder(Path(folder), role, count=steps * size, difficulties=(1, 2))
        rows = load_dataset(str(Path(folder) / "grpo"))["train"]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        processing_class=prepare_tokenizer(AutoTokenizer.from_pretrained(model)),
        reward_funcs=[played_reward],  # type: ignore[list-item]
        environment_factory=environment_factory(role),
        train_dataset=rows,
        args=GRPOConfig(
            output_dir=str(out),
            max_steps=steps,
            per_device_train_batch_size=size * size,
            num_generations=size,
            max_completion_length=most_tokens,
            max_tool_calling_iterations=9,
            loss_type="dapo",
            scale_rewards="none",
            learning_rate=1e-5,
            logging_steps=1,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model(str(out))
    return float(trainer.state.log_history[-2]["reward"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GRPO of one role by stock TRL.")
    parser.add_argument("model")
    parser.add_argument("--role", default="cost")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("runs/stock-grpo"))
    options = parser.parse_args()
    print(f"reward {train(options.model, options.role, options.steps, options.out):.3f}")
