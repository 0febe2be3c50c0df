"""GRPO of one role on its own family: TRL's trainer, our environments and engine through `rollout_func`.

TRL owns loss, advantages and optimizer; this module owns where episodes come from and what they earn.
The rows that TRL trains on are the sampled ids, with tool observations masked by `env_mask`.
Source: arXiv:2402.03300.
"""

import asyncio
import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig as TrlGrpoConfig
from trl import GRPOTrainer

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES
from scenarios.rewards import role_reward
from scenarios.tool_desk import ResultCache
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.transformers import TransformersEngine
from simulator.solo import SoloEpisode, play_solo
from training.alarms import Alarms
from training.config import GrpoConfig
from training.curriculum import Curriculum
from training.faults import spoil_reward
from training.own_logprobs import StartPolicy
from training.resume import StageCheckpoints, Stateful
from training.resume_trainer import ResumableTrainer
from training.rollout_metrics import (
    audit_episodes,
    group_outcomes,
    measure_rollouts,
    spread,
    training_columns,
)
from training.scoring import FaultWindow, Scored, score_all, usable_groups
from training.sft import OnStep, StepReporter
from training.validation import BestKeeper, ValidateEvery

logger = logging.getLogger(__name__)


def episode_reward(episode: SoloEpisode, config: GrpoConfig) -> dict[str, float]:
    """Every part of the training reward of one episode, and its "total"."""
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
    ) -> None:
        self._scenarios, self._role, self._chat = scenarios, role, chat
        self._config, self._seed = config, seed
        self._families, self._roles = families, roles
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
        self._start: StartPolicy | None = None
        self._num_calls = 0

    def begin(self, model: PreTrainedModel) -> None:
        """Before the first step of the stage: these are the weights that KL is measured from."""
        if self._config.alarm_every:
            self._start = StartPolicy(model)

    def state(self) -> dict[str, Any]:
        """What later calls and log lines depend on."""
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

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        self._num_calls += 1
        config, model = self._config, trainer.accelerator.unwrap_model(trainer.model)
        played = self.play(
            model,
            [self._choose(int(prompt)) for prompt in prompts],
            version=f"{self._role}@{trainer.state.global_step}",
            temperature=config.temperature,
            stream=f"grpo/{self._num_calls}",
        )
        scored = score_all(played, self._score, timeout_s=config.reward_timeout_s)
        usable = usable_groups(scored, config.group_size)
        kept = [
            (episode, one.parts)
            for episode, one, counts in zip(played, scored, usable, strict=True)
            if counts and isinstance(episode, SoloEpisode) and one.parts is not None
        ]
        self.episodes = [episode for episode, _ in kept]
        self.row_scale = len(played) / len(kept) if kept else 0.0
        self.metrics = self._measure([parts for _, parts in kept], scored, model)
        self._faults.take(scored, num_usable=len(kept))
        filler = iter(self.episodes)
        columns = training_columns([next(filler) if counts else None for counts in usable], self._chat.end_id)
        totals = [
            one.parts["total"] if one.parts and counts else None
            for one, counts in zip(scored, usable, strict=True)
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
    ) -> list[SoloEpisode | Exception]:
        """One episode per scenario; what a play raises stands in its place."""
        config, results = self._config, ResultCache()
        engine = TransformersEngine(end_id=self._chat.end_id, seed=self._seed)
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
                )
                for position, scenario in enumerate(scenarios)
            )
            return await asyncio.gather(*plays, return_exceptions=True)

        return asyncio.run(play_all())

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
        every = self._config.alarm_every
        if every and self.episodes and (self._num_calls - 1) % every == 0:
            metrics |= self._watch(rewards, metrics, model)
        return metrics | (self.alarms.metrics() if every else {})

    def _watch(
        self, rewards: Sequence[Mapping[str, float]], metrics: Mapping[str, float], model: PreTrainedModel
    ) -> dict[str, float]:
        """Measure a sample of the batch for the alarms."""
        places = spread(len(self.episodes), self._config.alarm_rollouts)
        sample = [self.episodes[place] for place in places]
        audit = audit_episodes(sample)
        measured = {"audit": statistics.fmean(audit)} if audit else {}
        if self._start is not None:
            measured["kl_to_start"] = self._start.kl(
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


def verified_reward(
    completions: list[Any], verified_reward: list[float | None], **kwargs: Any
) -> list[float | None]:
    """TRL's reward function: hands over what the verifier said in the rollout, None where it may not count.

    Raises:
        ValueError: a reward that is not finite, naming it (training/scoring.py lets none through).
    """
    for value in verified_reward:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"the verifier returned the reward {value!r}; rewards must be finite")
    return list(verified_reward)


