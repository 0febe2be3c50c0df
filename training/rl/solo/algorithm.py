"""GRPO of a role alone as an algorithm of the RL loop. Source: arXiv:2402.03300.

Weights that speak for several roles learn from the scenarios of all of them in one update: its loss is a mean
over the rows of all roles.
"""

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.base import Family, Scenario
from simulator.chat import Chat
from training.config.grpo_config import GrpoConfig
from training.learner.learner import LossStats, join_stats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow, make_row
from training.rl.credit.estimators import ESTIMATORS, Advantages, Estimator, compare_most_different
from training.rl.loop import Algorithm, RLLearner
from training.rl.records import ScoredSoloGroup, Total
from training.rl.solo.alarms import Alarms
from training.rl.solo.curriculum import Curriculum
from training.rl.solo.metrics import audit_episodes, group_outcomes, measure_rollouts, spread
from training.rl.solo.play import SoloPlayer
from training.rl.solo.score import Judge, SoloScorer
from training.rl.update import PolicyUpdater
from training.roles.completion_logprobs import ReferencePolicy

ALARM_ROLLOUTS = 16  # of a batch, that are audited and whose KL to the starting policy is measured
ALARM_EVERY = 5  # batches between these measurements
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCredit:
    """Compares the rewards of a scenario's episodes with each other; groups with a fault are left out."""

    estimator: Estimator
    total: Total = list  # over all ranks

    def assign(self, roles: Sequence[str], groups: Sequence[ScoredSoloGroup]) -> dict[str, Advantages]:
        """Every role's advantages, one list per usable group of the role; ranks without groups take part."""
        return {
            role: self.estimator([group.totals for group in usable_groups(role, groups)], self.total)
            for role in roles
        }

    def make_rows(
        self, groups: Sequence[ScoredSoloGroup], advantages: Mapping[str, Advantages]
    ) -> dict[str, list[TrainingRow]]:
        """One row per episode of a usable group."""
        return {
            role: [
                make_row(episode.trajectory, advantage)
                for group, of_group in zip(usable_groups(role, groups), of_role, strict=True)
                for episode, advantage in zip(group.played, of_group, strict=True)
            ]
            for role, of_role in advantages.items()
        }


def usable_groups(role: str, groups: Sequence[ScoredSoloGroup]) -> list[ScoredSoloGroup]:
    """The role's groups without a fault."""
    return [group for group in groups if group.is_usable and group.scenario.role == role]


