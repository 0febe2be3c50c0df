"""TRL's own GRPO trainer on rows that are given: nothing is generated, and the weights stay as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.config.run_config import RunConfig
from training.data.demonstrations import corpus
from training.learner.rows import TrainingRow
from training.models.base_model import train_tokenizer


def train_on_rows(
    trainer: Any,
    model: Any,
    rows: Sequence[TrainingRow],
    folder: Path,
    *,
    num_steps: int,
    rows_per_forward: int,
    group_size: int,
    settings: dict[str, Any],
    **given: Any,
) -> None:
    """Take so many steps on the rows with this subclass of `GRPOTrainer`, which measures.

    Args:
        rows: groups of `group_size` rows each, one after the other; their advantages are the rewards.
        settings: arguments of `GRPOConfig` besides those that make the step what the learner's is.
        given: arguments of the trainer.
    """
    from datasets import Dataset
    from trl import GRPOConfig

    def rollout(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return {
            "prompt_ids": [list(row.token_ids[: row.num_prompt]) for row in rows],
            "completion_ids": [list(row.token_ids[row.num_prompt :]) for row in rows],
            "logprobs": [[0.0] * row.num_own for row in rows],
            "verdict": [row.advantage for row in rows],
        }

    def verdict_reward(completions: list[Any], verdict: list[float], **kwargs: Any) -> list[float | None]:
        return list(verdict)

    trainer(
        model=model,
        reward_funcs=[verdict_reward],
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=num_steps,
            per_device_train_batch_size=rows_per_forward,
            gradient_accumulation_steps=len(rows) // rows_per_forward,
            num_generations=group_size,
            learning_rate=1e-12,
            beta=0.0,
            loss_type="dapo",
            scale_rewards="none",
            max_grad_norm=0.0,
            shuffle_dataset=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **settings,
        ),
        train_dataset=Dataset.from_dict({"prompt": [str(n) for n in range(len(rows) // group_size)]}),
        processing_class=train_tokenizer(corpus(RunConfig(), 40), 512),
        rollout_func=rollout,
        **given,
    ).train()
