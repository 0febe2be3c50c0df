"""Joint multi-agent RL: the whole team learns from the team reward of joint episodes.

One step, top to bottom:

    scenarios -- play --> groups of episodes -- score --> scored groups -- credit --> advantages
              -- rows --> training rows -- update --> new weights of every role

Specialists are compared across the report sets of a scenario, ReconcileGPT among decisions on the same
reports. The loop knows no protocol, credit scheme or estimator: `protocols.py` chooses them once.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from scenarios.team import PlanGame, TeamScenario
from simulator.chat import Chat
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.marl_config import MarlConfig
from training.joint.anchor import AnchorRows
from training.joint.hosts.host import Job, RolloutHost, cut_jobs, serve_roles
from training.joint.hosts.pool import HostPool
from training.joint.metrics import step_metrics
from training.joint.protocols import choose_step
from training.joint.records import EpisodeGroup, ScoredGroup
from training.joint.rows import make_rows
from training.joint.update import TeamUpdater
from training.joint.watches import MassWatch
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.models.engine_factory import rest_engine

SHORT_GAME: MakeGame = partial(PlanGame, style="short")


class JointLearner:
    """A team with the strategies of its config, and the step that trains all roles together."""

    def __init__(
        self,
        models: Mapping[str, Any],
        config: MarlConfig,
        *,
        chat: Chat,
        reward_weights: TeamRewardWeights,
        seed: int,
        make_game: MakeGame = SHORT_GAME,
        references: Mapping[str, nn.Module] | None = None,
        anchor_rows: AnchorRows | None = None,
        ranks: Ranks = ONE_RANK,
        actors: Mapping[str, Any] | None = None,
        engine: PolicyEngine | None = None,
        hosts: HostPool | None = None,
        block_size: int = 0,
    ) -> None:
        """`engine`: kept over all steps, new weights are new versions; None makes one each time.

        `hosts`: play in place of this process, all ranks' cases on rank 0's; None plays here. `block_size`:
        cases that are played side by side, 0 for all: log-probabilities depend on it by their rounding.
        """
        self.make_game, self.hosts, self.block_size = make_game, hosts, block_size
        self.config, self.chat, self.seed, self.ranks, self.engine = config, chat, seed, ranks, engine
        self.updater = TeamUpdater(
            models,
            config,
            seed=seed,
            references=references,
            anchor_rows=anchor_rows,
            ranks=ranks,
            actors=actors,
        )
        step = choose_step(
            config,
            chat=chat,
            weights=reward_weights,
            roles=tuple(self.models),
            make_game=make_game,
            total=ranks.sum,
        )
        self.player, self.scorer, self.credit = step.player, step.scorer, step.credit
        self.mass = MassWatch()

    @property
    def models(self) -> Mapping[str, Any]:
        """The model of every role."""
        return self.updater.models

    @property
    def num_steps(self) -> int:
        """Updates so far."""
        return self.updater.num_steps

    def step(self, scenarios: Sequence[TeamScenario]) -> dict[str, float]:
        """Play these scenarios and learn from them; returns the step's metrics."""
        if self.hosts is None:
            return self.learn(self.play(*self.ranks.shard(scenarios)))
        return self.learn(self.take_own(self.play(scenarios), scenarios))

    def take_own(self, groups: list[EpisodeGroup], scenarios: Sequence[TeamScenario]) -> list[EpisodeGroup]:
        """This rank's part of the groups that rank 0's hosts played of these scenarios."""
        own = {scenario.key for scenario in self.ranks.shard(scenarios)[0]}
        return [group for group in self.ranks.first(groups) if group.scenario.key in own]

    def learn(self, groups: Sequence[EpisodeGroup]) -> dict[str, float]:
        """Score, credit and update on these groups; returns the step's metrics."""
        rest_engine(self.engine)
        scored = self.scorer.score(groups)
        rows = self.make_rows(scored)
        stats = self.updater.update(rows)
        metrics = self.ranks.mean(step_metrics(scored, rows, stats))
        if self.hosts is not None and self.ranks.rank == 0:
            metrics["hosts_lost"] = float(self.hosts.num_lost)
        metrics |= self.mass.update({role: stat.grad_norm for role, stat in stats.items()})
        own = {role: metrics[f"own_score/{role}"] for role in self.models if f"own_score/{role}" in metrics}
        return metrics | self.updater.drift.update(own)

    def play(self, scenarios: Sequence[TeamScenario], first_place: int = 0) -> list[EpisodeGroup]:
        """Groups of all scenarios by the present weights; incomplete groups are left out."""
        return self._play(self.cut_jobs(scenarios, self.num_steps, first_place))

    def play_greedily(self, scenarios: Sequence[TeamScenario], stream: str) -> list[EpisodeGroup]:
        """One episode of every scenario by the present weights at temperature 0, the same on all ranks.

        Raises:
            InfrastructureError: an episode was lost.
        """
        size = self.block_size * self.config.report_sets  # as many episodes side by side as in a step
        groups = self._play(cut_jobs(scenarios, stream, block_size=size, is_greedy=True))
        return groups if self.hosts is None else self.ranks.first(groups)

    def cut_jobs(self, scenarios: Sequence[TeamScenario], step: int, first_place: int = 0) -> list[Job]:
        """The jobs that play a step's scenarios."""
        return cut_jobs(scenarios, f"marl/{step}", block_size=self.block_size, first_place=first_place)

    def _play(self, jobs: Sequence[Job]) -> list[EpisodeGroup]:
        if self.hosts is not None:
            return self.hosts.play(self.updater.actor_weights(), self.num_steps, jobs)
        return self.play_here(self.updater.actors, self.num_steps, jobs)

    def play_here(self, models: Mapping[str, Any], version: int, jobs: Sequence[Job]) -> list[EpisodeGroup]:
        """Play in this process what hosts would, by these models, which are of that version."""
        host = RolloutHost(models, self.player, self._open_engine)
        return [group for job in jobs for group in host.play_with(models, job, version)]

    def make_rows(self, scored: Sequence[ScoredGroup]) -> dict[str, list[TrainingRow]]:
        """Every role's training rows with their advantages."""
        advantages = self.credit.assign(tuple(self.models), scored)
        return {role: make_rows(role, scored, advantages[role]) for role in self.models}

    def make_engine(self) -> PolicyEngine:
        """An engine that serves the present weights of all roles."""
        return serve_roles(self._open_engine(), self.updater.actors, self.num_steps)

    def _open_engine(self) -> PolicyEngine:
        return self.engine or TransformersEngine(end_id=self.chat.end_id, seed=self.seed)

    def state(self) -> dict[str, Any]:
        """Weights, optimizers and position: all that the next step depends on."""
        return self.updater.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of another team.
        """
        self.updater.load_state(state)
