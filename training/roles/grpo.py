"""GRPO of one role on its own family: TRL's trainer, our environments and engine through `rollout_func`.

TRL owns loss, advantages and optimizer; training/roles/rollouts.py owns where episodes come from and what
they earn. The rows that TRL trains on are the sampled ids, with tool observations masked by `env_mask`.
Source: arXiv:2402.03300.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig as TrlGrpoConfig
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from scenarios.base import Scenario
from simulator.chat import Chat
from training.config.grpo_config import GrpoConfig
from training.joint.credit.estimators import ESTIMATORS, compare_most_different
from training.learner.fsdp import compute_device, copy_whole
from training.roles.engine_mismatch import EngineMismatch
from training.roles.resumable_trainer import ResumableTrainer
from training.roles.rollouts import Rollouts
from training.roles.sft import OnStep, StepReporter
from training.roles.shared_prompts import SharedPrompts
from training.roles.trainer_ranks import agree, device_options
from training.roles.validation import BestKeeper, ValidateEvery
from training.runs.resume import StageCheckpoints, Stateful, trained_tensors

SCHEDULERS = {"constant": "constant_with_warmup", "linear": "linear"}  # transformers' names; both warm up


def verified_reward(
    completions: list[Any], verified_reward: list[float | None], **kwargs: Any
) -> list[float | None]:
    """TRL's reward function: hands over what the verifier said in the rollout, None where it may not count.

    Raises:
        ValueError: a reward that is not finite, naming it (training/roles/scoring.py lets none through).
    """
    for value in verified_reward:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"the verifier returned the reward {value!r}; rewards must be finite")
    return list(verified_reward)


def find_speaking(inputs: Mapping[str, Any]) -> Bool[Tensor, " rows"]:
    """Which rows of a batch have an advantage."""
    advantages: Tensor = inputs["advantages"]
    return (advantages != 0).reshape(len(advantages), -1).any(1)


def leave_out_silent_rows(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The batch with the tokens of rows without an advantage out of the loss: what is not learnt from is
    not pulled back to the reference either. Divisors stay those of all rows, as in joint training.
    """
    speaks = find_speaking(inputs)[:, None]
    mask = inputs.get("tool_mask", torch.ones_like(inputs["completion_mask"]))
    left = {**inputs, "tool_mask": mask * speaks.to(mask.dtype)}
    if "old_per_token_logps" in inputs:  # ratios of rows that take no pass are 1
        left["old_per_token_logps"] = inputs["old_per_token_logps"].where(speaks, 0.0)
    return left


def estimate_advantages(
    rewards: Float[Tensor, " rows"], group_size: int, estimator: str, trained_per_group: int = 0
) -> Float[Tensor, " rows"]:
    """Advantages by the estimators of joint training; a group with a reward that is NaN is left out: 0.

    `trained_per_group`: so many of each group are compared with each other, and weigh as much as the whole
    group would; the others get 0. 0: all.
    """
    groups = rewards.view(-1, group_size)
    counts = ~groups.isnan().any(1)
    scores = groups[counts].tolist()
    found = torch.zeros_like(groups)
    if scores:
        estimate = compare_most_different(ESTIMATORS[estimator], trained_per_group)
        found[counts] = torch.tensor(estimate(scores, list)).to(found)
    return found.view(-1)


