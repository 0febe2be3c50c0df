"""The RL loop, the same for a role alone (GRPO) and for the team (joint training).

One step, top to bottom:

    scenarios -- play --> groups of episodes -- score --> scored groups -- credit --> advantages
              -- rows --> training rows -- update --> new weights

`Algorithm` holds what differs: training/rl/solo for a role alone, training/rl/team for the team. The loop
knows no protocol, reward, credit scheme or estimator.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from roles.errors import InfrastructureError
from simulator.chat import Chat
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from training.learner.learner import LossStats
from training.learner.ranks import Ranks
from training.learner.rows import TrainingRow
from training.models.adapters import role_weights
from training.models.engine_factory import release_engine_memory
from training.rl.critic import ValueHeads
from training.rl.hosts import HostPool, Job, Player, RolloutHost, cut_jobs
from training.rl.update import PolicyUpdater
from training.runs.resume import BestKeeper

Rows = Mapping[str, Sequence[TrainingRow]]  # by role
MOST_MISMATCH = 1.0  # nats per token of a completion; rounding in bfloat16 makes some hundredths


class Scorer(Protocol):
    """Scores groups of episodes."""

    def score(self, groups: Sequence[Any]) -> Sequence[Any]:
        """The groups with a reward for every episode."""
        ...

    def score_validation(self, groups: Sequence[Any]) -> tuple[list[float], dict[str, float]]:
        """The score of every greedy play, higher is better, and metrics."""
        ...


class Credit(Protocol):
    """Turns rewards into advantages, and advantages into training rows."""

    def assign(self, roles: Sequence[str], groups: Sequence[Any]) -> Mapping[str, Any]:
        """Every role's advantages, aligned with the groups."""
        ...

    def make_rows(self, groups: Sequence[Any], advantages: Mapping[str, Any]) -> Rows:
        """Every role's rows: the sampled ids as they are, with their advantages."""
        ...


class Monitor(Protocol):
    """Measures a step; a Stateful part of a checkpoint."""

    def measure(self, groups: Sequence[Any], rows: Rows, stats: Mapping[str, LossStats]) -> dict[str, float]:
        """Metrics of a step over all ranks."""
        ...

    def state(self) -> dict[str, Any]:
        """State that later measurements depend on."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Play, rewards, credit and metrics of a stage."""

    name: str  # of its streams of chance
    episodes_per_case: int  # of a group, on different turns of the policies
    player: Player
    scorer: Scorer
    credit: Credit
    monitor: Monitor


