"""Episodes of GRPO: TRL's `rollout_func` plays our environments with the weights in training.

Scores, left-out groups, alarms and the curriculum of a batch are here; the trainer is training/roles/grpo.py.
"""

import asyncio
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES
from scenarios.rewards import role_reward
from scenarios.tasks.sandbox import find_sandbox
from scenarios.tool_executor import ResultCache
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.chat import Chat
from simulator.engines.base import PolicyEngine, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.config.grpo_config import GrpoConfig
from training.models.engine_factory import rest_engine
from training.roles.alarms import Alarms
from training.roles.completion_logprobs import ReferencePolicy
from training.roles.curriculum import Curriculum
from training.roles.rollout_metrics import (
    audit_episodes,
    group_outcomes,
    measure_rollouts,
    spread,
    training_columns,
)
from training.roles.scoring import FaultWindow, Judge, Scored, add_model_scores, score_all, usable_groups
from training.roles.trainer_ranks import own_rank, share
from training.runs.faults import spoil_reward

logger = logging.getLogger(__name__)


def episode_reward(episode: SoloEpisode, config: GrpoConfig) -> dict[str, float]:
    """Every part of the verified training reward of one episode, and its "total"."""
    trajectory = episode.trajectory
    return role_reward(
        episode.verdict,
        num_steps=len(trajectory.turns),
        optimal_steps=episode.scenario.optimal_tool_calls + 1,
        max_steps=config.max_turns,
        num_calls=trajectory.num_tool_calls,
        num_valid_calls=trajectory.num_valid_tool_calls,
        preset=config.reward,
        weights=config.reward_weights,
    )


def read_transcripts(played: Sequence[SoloEpisode | Exception]) -> list[Sequence[int] | None]:
    """Token ids of every episode; None in the place of an exception."""
    return [one.trajectory.token_ids if isinstance(one, SoloEpisode) else None for one in played]