class SoloMonitor:
    """Metrics, alarms and curriculum of GRPO, over the episodes of all ranks; a Stateful part."""

    def __init__(
        self,
        config: GrpoConfig,
        models: Mapping[str, Any],
        *,
        scorer: SoloScorer,
        families: Mapping[str, Family],
        difficulties: Sequence[int] = (),
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """`models`: that play; their weights now are those that the alarms measure KL from.

        `difficulties`: levels of the curriculum.
        """
        self._config, self._models, self._families, self._ranks = config, models, families, ranks
        self._scorer = scorer
        self.alarms = Alarms()
        self.curriculum: Curriculum | None = None
        if config.curriculum:
            self.curriculum = Curriculum(sorted(set(difficulties)))
        self._num_steps = 0
        self._reference = ReferencePolicy(next(iter(models.values())))

    def choose(self, scenarios: Sequence[Scenario], first_place: int) -> list[Scenario]:
        """These scenarios, from place `first_place` of the stage on, at the curriculum's difficulty."""
        if self.curriculum is None:
            return list(scenarios)
        return [
            self._families[one.family].generate(
                one.split, one.seed, one.index, self.curriculum.choose(first_place + place)
            )
            for place, one in enumerate(scenarios)
        ]

    def measure(
        self,
        groups: Sequence[ScoredSoloGroup],
        rows: Mapping[str, Sequence[TrainingRow]],
        stats: Mapping[str, LossStats],
    ) -> dict[str, float]:
        """Metrics of all ranks' rollouts and of the loss; the curriculum and the alarms take note."""
        everywhere = [group for part in self._ranks.gather(list(groups)) for group in part]
        usable = [group for group in everywhere if group.is_usable]
        metrics = measure_rollouts(usable) | self._ranks.mean(loss_metrics(stats))
        rewards = [reward for group in everywhere for reward in group.rewards]
        for kind in ("infrastructure", "reward"):
            metrics[f"faults/{kind}"] = float(sum(reward.fault == kind for reward in rewards))
        metrics["groups_left_out"] = 1 - len(usable) / len(everywhere)
        if self.curriculum:
            metrics |= self.curriculum.metrics()
            self.curriculum.take(group_outcomes(usable))
        if usable and self._num_steps % ALARM_EVERY == 0:
            metrics |= self._watch(usable, metrics)
        self._num_steps += 1
        return metrics | self.alarms.metrics()

    def _watch(self, groups: Sequence[ScoredSoloGroup], metrics: Mapping[str, float]) -> dict[str, float]:
        """Measure a sample of the batch for the alarms."""
        episodes = [episode for group in groups for episode in group.played]
        totals = [total for group in groups for total in group.totals]
        places = spread(len(episodes), ALARM_ROLLOUTS)
        sample = [episodes[place] for place in places]
        audit = audit_episodes(sample, self._families)
        measured = {"audit": statistics.fmean(audit)} if audit else {}
        measured["kl_to_start"] = self._reference.kl(
            next(iter(self._models.values())),
            [(one.trajectory.token_ids, one.trajectory.loss_mask) for one in sample],
            [v for one in sample for turn in one.trajectory.turns for v in turn.logprobs],
            temperature=self._config.temperature,
        )
        found = self.alarms.take(
            reward=[totals[place] for place in places],
            audit=audit,
            surprise=metrics["surprise"],
            variety=metrics["answer_variety"],
            verified=metrics["verified"],
            kl=measured["kl_to_start"],
        )
        for name, seen in found.items():
            logger.warning("alarm %s: %s", name, seen)
        return measured

    def state(self) -> dict[str, Any]:
        """Steps, alarms, curriculum and the latest faults."""
        return {
            "num_steps": self._num_steps,
            "alarms": self.alarms.state(),
            "faults": self._scorer.faults.state(),
            "curriculum": self.curriculum.state() if self.curriculum else None,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._num_steps = state["num_steps"]
        self.alarms.load_state(state["alarms"])
        self._scorer.faults.load_state(state["faults"])
        if self.curriculum:
            self.curriculum.load_state(state["curriculum"])


def loss_metrics(stats: Mapping[str, LossStats]) -> dict[str, float]:
    """Loss, KL if it was measured, entropy, gradient norm, clipping and mismatch over all roles."""
    if not stats:
        return {}
    one = join_stats(list(stats.values()))
    measured = {} if one.kl is None else {"kl": one.kl}
    return measured | {
        "loss": one.loss,
        "entropy": one.entropy,
        "grad_norm": one.grad_norm,
        "clip_fraction": one.clip_fraction,
        "mismatch_mean": statistics.fmean(stat.mismatch.mean for stat in stats.values()),
        "mismatch_max": max(stat.mismatch.largest for stat in stats.values()),
        "mismatch_kl": statistics.fmean(stat.mismatch.kl for stat in stats.values()),
        "effective_share": min(stat.mismatch.effective_share for stat in stats.values()),
    }


def make_solo_learner(
    models: Mapping[str, Any],
    config: GrpoConfig,
    *,
    player: SoloPlayer,
    chat: Chat,
    seed: int,
    name: str = "grpo",
    judge: Judge | None = None,
    difficulties: Sequence[int] = (),
    references: Mapping[str, Any] | None = None,
    ranks: Ranks = ONE_RANK,
    actors: Mapping[str, Any] | None = None,
    **options: Any,
) -> RLLearner:
    """A learner of roles alone: `models` by role, one for all that share weights.

    `name`: of its streams of chance. `judge`: a reward model. `difficulties`: levels of the curriculum.
    `references` and `actors` as in `PolicyUpdater`, the rest in `RLLearner`.
    """
    updater = PolicyUpdater(
        models, config, pools_roles=True, references=references, ranks=ranks, actors=actors
    )
    scorer = SoloScorer(config, judge=judge, ranks=ranks)
    estimator = compare_most_different(ESTIMATORS[config.credit.estimator], config.trained_per_group)
    monitor = SoloMonitor(
        config,
        updater.actors,
        scorer=scorer,
        families=player.families,
        difficulties=difficulties,
        ranks=ranks,
    )
    algorithm = Algorithm(
        name=name,
        episodes_per_case=config.group_size,
        player=player,
        scorer=scorer,
        credit=GroupCredit(estimator=estimator, total=ranks.sum),
        monitor=monitor,
    )
    return RLLearner(updater, algorithm, chat=chat, seed=seed, **options)