class ResumableGrpoTrainer(ResumableTrainer, GRPOTrainer):
    """TRL's trainer with our checkpoints, the rollout window among them. Left-out groups are in no mean."""

    rollouts: Rollouts

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """Means over rows are over those that count; `dapo` counts tokens, of which masked ones are none."""
        loss = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        return loss if self.loss_type == "dapo" else loss * self.rollouts.row_scale

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        if not self.rollouts.row_scale:  # nothing was learnt: momentum must not move the weights either
            for parameter in model.parameters():
                parameter.grad = None
        return norm


class _RolloutReporter(StepReporter):
    """Adds the rollout's own metrics to the trainer's log line; ends the stage on an alarm where asked to."""

    def __init__(self, on_step: OnStep, rollouts: Rollouts, *, stop_on_alarm: bool) -> None:
        super().__init__(lambda step, metrics: on_step(step, {**metrics, **rollouts.metrics}))
        self._rollouts, self._stop_on_alarm = rollouts, stop_on_alarm

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._stop_on_alarm and self._rollouts.alarms.standing:
            control.should_training_stop = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOutcome:
    """How a stage ended. Example: GrpoOutcome(step=120, alarms={"kl_runaway": "KL ... is 0.81 nats"})"""

    step: int  # that the weights are of: the last, or that of the best validation
    alarms: Mapping[str, str]  # those that went off, each with what was seen


def run_grpo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    scenarios: Sequence[Scenario],
    config: GrpoConfig,
    *,
    role: str,
    chat: Chat,
    output_dir: Path,
    seed: int,
    on_step: OnStep,
    make_rollouts: Callable[..., Rollouts] = Rollouts,
    checkpoints: StageCheckpoints | None = None,
    validation: Sequence[Scenario] = (),
    gradient_checkpointing: bool = False,
) -> GrpoOutcome:
    """Train `model` in place for `config.max_steps` steps (0: not at all) of prompts x group.

    With `config.validate_every` it ends with the weights that did best on `validation`.

    Raises:
        FaultyRunError: too many episodes got no reward (training/scoring.py).
        ValueError: validation asked for without scenarios.
    """
    if config.max_steps == 0:  # the trainer would take it for "no limit"
        return GrpoOutcome(step=0, alarms={})
    if config.validate_every and not validation:
        raise ValueError("no scenarios to validate on")
    rollouts = make_rollouts(scenarios, role=role, chat=chat, config=config, seed=seed)
    rollouts.begin(model)
    num_rows = config.prompts_per_step * config.group_size
    micro = config.micro_batch_size or num_rows
    args = TrlGrpoConfig(
        output_dir=str(output_dir),
        max_steps=config.max_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=num_rows // micro,
        num_generations=config.group_size,
        num_iterations=config.num_iterations,
        steps_per_generation=config.steps_per_generation * (num_rows // micro),
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        adam_epsilon=config.adam_epsilon,
        warmup_steps=min(5, config.max_steps // 10),
        beta=config.kl_coefficient,
        temperature=config.temperature,
        loss_type=config.loss,
        scale_rewards=config.scale_rewards,
        max_completion_length=config.max_turns * config.max_completion_tokens,
        gradient_checkpointing=gradient_checkpointing,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        dataloader_pin_memory=False,
        seed=seed,
    )
    trainer = ResumableGrpoTrainer(
        model=model,
        reward_funcs=[verified_reward],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [str(i) for i in range(len(scenarios))]}),
        processing_class=tokenizer,
        rollout_func=rollouts,
        callbacks=[_RolloutReporter(on_step, rollouts, stop_on_alarm=config.stop_on_alarm)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.rollouts = rollouts
    parts: dict[str, Stateful] = {"rollouts": rollouts}
    keeper = BestKeeper(model, patience=config.patience)
    if config.validate_every:
        parts["best"] = keeper
        trainer.add_callback(
            ValidateEvery(
                keeper, lambda: rollouts.validate(model, validation), on_step, every=config.validate_every
            )
        )
    trainer.keep_checkpoints(checkpoints, parts)
    trainer.train_on()
    step = keeper.restore() if config.validate_every else int(trainer.state.global_step)
    return GrpoOutcome(step=step, alarms=dict(rollouts.alarms.standing))
