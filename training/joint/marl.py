"""Joint multi-agent RL: the whole team learns from the team reward of joint episodes.

One step, top to bottom in `JointLearner.step`:

    scenarios -> episodes (report_sets per scenario) -> more decisions on each fixed set of reports
              -> team rewards -> scores (credit scheme) -> advantages (estimator) -> rows
              -> one update of every role

Specialists are compared across the report sets of a scenario, ReconcileGPT only among decisions on the
same reports.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.chat import Chat
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.reward import TeamRewardWeights
from training.config.run_config import MarlConfig
from training.joint.anchor import AnchorRows, backward_anchor
from training.joint.credit import SCHEMES
from training.joint.critic import Critic
from training.joint.drift import DriftWatch
from training.joint.estimators import ESTIMATORS, Advantages, ScoreGroup, normalise_role
from training.joint.governed_play import plan_metrics
from training.joint.play import JointPlay
from training.joint.played import PlayedSet, group_by_scenario
from training.joint.rows import reconciler_rows, specialist_rows
from training.joint.team_diagnostics import own_scores, step_metrics
from training.joint.vote_credit import vote_scores
from training.learner.fsdp import is_sharded, place_like, whole
from training.learner.kl import KLController
from training.learner.learner import LossStats, RowCounts, backward_role, backward_team, count_rows
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.models.adapters import named_role_parameters, role_parameters
from training.runs.checkpoints import DamagedCheckpointError
from training.runs.faults import inject_loss_fault

Owner = tuple[int, str | None]  # which model and which of its adapters: what one optimizer trains


class JointLearner:
    """All roles' models and optimizers, and the step that trains them together."""

    def __init__(
        self,
        models: Mapping[str, Any],
        config: MarlConfig,
        *,
        chat: Chat,
        reward_weights: TeamRewardWeights,
        seed: int,
        references: Mapping[str, nn.Module] | None = None,
        anchor_rows: AnchorRows | None = None,
        ranks: Ranks = ONE_RANK,
        actors: Mapping[str, Any] | None = None,
        engine: PolicyEngine | None = None,
    ) -> None:
        """`engine`: kept over all steps, new weights are new versions; None makes one each time."""
        self.engine = engine
        self.models, self.config, self.chat, self.seed = dict(models), config, chat, seed
        self.references, self.anchor_rows, self.ranks = references or {}, anchor_rows, ranks
        self.actors = dict(actors) if actors else self.models  # whole copies where the models are sharded
        self.credit = SCHEMES[config.credit]()
        self.joint_play = JointPlay(
            config=config,
            credit=self.credit,
            chat=chat,
            reward_weights=reward_weights,
            roles=tuple(self.models),
        )
        self.num_steps = 0
        self.drift = DriftWatch(config)
        self.kl = {role: KLController(config.kl_coefficient, config.kl_target) for role in self.models}
        self.critics = self._make_critics() if config.estimator == "gae" else {}
        owners = {self._owner(role): role for role in reversed(self.models)}  # its first role stands for it
        by_owner = {owner: self._make_optimizer(role) for owner, role in owners.items()}
        self.optimizers = {role: by_owner[self._owner(role)] for role in self.models}

    def _owner(self, role: str) -> Owner:
        return id(self.models[role]), adapter_of(self.models[role], role)

    def _make_optimizer(self, role: str) -> torch.optim.AdamW:
        parameters, rate = role_parameters(self.models[role], role), self._peak_rate(role)
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0, betas=(0.9, 0.95))

    def _peak_rate(self, role: str) -> float:
        return self.config.role_learning_rates.get(role, self.config.learning_rate)

    def _set_rates(self) -> None:
        """The learning rates of the coming update, by the schedule."""
        if self.config.rate_schedule == "constant":
            return
        left = max(0.0, 1 - self.num_steps / max(1, self.config.max_steps))
        for role in self._first_roles():
            for group in self.optimizers[role].param_groups:
                group["lr"] = self._peak_rate(role) * left

    def _make_critics(self) -> dict[str, Critic]:
        torch.manual_seed(self.seed)
        return {
            role: Critic(model.config.hidden_size, self.config, next(model.parameters()).device, self.ranks)
            for role, model in self.models.items()
        }

    def state(self) -> dict[str, Any]:
        """Weights, optimizers and position: what the next step depends on."""
        return {
            "num_steps": self.num_steps,
            "models": {role: full_weights(self.models[role], role) for role in self._first_roles()},
            "optimizers": {role: full_state(self.optimizers[role]) for role in self._first_roles()},
            "critics": {role: critic.state() for role, critic in self.critics.items()},
            "kl": {role: one.coefficient for role, one in self.kl.items()},
            "drift": self.drift.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of another team.
        """
        self.num_steps = state["num_steps"]
        for role in self._first_roles():
            load_role_weights(self.models[role], role, state["models"][role])
            load_full_state(self.optimizers[role], state["optimizers"][role])
        self.sync_actors()
        for role, critic in self.critics.items():
            critic.load_state(state["critics"][role])
        for role, one in self.kl.items():
            one.coefficient = state["kl"][role]
        self.drift.load_state(state["drift"])

    def _first_roles(self) -> list[str]:
        """One role for every set of weights."""
        return list({self._owner(role): role for role in reversed(self.models)}.values())[::-1]

    def step(self, scenarios: Sequence[TeamScenario]) -> dict[str, float]:
        """Play, score, credit, update; returns the step's metrics."""
        return self.learn(self.play(*self.ranks.shard(scenarios)))

    def learn(self, played: Sequence[PlayedSet]) -> dict[str, float]:
        """Credit and update on what was played; returns the step's metrics."""
        groups = group_by_scenario(played)
        rows = {role: self.rows(role, groups) for role in self.models}
        self._set_rates()
        stats = self.update_all({role: rows[role] for role in self.models if self._learns(role)})
        self.num_steps += 1
        self.sync_actors()
        drift = self.drift.update(self.ranks.mean(own_scores(played))) if played else {}
        return self.ranks.mean(step_metrics(played, rows, stats) | plan_metrics(played)) | drift

    def sync_actors(self) -> None:
        """Bring the trained weights into the copies that play."""
        if self.actors is not self.models:
            for role, model in self.models.items():
                load_role_weights(self.actors[role], role, full_weights(model, role))

    def _learns(self, role: str) -> bool:
        """Whether it is this role's turn to be trained."""
        every = self.config.alternate_every
        turn = every == 0 or ((self.num_steps // every) % 2 == 1) == (role == RECONCILER)
        return turn and role not in self.config.frozen_roles

    def play(self, scenarios: Sequence[TeamScenario], first_place: int = 0) -> list[PlayedSet]:
        """Report sets of all scenarios, with their decisions and rewards; incomplete groups are left out."""
        stream = f"marl/{self.num_steps}"
        return self.exchange(self.joint_play.play(self.make_engine(), scenarios, stream, first_place))

    def exchange(self, played: list[PlayedSet]) -> list[PlayedSet]:
        """With what reports are worth in place of one another, where credit asks and fitted practices answer.

        All ranks take part: the practices are fitted to the decisions of all of them.
        """
        if self.credit.counterfactuals == "swaps" and self.config.rescore == "practices":
            return self.joint_play.exchange_by_practice(played, self.ranks.gather)
        return played

    def make_engine(
        self, models: Mapping[str, Any] | None = None, version: int | None = None
    ) -> PolicyEngine:
        """An engine that serves the present weights of all roles, or those of `models` as that version."""
        engine = self.engine or TransformersEngine(end_id=self.chat.end_id, seed=self.seed)
        number = self.num_steps if version is None else version
        for role, model in (models or self.actors).items():
            options = {} if (adapter := adapter_of(model, role)) is None else {"adapter": adapter}
            engine.set_policy(role, model, version=f"{role}@{number}", **options)
        return engine

    def rows(self, role: str, groups: Sequence[Sequence[PlayedSet]]) -> list[TrainingRow]:
        """The role's training rows with their advantages."""
        if not groups and self.ranks.size == 1:
            return []
        decisions = self._decision_advantages(groups)
        if role == RECONCILER:
            return reconciler_rows(groups, decisions)
        scores = [
            self.credit.specialist_scores(role, [played.report_set for played in group]) for group in groups
        ]
        reports = self._estimate(
            [
                ScoreGroup(scores=tuple(of_group), greedy=group[0].greedy_episode)
                for of_group, group in zip(scores, groups, strict=True)
            ]
        )
        if self.config.protocol == "full":  # an episode has one course, and one reward for all that was said
            return specialist_rows(role, groups, reports, None)
        if self.config.rounds >= 2:
            return specialist_rows(role, groups, reports, decisions)
        return specialist_rows(role, groups, reports, None, self._vote_advantages(role, groups))

    def _vote_advantages(self, role: str, groups: Sequence[Sequence[PlayedSet]]) -> Advantages | None:
        """Votes' advantages where credit holds votes fixed; None where a report's score has them in it."""
        if self.credit.counterfactuals != "swaps":
            return None
        weights = self.joint_play.reward_weights
        if self.config.reward == "agreement_only":  # votes are not rewarded
            weights = weights.model_copy(update={"consensus": 0.0})
        scores = [tuple(vote_scores(role, group, weights)) for group in groups]
        return self._estimate([ScoreGroup(scores=of_group) for of_group in scores])

    def _decision_advantages(self, groups: Sequence[Sequence[PlayedSet]]) -> list[list[list[float]]]:
        """Advantage of every decision, by scenario and set of reports."""
        rewards = [[played.report_set.rewards for played in group] for group in groups]
        if not self.credit.pools_decisions and self.config.protocol == "assess":
            flat = self._estimate(
                [
                    ScoreGroup(scores=played.report_set.rewards, greedy=played.greedy_decision)
                    for group in groups
                    for played in group
                ]
            )
            by_set = iter(flat)
            return [[next(by_set) for _ in group] for group in groups]
        pooled = self._estimate(
            [
                ScoreGroup(scores=tuple(r for one in of_group for r in one), greedy=group[0].greedy_episode)
                for of_group, group in zip(rewards, groups, strict=True)
            ]
        )
        cut = [iter(advantages) for advantages in pooled]
        return [
            [[next(values) for _ in one] for one in of_group]
            for values, of_group in zip(cut, rewards, strict=True)
        ]

    def _estimate(self, groups: Sequence[ScoreGroup]) -> Advantages:
        advantages = ESTIMATORS[self.config.estimator](groups, self.ranks.sum)
        return normalise_role(advantages, self.ranks.sum) if self.credit.normalises_roles else advantages

    def update_all(self, rows: Mapping[str, Sequence[TrainingRow]]) -> dict[str, LossStats]:
        """One step of every role that has rows; roles on one base go through it together."""
        stats: dict[str, LossStats] = {}
        for roles in self._bases(role for role in self.models if role in rows):
            if len(roles) == 1:  # weights of its own
                if rows[roles[0]] or self.ranks.size > 1:
                    stats[roles[0]] = self.update(roles[0], rows[roles[0]])
            else:
                several = self.ranks.size > 1
                stats |= self._update_base({role: rows[role] for role in roles if rows[role] or several})
        return stats

    def _bases(self, roles: Any) -> Iterator[list[str]]:
        """Roles with weights in the same model side by side, in the team's order."""
        bases: dict[int, list[str]] = {}
        for role in roles:
            bases.setdefault(id(self.models[role]), []).append(role)
        yield from bases.values()

    def update(self, role: str, rows: Sequence[TrainingRow]) -> LossStats:
        """One clipped policy-gradient step of one role; without any advantage the weights stay."""
        rows = self._credit_tokens(role, rows)
        model = self.models[role]
        model.train()
        self.optimizers[role].zero_grad()
        stats = backward_role(
            model,
            rows,
            self.config,
            reference=self.references.get(role),
            kl_coefficient=self._kl_coefficient(role),
            counts=self._count(rows, model),
            agree=self._agree(model),
        )
        return self._apply([role], {role: stats})[role]

    def _count(self, rows: Sequence[TrainingRow], model: nn.Module) -> RowCounts:
        """The role's rows on all ranks; FSDP divides by the ranks once more, which is undone here."""
        own = count_rows(rows)
        num_rows, num_tokens = self.ranks.sum([own.rows, own.tokens])
        divisor = self.ranks.size if is_sharded(model) else 1
        return RowCounts(rows=num_rows / divisor, tokens=num_tokens / divisor)

    def _agree(self, model: nn.Module) -> Callable[[int], int]:
        """How the ranks agree on a number of passes: only where they gather weights together."""
        return self.ranks.most if is_sharded(model) else int

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
            fallen = self.config.anchor == "sft" and role in self.drift.fallen
            if fallen and self.anchor_rows is not None:
                backward_anchor(self.models[role], self.anchor_rows(role, self.num_steps), role, self.config)
        for role in roles:
            owner = self._owner(role)
            if owner in done:
                continue
            together = [other for other in roles if self._owner(other) == owner]
            parameters = role_parameters(self.models[role], role)
            has_gradient = self.ranks.add_gradients(
                parameters, has_gradient=any(p.grad is not None for p in parameters)
            )
            done[owner] = 0.0
            if has_gradient and (self.ranks.size > 1 or any(stats[one].num_rows for one in together)):
                norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm)
                done[owner] = float(inject_loss_fault(whole(norm)))
                if math.isfinite(done[owner]):  # else the weights stay, and the norm is logged as it is
                    self.optimizers[role].step()
        for role in roles:
            tokens = stats[role].num_tokens
            kl, count = self.ranks.sum([stats[role].kl * tokens, tokens])
            if count:
                self.kl[role].update(kl / count)
        return {role: replace(stats[role], grad_norm=done[self._owner(role)]) for role in roles}

    def _credit_tokens(self, role: str, rows: Sequence[TrainingRow]) -> Sequence[TrainingRow]:
        """With value heads: advantages per token in place of rewards."""
        if role not in self.critics:
            return rows
        model = self.models[role]
        credited, _ = self.critics[role].credit(model, rows, self._agree(model))
        return credited

    def _kl_coefficient(self, role: str) -> float:
        held = self.config.anchor == "kl" and role in self.drift.fallen
        return max(self.kl[role].coefficient, self.config.anchor_coefficient if held else 0.0)


def load_role_weights(model: nn.Module, role: str, stored: Mapping[str, torch.Tensor]) -> None:
    """Copy a role's weights into its model.

    Raises:
        DamagedCheckpointError: other names or shapes.
    """
    places = dict(named_role_parameters(model, role))
    if places.keys() != stored.keys() or any(places[n].shape != stored[n].shape for n in places):
        raise DamagedCheckpointError(f"the checkpoint's weights of {role} are of another model")
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(place_like(stored[name], place))


def full_weights(model: nn.Module, role: str) -> dict[str, torch.Tensor]:
    """The role's weights, gathered from all ranks where they are sharded."""
    return {name: whole(parameter.detach()) for name, parameter in named_role_parameters(model, role)}


def full_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state, gathered from all ranks where it is sharded."""
    state = optimizer.state_dict()
    moments = {
        place: {key: whole(value) if isinstance(value, torch.Tensor) else value for key, value in one.items()}
        for place, one in state["state"].items()
    }
    return {"state": moments, "param_groups": state["param_groups"]}


def load_full_state(optimizer: torch.optim.Optimizer, stored: Mapping[str, Any]) -> None:
    """Go on from `full_state`, sharded as this optimizer's parameters are."""
    places = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        place: {
            key: place_like(value, places[int(place)]) if getattr(value, "ndim", 0) else value
            for key, value in one.items()
        }
        for place, one in stored["state"].items()
    }
    optimizer.load_state_dict({"state": moments, "param_groups": stored["param_groups"]})
