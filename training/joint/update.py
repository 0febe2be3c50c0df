"""Updates the team: training rows to new weights, one optimizer step of every role.

Roles on one base go through it together. Whatever the next update depends on lives here: models, optimizers,
value heads, drift of own scores.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from simulator.engines.adapter_names import adapter_of
from training.config.marl_config import MarlConfig
from training.joint.anchor import AnchorRows, backward_anchor
from training.joint.credit.critic import Critic
from training.joint.role_weights import load_role_weights, role_weights
from training.joint.watches import DriftWatch
from training.learner.fsdp import copy_whole, is_sharded, whole
from training.learner.learner import LossStats, RowCounts, backward_team, count_rows, join_stats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.models.adapters import role_parameters
from training.runs.faults import inject_loss_fault
from training.runs.resume import load_optimizer

Owner = tuple[int, str | None]  # a model and one of its adapters: the weights that one optimizer trains


class TeamUpdater:
    """All roles' models and optimizers."""

    def __init__(
        self,
        models: Mapping[str, Any],
        config: MarlConfig,
        *,
        seed: int,
        references: Mapping[str, nn.Module] | None = None,
        anchor_rows: AnchorRows | None = None,
        ranks: Ranks = ONE_RANK,
        actors: Mapping[str, Any] | None = None,
    ) -> None:
        """`actors`: whole copies that play where the models are sharded; None plays the models themselves."""
        self.models, self.config, self.ranks = dict(models), config, ranks
        self.references, self.anchor_rows = references or {}, anchor_rows
        self.actors = dict(actors) if actors else self.models
        self.num_steps = 0
        self.drift = DriftWatch(config)
        self.critics = self._make_critics(seed) if config.credit.estimator == "gae" else {}
        owners = {self._owner(role): role for role in reversed(self.models)}  # its first role stands for it
        by_owner = {owner: self._make_optimizer(role) for owner, role in owners.items()}
        self.optimizers = {role: by_owner[self._owner(role)] for role in self.models}

    def update(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, LossStats]:
        """The clipped policy-gradient steps of every role that learns; returns the parts of its loss.

        One step, or `updates_per_batch` times one for each of `minibatches` parts of the rows.
        """
        self._set_rates()
        learning = {role: rows[role] for role in self.models if role not in self.config.frozen_roles}
        parts = self.config.minibatches
        done = [
            self.update_all({role: _take_part(of_role, part, parts) for role, of_role in learning.items()})
            for _ in range(self.config.updates_per_batch)
            for part in range(parts)
        ]
        stats = {
            role: join_stats([one[role] for one in done if role in one])
            for role in learning
            if any(role in one for one in done)
        }
        self.num_steps += 1
        self.sync_actors()
        return stats

    def update_all(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, LossStats]:
        """One step of all these roles; without any advantage the weights stay."""
        several = self.ranks.size > 1
        stats: dict[str, LossStats] = {}
        for roles in self._bases(rows):
            stats |= self._update_base({role: rows[role] for role in roles if rows[role] or several})
        return stats

    def sync_actors(self) -> None:
        """Copy the trained weights into the models that play."""
        if self.actors is not self.models:
            for role in self.first_roles():
                copy_whole(role_weights(self.models[role], role), role_weights(self.actors[role], role))

    def first_roles(self) -> list[str]:
        """One role for every set of weights."""
        return list({self._owner(role): role for role in reversed(self.models)}.values())[::-1]

    def actor_weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """The weights that play, as they are held: whole ones, each under the first role that has them."""
        return {role: role_weights(self.actors[role], role) for role in self.first_roles()}

    def _update_base(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, LossStats]:
        """One pass of all these roles' rows through the base that they share, then one step of each."""
        if not rows:
            return {}
        rows = {role: self._credit_tokens(role, of_role) for role, of_role in rows.items()}
        model = self.models[next(iter(rows))]
        model.train()
        for role in rows:
            self.optimizers[role].zero_grad()
        stats = backward_team(
            model,
            rows,
            self.config,
            references=self.references,
            kl_coefficients={role: self._kl_coefficient(role) for role in rows},
            counts={role: self._count(of_role, model) for role, of_role in rows.items()},
            agree=self._agree(model),
        )
        return self._apply(list(rows), stats)

    def _apply(self, roles: Sequence[str], stats: Mapping[str, LossStats]) -> dict[str, LossStats]:
        """Anchor, add up over ranks, scale down and step, once for every set of weights."""
        done: dict[Owner, float] = {}
        for role in roles:
            fallen = self.config.guards.anchor == "sft" and role in self.drift.fallen
            if fallen and self.anchor_rows is not None:
                model = self.models[role]
                share = 1.0 if is_sharded(model) else 1 / self.ranks.size  # all ranks have the same rows
                backward_anchor(model, self.anchor_rows(role, self.num_steps), role, self.config, share)
        owners: dict[Owner, list[str]] = {}
        for role in roles:
            owners.setdefault(self._owner(role), []).append(role)
        sets = [role_parameters(self.models[together[0]], together[0]) for together in owners.values()]
        learns = [any(stats[role].num_rows for role in together) for together in owners.values()]
        learns = self.ranks.add_gradients(sets, learns)
        for (owner, (role, *_)), parameters, is_learning in zip(owners.items(), sets, learns, strict=True):
            done[owner] = 0.0
            if is_learning:
                norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm)
                done[owner] = float(inject_loss_fault(whole(norm)))
                if math.isfinite(done[owner]):  # else the weights stay, and the norm is logged as it is
                    self.optimizers[role].step()
        return {role: replace(stats[role], grad_norm=done[self._owner(role)]) for role in roles}

    def _count(self, rows: Sequence[TrainingRow], model: nn.Module) -> RowCounts:
        """The role's rows on all ranks; FSDP divides by the ranks once more, which is undone here."""
        own = count_rows(rows)
        num_rows, num_tokens = self.ranks.sum([own.rows, own.tokens])
        divisor = self.ranks.size if is_sharded(model) else 1
        return RowCounts(rows=num_rows / divisor, tokens=num_tokens / divisor)

    def _agree(self, model: nn.Module) -> Callable[[int], int]:
        """Number of passes on which the ranks agree: only where they gather weights together."""
        return self.ranks.most if is_sharded(model) else int

    def _credit_tokens(self, role: str, rows: Sequence[TrainingRow]) -> Sequence[TrainingRow]:
        """With value heads: advantages per token in place of rewards."""
        if role not in self.critics:
            return rows
        model = self.models[role]
        credited, _ = self.critics[role].credit(model, rows, self._agree(model))
        return credited

    def _kl_coefficient(self, role: str) -> float:
        held = self.config.guards.anchor == "kl" and role in self.drift.fallen
        return max(self.config.loss.kl_coefficient, self.config.guards.anchor_coefficient if held else 0.0)

    def _bases(self, roles: Iterable[str]) -> list[list[str]]:
        """Roles with weights in the same model side by side, in the team's order."""
        bases: dict[int, list[str]] = {}
        for role in self.models:
            if role in roles:
                bases.setdefault(id(self.models[role]), []).append(role)
        return list(bases.values())

    def _owner(self, role: str) -> Owner:
        return id(self.models[role]), adapter_of(self.models[role], role)

    def _make_optimizer(self, role: str) -> torch.optim.AdamW:
        parameters, rate = role_parameters(self.models[role], role), self._peak_rate(role)
        return torch.optim.AdamW(
            parameters, lr=rate, weight_decay=0.0, betas=(0.9, 0.95), eps=self.config.adam_epsilon
        )

    def _peak_rate(self, role: str) -> float:
        return self.config.learning_rate * self.config.rate_factors.get(role, 1.0)

    def _set_rates(self) -> None:
        """The learning rates of the coming update: by the warm-up, then by the schedule."""
        share = min(1.0, (self.num_steps + 1) / (self.config.warm_up_steps + 1))
        if self.config.rate_schedule == "linear":
            share *= max(0.0, 1 - self.num_steps / max(1, self.config.max_steps))
        for role in self.first_roles():
            for group in self.optimizers[role].param_groups:
                group["lr"] = self._peak_rate(role) * share

    def _make_critics(self, seed: int) -> dict[str, Critic]:
        torch.manual_seed(seed)
        return {
            role: Critic(model.config.hidden_size, self.config, next(model.parameters()).device, self.ranks)
            for role, model in self.models.items()
        }

    def state(self) -> dict[str, Any]:
        """Weights, optimizers and position: all that the next step depends on."""
        return {
            "num_steps": self.num_steps,
            "models": {role: role_weights(self.models[role], role) for role in self.first_roles()},
            "optimizers": {role: self.optimizers[role].state_dict() for role in self.first_roles()},
            "critics": {role: critic.state() for role, critic in self.critics.items()},
            "drift": self.drift.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of another team.
        """
        self.num_steps = state["num_steps"]
        for role in self.first_roles():
            load_role_weights(self.models[role], role, state["models"][role])
            load_optimizer(self.optimizers[role], state["optimizers"][role])
        self.sync_actors()
        for role, critic in self.critics.items():
            critic.load_state(state["critics"][role])
        self.drift.load_state(state["drift"])


def _take_part(rows: Sequence[TrainingRow], part: int, parts: int) -> Sequence[TrainingRow]:
    """One of so many stretches of the rows: rows of one prompt stand together."""
    return rows[len(rows) * part // parts : len(rows) * (part + 1) // parts]
