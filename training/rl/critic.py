"""Value heads for `gae`: they predict the reward from a role's transcript so far and give token advantages.

A head is one linear layer on the policy's own last hidden states, which it does not change. The reward
stands on the last own token; the discount is 1. Several ranks fit one head: its loss is a mean over the
tokens of all of them, and gradients are summed.
Source: arXiv:1506.02438 (GAE), arXiv:1707.06347 (PPO).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.config.rl_config import RLConfig
from training.learner.lora_batch import routed_roles
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow, idle_batch, make_batches
from training.learner.token_logprobs import hidden_before
from training.rl.update import PolicyUpdater

GAE_LAMBDA = 0.95  # decay of the advantage along a row's own tokens
LEARNING_RATE, EPOCHS = 1e-2, 4  # of a value head, passes over a step's rows


def generalised_advantages(values: Sequence[float], reward: float, gae_lambda: float) -> list[float]:
    """Advantage of every own token of a row: sum over later errors, each step weighted by lambda.

    The error of a token is the next token's value minus its own, of the last one the reward minus its own.
    """
    advantages, running = [0.0] * len(values), 0.0
    following = reward
    for place in reversed(range(len(values))):
        running = following - values[place] + gae_lambda * running
        advantages[place] = running
        following = values[place]
    return advantages


class Critic:
    """One value head with its optimizer, the same on all ranks."""

    def __init__(
        self, width: int, config: RLConfig, device: torch.device | str = "cpu", ranks: Ranks = ONE_RANK
    ) -> None:
        self.config, self.ranks = config, ranks
        self.head = nn.Linear(width, 1, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.AdamW(self.head.parameters(), lr=LEARNING_RATE, weight_decay=0.0)

    def credit(
        self, model: nn.Module, rows: Sequence[TrainingRow], agree: Callable[[int], int] = int
    ) -> tuple[list[TrainingRow], float]:
        """Rows with token advantages, then trains on their rewards; also the mean squared error before that.

        `advantage` of the given rows is their reward. Returned are as many rows, in another order.
        All ranks take part, those without rows too; `agree` makes the number of passes the same on all,
        which sharded weights need.
        """
        credited: list[TrainingRow] = []
        device = self.head.weight.device
        features = [torch.zeros(0, self.head.in_features, device=device)]
        targets: list[float] = []
        batches = list(
            make_batches(
                rows,
                layout=self.config.memory.row_layout,
                max_tokens=self.config.memory.micro_batch_tokens,
                device=device,
            )
        )
        for _ in range(agree(len(batches)) - len(batches)):
            with torch.no_grad():
                hidden_before(model, idle_batch(device))
        for batch in batches:
            with torch.no_grad(), routed_roles(model, batch):
                hidden = hidden_before(model, batch).float()
                values = self.values(hidden).tolist()
            features.append(hidden)
            start = 0
            for row in batch.rows:
                own = values[start : start + row.num_own]
                start += row.num_own
                found = iter(generalised_advantages(own, row.advantage, GAE_LAMBDA))
                by_token = tuple(next(found) if bit else 0.0 for bit in row.loss_mask)
                credited.append(replace(row, token_advantages=by_token))
                targets += [row.advantage] * row.num_own
        error = self.fit(torch.cat(features), torch.tensor(targets, device=device))
        return credited, error

    def values(self, hidden: Float[Tensor, "own width"]) -> Float[Tensor, " own"]:
        """Expected reward at the places before own tokens."""
        predicted: Tensor = self.head(hidden)[:, 0]
        return predicted

    def fit(self, hidden: Float[Tensor, "own width"], targets: Float[Tensor, " own"]) -> float:
        """Some steps towards the rewards of all ranks; the mean squared error before the first."""
        (num_tokens,) = self.ranks.sum([float(len(targets))])
        if not num_tokens:
            return 0.0
        first = 0.0
        for epoch in range(EPOCHS):
            loss = (self.values(hidden) - targets).square().sum() / num_tokens
            if epoch == 0:
                (first,) = self.ranks.sum([float(loss.detach())])
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.ranks.add_gradients([list(self.head.parameters())], [True])
            self.optimizer.step()
        return first

    def state(self) -> dict[str, Any]:
        return {"head": dict(self.head.state_dict()), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])


class ValueHeads:
    """The value heads of several roles, and the token advantages that they give; a Stateful part."""

    def __init__(self, updater: PolicyUpdater, *, seed: int) -> None:
        torch.manual_seed(seed)
        self._updater = updater
        self.critics = {
            role: Critic(
                model.config.hidden_size, updater.config, next(model.parameters()).device, updater.ranks
            )
            for role, model in updater.models.items()
        }
        self._roles = [role for role in updater.models if role not in updater.frozen_roles]
        self.errors: dict[str, float] = {}  # of the latest rows, mean squared error by role

    def credit(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, Sequence[TrainingRow]]:
        """Return the rows with token advantages in place of rewards, and train the heads on these."""
        credited = dict(rows)
        for role in self._roles:
            if not rows[role] and self._updater.ranks.size == 1:
                continue
            model = self._updater.models[role]
            agree = self._updater.passes_agreement(model)
            credited[role], self.errors[role] = self.critics[role].credit(model, rows[role], agree)
        return credited

    def state(self) -> dict[str, Any]:
        return {role: critic.state() for role, critic in self.critics.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for role, critic in self.critics.items():
            critic.load_state(state[role])