class ResumableGrpoTrainer(EngineMismatch, SharedPrompts, ResumableTrainer, GRPOTrainer):
    """TRL's trainer with our checkpoints, the rollout window among them. Left-out groups are in no mean."""

    rollouts: Rollouts
    estimator: str = "dr_grpo"  # whose numbers TRL computes without scaling
    trained_per_group: int = 0  # rows of a group that take a pass; 0: all
    trusts_engine: bool = False  # ratios are taken to the engine's log-probabilities
    _skips_pass: bool = False  # the pass that would compute them anew comes next
    _generated: Any = None  # a batch that was just played, rows of a group side by side
    actor: Any = None  # a whole copy that plays where the weights in training are sharded

    def find_actor(self) -> Any:
        """The model that plays, with the weights as they are now; all processes call it together."""
        if self.actor is None:
            return self.accelerator.unwrap_model(self.model)
        copy_whole(trained_tensors(self.model), trained_tensors(self.actor))  # type: ignore[arg-type]
        return self.actor

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        self._rewards = super()._calculate_rewards(*args, **kwargs)  # of all processes
        return self._rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        args: Any = self.args
        lags = args.gradient_accumulation_steps % (args.steps_per_generation * self.num_iterations) != 0
        self._skips_pass = self.trusts_engine and lags
        batch = super()._generate_and_score_completions(inputs)
        if self.trusts_engine and lags:
            batch["old_per_token_logps"] = batch["sampling_per_token_logps"]
        if self.estimator != "dr_grpo" or self.trained_per_group:
            size: Any = self.num_generations
            found = estimate_advantages(self._rewards[:, 0], size, self.estimator, self.trained_per_group)
            own = len(batch["advantages"])
            first = own * self.accelerator.process_index
            batch["advantages"] = found[first : first + own]
        self._generated = batch
        return batch

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's batch; with shared prompts it is cut without TRL's shuffle, so that a pass holds groups."""
        trainer: Any = self
        inputs = super()._prepare_inputs(generation_batch)
        batch, self._generated = self._generated, None
        if batch is None or not (self.shares_prompts and trainer.model.training):
            return inputs
        cut = split_tensor_dict(batch, trainer.args.steps_per_generation)
        self._buffered_inputs: Any = cut
        return cut[self._step % len(cut)]

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
        if not self._skips_pass:
            return super()._get_per_token_logps_and_entropies(*args, **options)
        self._skips_pass = False  # what this pass would return is replaced by the engine's
        _, input_ids, _, num_completion, *_ = args
        nothing = input_ids.new_zeros(len(input_ids), num_completion, dtype=torch.float32)
        return nothing, nothing, None

    def _is_silent(self, inputs: Any) -> bool:
        """Return whether nothing of a micro-batch is learnt, so that its pass can be left out."""
        trainer: Any = self
        is_part = trainer.model.training and self.shares_prompts and trainer.accelerator.num_processes == 1
        return is_part and not self.beta and not bool(find_speaking(inputs).any())

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """Means over rows are over those that count; `dapo` counts tokens, of which masked ones are none.

        A micro-batch without an advantage has the gradient 0, and is in no metric of TRL's.
        """
        if self._is_silent(inputs):
            trained = [one for one in model.parameters() if one.requires_grad]
            return sum((one.sum() * 0 for one in trained), torch.zeros((), device=trained[0].device))
        if self.beta or self.trained_per_group:
            inputs = leave_out_silent_rows(inputs)
        if self.trained_per_group:
            speaks = find_speaking(inputs)
            self.computed_rows = speaks if bool(speaks.any()) else None
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self.computed_rows = None
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
        if agree(self._stop_on_alarm and bool(self._rollouts.alarms.standing)):
            control.should_training_stop = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOutcome:
    """End of a stage. Example: GrpoOutcome(step=120, alarms={"kl_runaway": "KL ... is 0.81 nats"})"""

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
    actor: PreTrainedModel | None = None,
) -> GrpoOutcome:
    """Train `model` in place for `config.max_steps` steps (0: not at all) of prompts x group.

    With `config.guards.validate_every` it ends with the weights that did best on `validation`. `actor`: a
    whole copy that plays, and ends with the same weights, while the processes take a part of the model each
    (FSDP2); None plays the model itself.

    Raises:
        FaultyRunError: too many episodes got no reward (training/roles/scoring.py).
        ValueError: validation asked for without scenarios.
    """
    if config.max_steps == 0:  # the trainer would take it for "no limit"
        return GrpoOutcome(step=0, alarms={})
    if config.guards.validate_every and not validation:
        raise ValueError("no scenarios to validate on")
    rollouts = make_rollouts(scenarios, role=role, chat=chat, config=config, seed=seed)
    rollouts.begin(actor or model)
    num_rows = config.prompts_per_step * config.group_size
    micro = config.memory.micro_batch_size or num_rows
    args = TrlGrpoConfig(
        output_dir=str(output_dir),
        max_steps=config.max_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=num_rows // micro,
        num_generations=config.group_size,
        num_iterations=config.num_iterations,
        steps_per_generation=config.steps_per_generation * (num_rows // micro),
        learning_rate=config.learning_rate,
        lr_scheduler_type=SCHEDULERS[config.rate_schedule],
        adam_epsilon=config.adam_epsilon,
        warmup_steps=min(5, config.max_steps // 10),
        beta=config.loss.kl_coefficient,
        router_aux_loss_coef=0.0,  # as in SFT and in joint training
        temperature=config.temperature,
        loss_type=config.loss.kind,
        scale_rewards="none",
        epsilon=config.loss.clip_low,
        epsilon_high=config.loss.clip_high,
        max_completion_length=config.max_turns * config.max_completion_tokens,
        gradient_checkpointing=gradient_checkpointing,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **device_options(),
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
        callbacks=[_RolloutReporter(on_step, rollouts, stop_on_alarm=config.guards.stop_on_alarm)],
    )
    trainer.remove_callback(PrinterCallback)
    if actor is not None:
        trainer.shard_weights()
        trainer.actor = actor.to(compute_device(model))  # type: ignore[arg-type]
    trainer.rollouts, trainer.estimator = rollouts, config.estimator
    trainer.trained_per_group = config.trained_per_group
    trainer.trusts_engine = config.loss.old_logprobs == "engine"
    trainer.importance_cap = config.loss.importance_cap if config.loss.importance == "call" else None
    trainer.shares_prompts = config.memory.row_layout == "shared_prompt"
    parts: dict[str, Stateful] = {"rollouts": rollouts}
    keeper = BestKeeper(model, patience=config.guards.patience)
    if config.guards.validate_every:
        parts["best"] = keeper
        trainer.add_callback(
            ValidateEvery(
                keeper,
                lambda: rollouts.validate(trainer.find_actor(), validation),
                on_step,
                every=config.guards.validate_every,
            )
        )
    trainer.keep_checkpoints(checkpoints, parts)
    trainer.train_on()
    step = keeper.restore() if config.guards.validate_every else int(trainer.state.global_step)
    trainer.find_actor()
    return GrpoOutcome(step=step, alarms=dict(rollouts.alarms.standing))
