"""Training rows of random tokens, in groups that share a prompt."""

from collections.abc import Sequence
from typing import Any

import torch

from reliability.joint.scripted_models import next_token_logprobs
from training.config.rl_config import RLConfig
from training.learner.learner import LossStats, backward_team
from training.learner.rows import TrainingRow


def make_rows(
    model: Any, groups: Sequence[int], *, role: str = "cto", shift: float = 0.1
) -> list[TrainingRow]:
    """Groups of so many rows, each with a prompt of its own; two stretches of own tokens; near on policy."""
    generator = torch.Generator().manual_seed(len(groups))
    rows = []
    for number, size in enumerate(groups):
        prompt = torch.randint(2, 200, (5 + 4 * number,), generator=generator).tolist()
        for place in range(size):
            tail = torch.randint(2, 200, (6 + 2 * place,), generator=generator).tolist()
            ids = (*prompt, *tail)
            mask = (*[0] * len(prompt), 1, 1, 1, 0, *[1] * (len(tail) - 4))
            predicted = next_token_logprobs(model, ids)
            logprobs = tuple(
                float(predicted[i - 1, ids[i]]) + shift if mask[i] else 0.0 for i in range(len(ids))
            )
            advantage = (-1.0) ** place * (0.3 + 0.2 * number + 0.1 * place)
            rows.append(
                TrainingRow(
                    role=role, token_ids=ids, loss_mask=mask, sampling_logprobs=logprobs, advantage=advantage
                )
            )
    return rows


def backward_role(
    model: Any, rows: Sequence[TrainingRow], config: RLConfig, *, reference: Any = None
) -> LossStats:
    """`backward_team` for the rows of one role."""
    role = rows[0].role
    references = {} if reference is None else {role: reference}
    return backward_team(model, {role: rows}, config, references=references)[role]
