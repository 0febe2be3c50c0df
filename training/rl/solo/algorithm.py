"""GRPO of a role alone as an algorithm of the RL loop, its metrics and its curriculum (arXiv:2402.03300).

Weights that speak for several roles learn from the scenarios of all of them in one update: its loss is a mean
over the rows of all roles.
"""

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.audit.answers import audit_score
from evaluation.audit.subjects import SUBJECTS
from scenarios.base import Family, Scenario
from simulator.agents.solo import SoloEpisode
from simulator.chat import Chat
from training.config.rl_config import GrpoConfig
from training.data.demonstrations import is_in_share
from training.learner.learner import LossStats, join_stats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow, make_row
from training.learner.token_logprobs import ReferencePolicy
from training.rl.credit import ESTIMATORS, Advantages, Estimator, compare_most_different
from training.rl.loop import Algorithm, RLLearner
from training.rl.records import ScoredSoloGroup, Total
from training.rl.solo.alarms import Alarms
from training.rl.solo.play import Judge, SoloPlayer, SoloScorer
from training.rl.update import PolicyUpdater


def measure_rollouts(groups: Sequence[ScoredSoloGroup]) -> dict[str, float]:
    """Reward, exactness and feasibility side by side, every reward part, limits, lengths, signal, variety.

    Groups that a fault took are not among `groups`. Nothing gives {}.
    """
    episodes = [episode for group in groups for episode in group.played]
    if not episodes:
        return {}
    rewards = [parts for group in groups for parts in group.parts]
    totals = [parts["total"] for parts in rewards]
    trajectories = [episode.trajectory for episode in episodes]
    logprobs = [one for trajectory in trajectories for turn in trajectory.turns for one in turn.logprobs]
    metrics = {
        "verified": statistics.fmean(episode.verdict.reward for episode in episodes),
        "exact": statistics.fmean(episode.verdict.exact for episode in episodes),
        "feasible": statistics.fmean(episode.verdict.feasible for episode in episodes),
        "truncated": statistics.fmean(one.truncated for one in trajectories),
        "tool_calls": statistics.fmean(one.num_tool_calls for one in trajectories),
        "tool_failures": statistics.fmean(
            one.num_tool_calls - one.num_valid_tool_calls for one in trajectories
        ),
        "turns": statistics.fmean(len(one.turns) for one in trajectories),
        "own_tokens": statistics.fmean(one.num_own for one in trajectories),
        "groups_with_signal": statistics.fmean(max(one.totals) > min(one.totals) for one in groups),
        "groups_all_wrong": statistics.fmean(max(one.totals) <= 0 for one in groups),
        "surprise": -statistics.fmean(logprobs) if logprobs else 0.0,  # unbiased estimate of the entropy
        "answer_variety": answer_variety(groups),
    }
    for part in rewards[0]:
        metrics[f"reward/{part}"] = statistics.fmean(parts[part] for parts in rewards)
    roles: dict[str, list[float]] = {}
    for episode in episodes:
        roles.setdefault(episode.scenario.role, []).append(episode.verdict.reward)
    if len(roles) > 1:
        metrics |= {f"verified/{role}": statistics.fmean(found) for role, found in roles.items()}
    return metrics | _by_difficulty(episodes, totals)


def answer_variety(groups: Sequence[ScoredSoloGroup]) -> float:
    """Share of different final texts among different scenarios, mean over places in the groups; in (0, 1].

    Agreement within a group is what training is for; the same answer to every case is not.
    """
    by_place = zip(*(group.played for group in groups), strict=True)
    answers = [[episode.trajectory.final_text for episode in one] for one in by_place]
    return statistics.fmean(len(set(one)) / len(one) for one in answers)


def _by_difficulty(episodes: Sequence[SoloEpisode], totals: Sequence[float]) -> dict[str, float]:
    found: dict[int, list[tuple[float, float]]] = {}
    for episode, total in zip(episodes, totals, strict=True):
        found.setdefault(episode.scenario.difficulty, []).append((total, episode.verdict.reward))
    metrics = {}
    for difficulty, pairs in sorted(found.items()):
        metrics[f"difficulty_{difficulty}/reward"] = statistics.fmean(total for total, _ in pairs)
        metrics[f"difficulty_{difficulty}/verified"] = statistics.fmean(verified for _, verified in pairs)
    return metrics


def spread(count: int, most: int) -> list[int]:
    """At most `most` places of 0 to count - 1, evenly spread."""
    step = max(1.0, count / most)
    return [int(i * step) for i in range(min(count, most))]


def audit_episodes(episodes: Sequence[SoloEpisode], families: Mapping[str, Family]) -> list[float]:
    """Return what the families' independent scorers say of the answers, 0 to 1; [] where a family has none.

    The scorers read the rules out of full texts, so a family in short style has none.
    """
    names = {episode.scenario.family for episode in episodes}
    if any(name not in SUBJECTS or SUBJECTS[name].family is not families[name] for name in names):
        return []
    return [
        audit_score(SUBJECTS[one.scenario.family], one.scenario, one.trajectory.final_text)
        for one in episodes
    ]


PROMOTE_AT = 0.7  # mean verified reward that begins the next level
PROMOTE_WINDOW = 32  # groups over which success is measured
REPLAY_SHARE = 0.2  # of the scenarios, from difficulties that were passed


class Curriculum:
    """The level at hand; a Stateful part of a checkpoint.

    Example: Curriculum((1, 2, 5)).choose(0) == 1
    """

    def __init__(
        self,
        difficulties: Sequence[int],
        *,
        promote_at: float = PROMOTE_AT,
        window: int = PROMOTE_WINDOW,
        replay: float = REPLAY_SHARE,
    ) -> None:
        self._levels = sorted(difficulties)
        self._promote_at, self._window, self._replay = promote_at, window, replay
        self._level = 0
        self._recent: list[float] = []  # mean verified reward of the latest groups at this level

    @property
    def difficulty(self) -> int:
        """The difficulty that is being learnt."""
        return self._levels[self._level]

    def choose(self, index: int) -> int:
        """Difficulty of the index-th scenario: the level's, or for `replay` of them one that was passed."""
        if not is_in_share(index, self._replay) or self._level == 0:
            return self.difficulty
        return self._levels[int(index * self._replay) % self._level]

    def take(self, outcomes: Sequence[tuple[int, float]]) -> None:
        """Note groups as (difficulty, mean verified reward), and go up a level where it is due."""
        self._recent += [success for difficulty, success in outcomes if difficulty == self.difficulty]
        self._recent = self._recent[-self._window :]
        is_due = len(self._recent) == self._window and statistics.fmean(self._recent) >= self._promote_at
        if is_due and self._level + 1 < len(self._levels):
            self._level += 1
            self._recent = []

    def metrics(self) -> dict[str, float]:
        """Metrics to log: the level's difficulty, and success there so far (0 before the first group)."""
        success = statistics.fmean(self._recent) if self._recent else 0.0
        return {"curriculum/difficulty": float(self.difficulty), "curriculum/success": success}

    def state(self) -> Mapping[str, Any]:
        return {"level": self._level, "recent": list(self._recent)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._level, self._recent = state["level"], list(state["recent"])


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
            self.curriculum.take(
                [
                    (one.scenario.difficulty, statistics.fmean(play.verdict.reward for play in one.played))
                    for one in usable
                ]
            )
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
        "mismatch_call": max(stat.mismatch.worst_call for stat in stats.values()),
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