class Rollouts:
    """TRL's `rollout_func`: plays each prompt (a position in `scenarios`) with the weights in training."""

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        *,
        role: str,
        chat: Chat,
        config: GrpoConfig,
        seed: int,
        families: Mapping[str, Family] = FAMILIES,
        roles: Mapping[str, Role] = ROLES,
        engine: PolicyEngine | None = None,
        judge: Judge | None = None,
    ) -> None:
        """`engine`: kept over all steps; None makes an embedded one for every batch. `judge`: reward model.

        Raises:
            UserError: code agents where no sandbox works.
        """
        if config.agent == "code":
            find_sandbox()
        self._engine = engine
        self._scenarios, self._role, self._chat = scenarios, role, chat
        self._config, self._seed = config, seed
        self._families, self._roles, self._judge = families, roles, judge
        self.episodes: list[SoloEpisode] = []  # of the latest call, without groups that were left out
        self.metrics: dict[str, float] = {}  # of the latest call
        self.row_scale = 1.0  # rows of the latest call per row that counts; 0 where none does
        self.alarms = Alarms()
        self.curriculum: Curriculum | None = None
        if config.curriculum:
            self.curriculum = Curriculum(
                sorted({scenario.difficulty for scenario in scenarios}),
                promote_at=config.promote_at,
                window=config.promote_window,
                replay=config.curriculum_replay,
            )
        self._faults = FaultWindow()
        self._reference: ReferencePolicy | None = None
        self._num_calls = 0

    def begin(self, model: PreTrainedModel) -> None:
        """Before the first step of the stage: these are the weights that KL is measured from."""
        if self._config.guards.alarm_every:
            self._reference = ReferencePolicy(model)

    def state(self) -> dict[str, Any]:
        """State that later calls and log lines depend on."""
        return {
            "num_calls": self._num_calls,
            "metrics": self.metrics,
            "row_scale": self.row_scale,
            "alarms": self.alarms.state(),
            "faults": self._faults.state(),
            "curriculum": self.curriculum.state() if self.curriculum else None,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._num_calls, self.metrics = state["num_calls"], state["metrics"]
        self.row_scale = state["row_scale"]
        self.alarms.load_state(state["alarms"])
        self._faults.load_state(state["faults"])
        if self.curriculum:
            self.curriculum.load_state(state["curriculum"])

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        self._num_calls += 1
        config, model = self._config, trainer.find_actor()
        played = self.play(
            model,
            [self._choose(int(prompt)) for prompt in prompts],
            version=f"{self._role}@{trainer.state.global_step}",
            temperature=config.temperature,
            stream=f"grpo/{self._num_calls}",
            first_place=own_rank() * len(prompts),
        )
        own_scored = score_all(played, self._score, timeout_s=config.reward_timeout_s)
        weights = (config.verifier_weight, config.model_weight)
        own_scored = add_model_scores(own_scored, read_transcripts(played), self._judge, weights)
        # all that is measured and decided from here on is of all ranks, and the same in each of them
        scored = share(own_scored)
        everywhere = share([one if isinstance(one, SoloEpisode) else None for one in played])
        usable = usable_groups(scored, config.group_size)
        kept = [
            (episode, one.parts)
            for episode, one, counts in zip(everywhere, scored, usable, strict=True)
            if counts and episode is not None and one.parts is not None
        ]
        self.episodes = [episode for episode, _ in kept]
        self.row_scale = len(scored) / len(kept) if kept else 0.0
        self.metrics = self._measure([parts for _, parts in kept], scored, model)
        self._faults.take(scored, num_usable=len(kept))
        own_usable = usable_groups(own_scored, config.group_size)
        own = [
            one if counts and isinstance(one, SoloEpisode) else None
            for one, counts in zip(played, own_usable, strict=True)
        ]
        columns = training_columns(own, self._chat.end_id)
        totals = [
            one.parts["total"] if one.parts and counts else None
            for one, counts in zip(own_scored, own_usable, strict=True)
        ]
        return columns | {"verified_reward": totals}

    def play(
        self,
        model: PreTrainedModel,
        scenarios: Sequence[Scenario],
        *,
        version: str,
        temperature: float,
        stream: str,
        first_place: int = 0,
    ) -> list[SoloEpisode | Exception]:
        """One episode per scenario; what a play raises stands in its place. The engine rests afterwards.

        `first_place`: of these among the scenarios of all ranks, which sample as one process would.
        """
        config, results = self._config, ResultCache()
        engine = self._engine or TransformersEngine(end_id=self._chat.end_id, seed=self._seed)
        engine.set_policy(self._role, model, version=version)
        sampling = Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)

        async def play_all() -> list[Any]:
            plays = (
                play_solo(
                    scenario,
                    policy=self._role,
                    engine=engine,
                    chat=self._chat,
                    sampling=sampling,
                    session=f"{stream}/{position}/{scenario.key}",
                    max_turns=config.max_turns,
                    max_failed_calls=config.max_failed_calls,
                    families=self._families,
                    roles=self._roles,
                    results=results,
                    kind=config.agent,
                )
                for position, scenario in enumerate(scenarios, start=first_place)
            )
            return await asyncio.gather(*plays, return_exceptions=True)

        played = asyncio.run(play_all())
        rest_engine(self._engine)
        return played

    def validate(
        self, model: PreTrainedModel, scenarios: Sequence[Scenario]
    ) -> tuple[float, dict[str, float]]:
        """Mean verified reward of greedy play, and what to log; episodes that an engine lost do not count."""
        played = self.play(model, scenarios, version="validation", temperature=0.0, stream="validation")
        verdicts = [episode.verdict for episode in played if isinstance(episode, SoloEpisode)]
        if not verdicts:
            return math.nan, {}
        verified = statistics.fmean(verdict.reward for verdict in verdicts)
        return verified, {
            "validation/verified": verified,
            "validation/exact": statistics.fmean(verdict.exact for verdict in verdicts),
            "validation/feasible": statistics.fmean(verdict.feasible for verdict in verdicts),
        }

    def _choose(self, index: int) -> Scenario:
        scenario = self._scenarios[index]
        if self.curriculum is None:
            return scenario
        difficulty = self.curriculum.choose(index)
        generate = self._families[scenario.family].generate
        return generate(scenario.split, scenario.seed, scenario.index, difficulty)

    def _score(self, episode: SoloEpisode) -> dict[str, Any]:
        parts = episode_reward(episode, self._config)
        return {**parts, "total": spoil_reward(parts["total"])}

    def _measure(
        self, rewards: Sequence[Mapping[str, float]], scored: Sequence[Scored], model: PreTrainedModel
    ) -> dict[str, float]:
        metrics = measure_rollouts(self.episodes, rewards, self._config.group_size)
        for kind in ("infrastructure", "reward"):
            metrics[f"faults/{kind}"] = float(sum(one.kind == kind for one in scored))
        metrics["groups_left_out"] = 1 - len(self.episodes) / len(scored)
        if self.curriculum:
            metrics |= self.curriculum.metrics()
            self.curriculum.take(group_outcomes(self.episodes, self._config.group_size))
        every = self._config.guards.alarm_every
        if every and self.episodes and (self._num_calls - 1) % every == 0:
            metrics |= self._watch(rewards, metrics, model)
        return metrics | (self.alarms.metrics() if every else {})

    def _watch(
        self, rewards: Sequence[Mapping[str, float]], metrics: Mapping[str, float], model: PreTrainedModel
    ) -> dict[str, float]:
        """Measure a sample of the batch for the alarms."""
        places = spread(len(self.episodes), self._config.guards.alarm_rollouts)
        sample = [self.episodes[place] for place in places]
        audit = audit_episodes(sample, self._families)
        measured = {"audit": statistics.fmean(audit)} if audit else {}
        if self._reference is not None:
            measured["kl_to_start"] = self._reference.kl(
                model,
                [(one.trajectory.token_ids, one.trajectory.loss_mask) for one in sample],
                [v for one in sample for turn in one.trajectory.turns for v in turn.logprobs],
                temperature=self._config.temperature,
            )
        found = self.alarms.take(
            reward=[rewards[place]["total"] for place in places],
            audit=audit,
            surprise=metrics["surprise"],
            variety=metrics["answer_variety"],
            verified=metrics["verified"],
            kl=measured.get("kl_to_start"),
        )
        for name, seen in found.items():
            logger.warning("alarm %s of %s: %s", name, self._role, seen)
        return measured
