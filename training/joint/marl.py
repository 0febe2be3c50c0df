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
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.marl_config import MarlConfig
from training.joint.anchor import AnchorRows
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
    ) -> None:
        """`engine`: kept over all steps, new weights are new versions; None makes one each time."""
        self.make_game = make_game
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
        return self.learn(self.play(*self.ranks.shard(scenarios)))

    def learn(self, groups: Sequence[EpisodeGroup]) -> dict[str, float]:
        """Score, credit and update on these groups; returns the step's metrics."""
        rest_engine(self.engine)
        scored = self.scorer.score(groups)
        rows = self.make_rows(scored)
        stats = self.updater.update(rows)
        metrics = self.ranks.mean(step_metrics(scored, rows, stats))
        metrics |= self.mass.update({role: stat.grad_norm for role, stat in stats.items()})
        own = {role: metrics[f"own_score/{role}"] for role in self.models if f"own_score/{role}" in metrics}
        return metrics | self.updater.drift.update(own)

    def play(self, scenarios: Sequence[TeamScenario], first_place: int = 0) -> list[EpisodeGroup]:
        """Groups of all scenarios by the present weights; incomplete groups are left out."""
        return self.player.play(self.make_engine(), scenarios, f"marl/{self.num_steps}", first_place)

    def make_rows(self, scored: Sequence[ScoredGroup]) -> dict[str, list[TrainingRow]]:
        """Every role's training rows with their advantages."""
        advantages = self.credit.assign(tuple(self.models), scored)
        return {role: make_rows(role, scored, advantages[role]) for role in self.models}

    def make_engine(
        self, models: Mapping[str, Any] | None = None, version: int | None = None
    ) -> PolicyEngine:
        """An engine that serves the present weights of all roles, or those of `models` as that version."""
        engine = self.engine or TransformersEngine(end_id=self.chat.end_id, seed=self.seed)
        number = self.num_steps if version is None else version
        for role, model in (models or self.updater.actors).items():
            options = {} if (adapter := adapter_of(model, role)) is None else {"adapter": adapter}
            engine.set_policy(role, model, version=f"{role}@{number}", **options)
        return engine

    def state(self) -> dict[str, Any]:
        """Weights, optimizers and position: all that the next step depends on."""
        return self.updater.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of another team.
        """
        self.updater.load_state(state)
