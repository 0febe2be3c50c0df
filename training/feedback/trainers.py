"""DPO and reward models: TRL's trainers on rows of exact token ids, with our checkpoints.

TRL owns losses and optimizer. What it would do to texts (templates, tokens, truncation) is left out: rows
come tokenised, and their masks say which tokens count. Log-probabilities of the weights before the stage are
computed once, before the first step.
Sources: arXiv:2305.18290 (DPO), arXiv:2404.19733 (SFT beside it).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from training.config.feedback_config import DpoConfig, RewardModelConfig
from training.data.demonstrations import TokenRow
from training.feedback.rows import PreferenceRow
from training.learner.token_logprobs import completion_logprobs
from training.roles.sft import ResumableTrainer, TrainingSite

ROWS_PER_PASS = 32  # of the reference pass


class ResumableDpoTrainer(ResumableTrainer, DPOTrainer):
    """TRL's trainer with our checkpoints; rows come tokenised, with the reference's log-probabilities."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset

    def _precompute_ref_logps(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset


class ResumableRewardTrainer(ResumableTrainer, RewardTrainer):
    """TRL's trainer with our checkpoints."""


def count_steps(num_rows: int, batch_size: int, epochs: int) -> int:
    """Optimizer steps of so many passes; the last batch of a pass may be smaller."""
    return math.ceil(num_rows / batch_size) * epochs


def run_dpo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[PreferenceRow],
    config: DpoConfig,
    site: TrainingSite,
) -> int:
    """Train `model` in place by DPO on comparisons, one or more; returns the number of steps."""
    chosen = sum_logprobs(model, [row.chosen for row in rows])
    rejected = sum_logprobs(model, [row.rejected for row in rows])
    examples = [
        {**_columns("chosen", row.chosen), **_columns("rejected", row.rejected), "ref": [better, worse]}
        for row, better, worse in zip(rows, chosen, rejected, strict=True)
    ]

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        references = torch.tensor([one["ref"] for one in examples])
        sides = [(one, side) for side in ("chosen", "rejected") for one in examples]
        return {
            **_pad([(one[f"{side}_ids"], one[f"{side}_mask"]) for one, side in sides]),
            "ref_chosen_logps": references[:, 0],
            "ref_rejected_logps": references[:, 1],
        }

    args = DPOConfig(
        beta=config.beta,
        loss_type=["sigmoid", *(["sft"] if config.sft_weight else [])],
        loss_weights=[1.0, *([config.sft_weight] if config.sft_weight else [])],
        precompute_ref_log_probs=True,
        **_common(config, len(rows), site),
    )
    made = site.make_trainer(ResumableDpoTrainer, model, tokenizer, args, examples, data_collator=collate)
    return _train(made, site)


def run_reward_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[PreferenceRow],
    config: RewardModelConfig,
    site: TrainingSite,
) -> int:
    """Train a model with one score as its output in place, on comparisons; returns the number of steps."""
    if not rows:
        raise ValueError("no rows")
    examples = [
        {"chosen_ids": list(row.chosen.token_ids), "rejected_ids": list(row.rejected.token_ids)}
        for row in rows
    ]
    args = RewardConfig(
        center_rewards_coefficient=0.01,  # scores stay near 0, so that weights of rewards mean something
        **_common(config, len(rows), site),
    )
    return _train(site.make_trainer(ResumableRewardTrainer, model, tokenizer, args, examples), site)


def sum_logprobs(model: nn.Module, rows: Sequence[TokenRow]) -> list[float]:
    """Log-probability of every row's own tokens together, by the weights as they are.

    Raises:
        ValueError: no rows, or a row without own tokens.
    """
    counts = [sum(row.loss_mask) for row in rows]
    if not rows or not all(counts):
        raise ValueError("no rows, or a row without own tokens")
    pairs = [(row.token_ids, row.loss_mask) for row in rows]
    logprobs = completion_logprobs(model, pairs, rows_per_pass=ROWS_PER_PASS)
    parts = logprobs.split(counts)  # type: ignore[no-untyped-call]
    return [float(part.sum()) for part in parts]


def _columns(side: str, row: TokenRow) -> dict[str, list[int]]:
    return {f"{side}_ids": list(row.token_ids), f"{side}_mask": list(row.loss_mask)}


def _pad(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[str, torch.Tensor]:
    """Token ids and masks (rows, width), padded on the right with zeros, under the trainers' names."""

    def stack(lines: Sequence[Sequence[int]]) -> torch.Tensor:
        return pad_sequence([torch.tensor(line) for line in lines], batch_first=True)

    return {
        "input_ids": stack([ids for ids, _ in rows]),
        "attention_mask": stack([[1] * len(ids) for ids, _ in rows]),
        "completion_mask": stack([mask for _, mask in rows]),
    }


def _common(config: DpoConfig | RewardModelConfig, num_rows: int, site: TrainingSite) -> Mapping[str, Any]:
    """Arguments that both trainers share."""
    steps = count_steps(num_rows, config.batch_size, config.epochs)
    return {
        **site.options(max_steps=steps, learning_rate=config.learning_rate),
        "max_length": None,
        "per_device_train_batch_size": config.batch_size,
        "warmup_steps": 2,
        "logging_steps": 1,
        "gradient_checkpointing": False,
        "remove_unused_columns": False,
    }


def _train(trainer: ResumableTrainer, site: TrainingSite) -> int:
    trainer.keep_checkpoints(site.checkpoints)
    trainer.train_on()
    return int(trainer.state.global_step)