class RLLearner:
    """Policies with an algorithm, and the step that trains them."""

    def __init__(
        self,
        updater: PolicyUpdater,
        algorithm: Algorithm,
        *,
        chat: Chat,
        seed: int,
        engine: PolicyEngine | None = None,
        hosts: HostPool | None = None,
        block_size: int = 0,
    ) -> None:
        """`engine`: kept over all steps, new weights are new versions; None makes one each time.

        `hosts`: play in place of this process, all ranks' cases on rank 0's; None plays here. `block_size`:
        cases that are played side by side, 0 for all; batch size changes rounding.
        """
        self.updater, self.algorithm, self.chat, self.seed = updater, algorithm, chat, seed
        self.engine, self.hosts, self.block_size = engine, hosts, block_size
        uses_values = updater.config.credit.estimator == "gae"
        self.values = ValueHeads(updater, seed=seed) if uses_values else None
        self.player, self.scorer = algorithm.player, algorithm.scorer
        self.credit, self.monitor = algorithm.credit, algorithm.monitor
        self.grad_norms: list[float] = []  # of the latest step, by role that learns

    @property
    def config(self) -> Any:
        """The stage's settings."""
        return self.updater.config

    @property
    def models(self) -> Mapping[str, Any]:
        """The model of every role."""
        return self.updater.models

    @property
    def ranks(self) -> Ranks:
        """This process among those that train together."""
        return self.updater.ranks

    @property
    def num_steps(self) -> int:
        """Batches learnt from so far."""
        return self.updater.num_steps

    def step(self, scenarios: Sequence[Any]) -> dict[str, float]:
        """Play these scenarios and learn from them; returns the step's metrics."""
        own, first_place = self.ranks.shard(scenarios) if self.hosts is None else (scenarios, 0)
        groups = self.select_rank_groups(self.play(own, first_place), scenarios)
        return self.learn(groups)

    def learn(self, groups: Sequence[Any]) -> dict[str, float]:
        """Score, credit and update on groups of episodes; returns the step's metrics.

        Raises:
            InfrastructureError: see `check_engine`.
        """
        release_engine_memory(self.engine)
        scored = self.scorer.score(groups)
        advantages = self.credit.assign(tuple(self.models), scored)
        rows = self.credit.make_rows(scored, advantages)
        if self.values is not None:
            rows = self.values.credit(rows)
        stats = self.updater.update(rows)
        self.grad_norms = [stat.grad_norm for stat in stats.values()]
        metrics = self.monitor.measure(scored, rows, stats)
        if not self.config.max_staleness:
            check_engine(metrics)
        if self.values is not None:
            metrics |= {f"critic_error/{role}": error for role, error in self.values.errors.items()}
        if self.hosts is not None and self.ranks.rank == 0:
            metrics["hosts_lost"] = float(self.hosts.num_lost)
        return metrics

    def validate(self, scenarios: Sequence[Any]) -> tuple[list[float], dict[str, float]]:
        """Scores of one play of each scenario by the present weights, and their metrics.

        Plays are sampled as in a step, each time by the same random numbers. Ranks share the scenarios, and
        all of them get all scores.

        Raises:
            InfrastructureError: an episode was lost.
        """
        own, first_place = (scenarios, 0) if self.hosts is not None else self.ranks.shard(scenarios)
        size = self.block_size * self.algorithm.episodes_per_case  # as many episodes at a time as in a step
        jobs = cut_jobs(own, "validation", block_size=size, first_place=first_place, is_validation=True)
        groups = self._play(jobs) if own else ()
        release_engine_memory(self.engine)
        parts = self.ranks.gather(self.scorer.score_validation(groups) if groups else ([], {}))
        scores = [score for of_rank, _ in parts for score in of_rank]
        names = next((metrics for of_rank, metrics in parts if of_rank), {})
        return scores, {
            name: sum(metrics[name] * len(of_rank) for of_rank, metrics in parts if of_rank) / len(scores)
            for name in names
        }

    def play(self, scenarios: Sequence[Any], first_place: int = 0) -> Sequence[Any]:
        """Groups of all these scenarios by the present weights."""
        return self._play(self.cut_jobs(scenarios, self.num_steps, first_place))

    def select_rank_groups(self, groups: Sequence[Any], scenarios: Sequence[Any]) -> Sequence[Any]:
        """This rank's part of the groups, if rank 0's hosts played these scenarios; else all."""
        if self.hosts is None:
            return groups
        parts: list[list[Any]] = [[] for _ in range(self.ranks.size)]
        if self.ranks.rank == 0:
            for rank, part in enumerate(parts):
                own = {one.key for one in replace(self.ranks, rank=rank).shard(scenarios)[0]}
                part += [group for group in groups if group.scenario.key in own]
        return self.ranks.scatter(parts)

    def cut_jobs(self, scenarios: Sequence[Any], step: int, first_place: int = 0) -> list[Job]:
        """The jobs that play a step's scenarios."""
        stream = f"{self.algorithm.name}/{step}"
        return cut_jobs(scenarios, stream, block_size=self.block_size, first_place=first_place)

    def _play(self, jobs: Sequence[Job]) -> Sequence[Any]:
        if self.hosts is not None:
            return self.hosts.play(self.updater.actor_weights(), self.num_steps, jobs)
        return self.play_here(self.updater.actors, self.num_steps, jobs)

    def play_here(self, models: Mapping[str, Any], version: int, jobs: Sequence[Job]) -> list[Any]:
        """Play in this process what hosts would, by these models, which are of that version."""
        host = RolloutHost(models, self.player, self._open_engine)
        return [group for job in jobs for group in host.play_with(models, job, version)]

    def _open_engine(self) -> PolicyEngine:
        return self.engine or TransformersEngine(end_id=self.chat.end_id, seed=self.seed)

    def state(self) -> dict[str, Any]:
        """Weights, optimizers, position and measurements: all that the next step depends on."""
        values = {} if self.values is None else {"values": self.values.state()}
        return {**self.updater.state(), "monitor": self.monitor.state(), **values}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            DamagedCheckpointError: it holds the weights of other policies.
        """
        self.updater.load_state(state)
        self.monitor.load_state(state["monitor"])
        if self.values is not None:
            self.values.load_state(state["values"])


def check_engine(metrics: Mapping[str, float]) -> None:
    """Check that completions were sampled by the weights that learn from them, by their likelihoods.

    An engine that answers with another adapter, or with likelihoods before the temperature, is found here.

    Raises:
        InfrastructureError: the learner is over `MOST_MISMATCH` from the engine in some completion.
    """
    for name, found in metrics.items():
        kind, _, role = name.partition("/")
        if kind == "mismatch_call" and not found <= MOST_MISMATCH:
            raise InfrastructureError(
                f"engine and learner differ by {found:.2f} nats per token in a completion"
                f"{f' of {role}' if role else ''} (at most {MOST_MISMATCH:g}): the engine sampled with other"
                f" weights, or reports other likelihoods (vLLM: --logprobs-mode processed_logprobs);"
                f" the step is not kept"
            )


class BestWeights(BestKeeper):
    """The best validation so far, sampled as in training, with a copy of its weights."""

    def __init__(self, learner: RLLearner, scenarios: Sequence[Any], *, patience: int = 0) -> None:
        super().__init__(self._list_weights, patience=patience)
        self.learner, self.scenarios = learner, scenarios
        self.rewards: list[float] = []  # of the best validation, case by case

    def _list_weights(self) -> dict[str, Tensor]:
        models, roles = self.learner.models, self.learner.updater.first_roles()
        return {
            f"{role}/{name}": tensor
            for role in roles
            for name, tensor in role_weights(models[role], role).items()
        }

    def validate(self) -> dict[str, float]:
        """Mean score now (one number for all ranks), kept with the weights if it is the best.

        `validation_fall` is how far it lies below the best one, with its standard error over the same cases.
        """
        rewards, metrics = self.learner.validate(self.scenarios)
        reward = sum(rewards) / len(rewards)
        if self.offer(self.learner.num_steps, reward):
            self.rewards = rewards
        falls = [best - now for best, now in zip(self.rewards, rewards, strict=True)]
        error = statistics.stdev(falls) / math.sqrt(len(falls)) if len(falls) > 1 else 0.0
        return {
            "validation_reward": reward,
            "best_step": float(self.best_step),
            "validation_fall": statistics.fmean(falls),
            "validation_fall_error": error,
            **metrics,
        }

    def restore(self) -> int:
        """Give the models the best validated weights back; returns the step that the weights are of."""
        step = super().restore()
        self.learner.updater.sync_actors()
        return self.learner.num_steps if step < 0 else step

    def state(self) -> dict[str, Any]:
        return {**super().state(), "rewards": self.rewards}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.rewards = list(state["rewards"])
