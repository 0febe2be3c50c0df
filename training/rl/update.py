"""Updates policies: training rows to new weights, one optimizer step of every role.

Roles on one base go through it together. Models and optimizers live here.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from simulator.engines.adapter_names import adapter_of
from training.config.rl_config import RLConfig
from training.learner.fsdp import copy_whole, is_sharded, whole
from training.learner.learner import KeptLogprobs, LossStats, RowCounts, backward_team, count_rows, join_stats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.models.adapters import named_role_parameters, role_parameters, role_weights
from training.runs.faults import fault_point
from training.runs.resume import load_optimizer, load_tensors

Owner = tuple[int, str | None]  # a model and one of its adapters: the weights that one optimizer trains


class PolicyUpdater:
    """The models and optimizers of all roles."""

    def __init__(
        self,
        models: Mapping[str, Any],
        config: RLConfig,
        *,
        rate_factors: Mapping[str, float] = {},
        pools_roles: bool = False,
        references: Mapping[str, nn.Module] | None = None,
        ranks: Ranks = ONE_RANK,
        actors: Mapping[str, Any] | None = None,
    ) -> None:
        """`models`: by role. `rate_factors`: of single roles' peak rates; a role with 0 never learns.

        `pools_roles`: the loss is a mean over the rows of all roles that share weights; else each role has a
        mean of its own, and they are added up. `references`: role -> the model that KL is measured from.
        `actors`: whole copies that play, in any precision; None plays the models themselves.
        """
        self.models, self.config, self.ranks = dict(models), config, ranks
        self.rate_factors = rate_factors
        self.frozen_roles = frozenset(role for role, factor in rate_factors.items() if not factor)
        self.references, self.pools_roles = references or {}, pools_roles
        self.actors = dict(actors) if actors else self.models
        self.num_steps = 0
        owners = {self._owner(role): role for role in reversed(self.models)}  # keyed by its first role
        by_owner = {owner: self._make_optimizer(role) for owner, role in owners.items()}
        self.optimizers = {role: by_owner[self._owner(role)] for role in self.models}

    def update(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, LossStats]:
        """The clipped policy-gradient steps of every role that learns; returns the parts of its loss.

        One step, or `updates_per_batch` times one for each of `minibatches` parts of the rows.
        """
        self._set_rates()
        learning = {role: rows[role] for role in self.models if role not in self.frozen_roles}
        parts, kept = self.config.minibatches, KeptLogprobs()
        done = [
            self.update_all(
                {
                    role: of_role[len(of_role) * part // parts : len(of_role) * (part + 1) // parts]
                    for role, of_role in learning.items()
                },  # stretches: rows of one prompt stand together
                kept,
            )
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

    def update_all(
        self, rows: Mapping[str, Sequence[TrainingRow]], kept: KeptLogprobs | None = None
    ) -> dict[str, LossStats]:
        """One step of all these roles; without any advantage the weights stay. `kept`: as `backward_team`."""
        several = self.ranks.size > 1
        stats: dict[str, LossStats] = {}
        for roles in self._bases(rows):
            stats |= self._update_base(
                {role: rows[role] for role in roles if rows[role] or several}, {} if kept is None else kept
            )
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

    def whole_models(self) -> dict[str, Any]:
        """Models with the whole trained weights as they were trained; all ranks call it, after the last play.

        Sharded weights go into the actors, which then have the precision that learns.
        """
        if not any(is_sharded(model) for model in self.models.values()):
            return self.models
        for role in self.first_roles():
            trained = role_weights(self.models[role], role)
            for name, parameter in named_role_parameters(self.actors[role], role):
                parameter.data = parameter.data.to(trained[name].dtype)
        self.sync_actors()
        return self.actors

    def _update_base(
        self, rows: Mapping[str, Sequence[TrainingRow]], kept: KeptLogprobs
    ) -> dict[str, LossStats]:
        """One pass of all these roles' rows through the base that they share, then one step of each."""
        if not rows:
            return {}
        model = self.models[next(iter(rows))]
        model.train()
        for role in rows:
            self.optimizers[role].zero_grad()
        stats = backward_team(
            model,
            rows,
            self.config,
            references=self.references,
            counts=self._count(rows, model),
            agree=self.passes_agreement(model),
            kept=kept,
        )
        return self._apply(list(rows), stats)

    def _apply(self, roles: Sequence[str], stats: Mapping[str, LossStats]) -> dict[str, LossStats]:
        """Add up over ranks, scale down and step, once for every set of weights."""
        done: dict[Owner, float] = {}
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
                done[owner] = float(fault_point("loss", whole(norm)))
                if math.isfinite(done[owner]):  # else the weights stay, and the norm is logged as it is
                    self.optimizers[role].step()
        return {
            role: replace(
                stats[role],
                loss=stats[role].loss / self._num_divisors(self.models[role]),
                grad_norm=done[self._owner(role)],
            )
            for role in roles
        }

    def _count(self, rows: Mapping[str, Sequence[TrainingRow]], model: nn.Module) -> dict[str, RowCounts]:
        """Every role's divisors over all ranks; FSDP divides by the ranks once more, undone here."""
        own = {role: count_rows(of_role) for role, of_role in rows.items()}
        if self.pools_roles:
            owners = {role: [one for one in rows if self._owner(one) == self._owner(role)] for role in rows}
            own = {
                role: RowCounts(
                    rows=sum(own[one].rows for one in together),
                    tokens=sum(own[one].tokens for one in together),
                )
                for role, together in owners.items()
            }
        divisor = self._num_divisors(model)
        counts = {}
        for role, of_role in own.items():
            num_rows, num_tokens = self.ranks.sum([of_role.rows, of_role.tokens])
            counts[role] = RowCounts(rows=num_rows / divisor, tokens=num_tokens / divisor)
        return counts

    def _num_divisors(self, model: nn.Module) -> int:
        """By how much FSDP divides gradients: losses of its ranks are as much larger."""
        return self.ranks.size if is_sharded(model) else 1

    def passes_agreement(self, model: nn.Module) -> Callable[[int], int]:
        """Function that makes a number of passes the same on all ranks, if they gather weights together."""
        return self.ranks.most if is_sharded(model) else int

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
            parameters,
            lr=rate,
            weight_decay=0.0,
            betas=(0.9, 0.95),
            eps=self.config.adam_epsilon,
            fused=True if all(one.is_cuda for one in parameters) else None,  # else one by one, where sharded
        )

    def _peak_rate(self, role: str) -> float:
        return self.config.learning_rate * self.rate_factors.get(role, 1.0)

    def _set_rates(self) -> None:
        """The learning rates of the coming update: by the warm-up, then by the schedule."""
        share = min(1.0, (self.num_steps + 1) / (self.config.warm_up_steps + 1))
        if self.config.rate_schedule == "linear":
            share *= max(0.0, 1 - self.num_steps / max(1, self.config.max_steps))
        for role in self.first_roles():
            for group in self.optimizers[role].param_groups:
                group["lr"] = self._peak_rate(role) * share

    def state(self) -> dict[str, Any]:
        """Weights, optimizers and position: all that the next step depends on."""
        return {
            "num_steps": self.num_steps,
            "models": {role: role_weights(self.models[role], role) for role in self.first_roles()},
            "optimizers": {role: self.optimizers[role].state_dict() for role in self.first_roles()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of another team.
        """
        self.num_steps = state["num_steps"]
        for role in self.first_roles():
            load_tensors(state["models"][role], role_weights(self.models[role], role))
            load_optimizer(self.optimizers[role], state["optimizers"][role])
        self.sync_actors()
