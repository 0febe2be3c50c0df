"""`grpo`: group-relative policy optimisation of each role alone."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from scenarios.rewards import resolve_weights
from simulator.agents.agent_kinds import AgentKind
from training.config.rl_sections import GuardsConfig, LossConfig
from training.config.role_steps import RoleStageConfig
from training.config.section import (
    Count,
    GroupSize,
    PositiveCount,
    Rate,
    Section,
    Temperature,
    Weight,
    check_batch,
    check_micro_batch,
    check_patience,
)


class GrpoLossConfig(LossConfig):
    """Loss of GRPO. The clip acts where a batch of rollouts is trained on more than once."""

    importance: Literal["none", "call"] = "none"
    """Correction for what the engine sampled: truncated weights per call; a vLLM engine sets it to `call`."""
    old_logprobs: Literal["learner", "engine"] = "learner"
    """Log-probabilities that ratios compare with: computed anew by the learner, or the engine's: no pass."""

    @model_validator(mode="after")
    def _check_importance(self) -> Self:
        if self.old_logprobs == "engine" and self.importance == "call":
            raise ValueError(
                "old_logprobs 'engine' leaves nothing to correct: set importance to none, or old_logprobs to"
                " learner"
            )
        return self


class GrpoGuardsConfig(GuardsConfig):
    """Validation, early stop and alarms of GRPO."""

    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""
    alarm_every: Count = 5
    """Batches of rollouts between measurements for the alarms; 0 measures nothing."""
    alarm_rollouts: PositiveCount = 16
    """Rollouts of a batch that are audited and whose KL to the starting policy is measured."""
    stop_on_alarm: bool = False
    """End the stage when an alarm goes off."""

    @model_validator(mode="after")
    def _check_patience(self) -> Self:
        check_patience(self.patience, self.validate_every)
        return self


class GrpoMemoryConfig(Section):
    """Forward passes of GRPO: memory and time, never the result."""

    micro_batch_size: Count = 0
    """Trajectories per forward pass: less memory; divides prompts_per_step * group_size. 0: all."""
    row_layout: Literal["padded", "shared_prompt"] = "shared_prompt"
    """Trajectories side by side with padding, or end to end with the prompt of a group computed once."""


class GrpoConfig(RoleStageConfig):
    """Group-relative policy optimisation of each role alone, on its own verifier."""

    stage: ClassVar[str] = "grpo"

    max_steps: Count = 100
    """Optimizer steps per role; 0 leaves the stage out."""
    prompts_per_step: PositiveCount = 8
    """Scenarios per step."""
    group_size: GroupSize = 8
    """Trajectories per scenario that are compared with each other, 2 or more."""
    trained_per_group: Count = 0
    """Trajectories of a group that are learnt from, whose rewards differ most (PODS); 2 or more, 0: all."""
    learning_rate: Rate = 3e-4
    """Peak learning rate."""
    rate_schedule: Literal["constant", "linear"] = "linear"
    """Learning rate as it is (constant), or down to 0 in a straight line over max_steps (linear)."""
    adam_epsilon: Rate = 1e-4
    """Adam's epsilon: near a weight's gradient (1e-4 here) it keeps small, noisy gradients small."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""
    reward: Literal["default", "rlvr"] = "rlvr"
    """Role reward: `default` (efficiency and tool quality) or `rlvr` (correctness, format, steps)."""
    reward_weights: dict[str, Weight] = Field(default={"step": 0.0})
    """Weights that replace those of the preset, by component; the demo charges nothing for steps."""
    verifier_weight: Weight = 1.0
    """Weight of the role reward."""
    model_weight: Weight = 0.0
    """Weight of the score of the role's reward model (`emads train reward`); 0 needs none."""
    estimator: Literal["dr_grpo", "grpo", "rloo", "reinforce_pp"] = "dr_grpo"
    """Estimator of advantages from rewards; training/joint/credit/estimators.py has a function for each."""
    agent: AgentKind = "react"
    """Agent: `chat` (answers alone), `react` (with its tools), `code` (also Python in the sandbox)."""
    max_turns: PositiveCount = 10
    """Assistant turns before a trajectory is cut off."""
    max_failed_calls: PositiveCount = 1
    """Failed tool calls that cut a trajectory off; to learn to recover from errors takes 2 or more."""
    max_completion_tokens: PositiveCount = 56
    """Tokens per assistant turn before it is cut off."""
    steps_per_generation: PositiveCount = 1
    """Optimizer steps that one batch of rollouts is cut into (prompts_per_step scenarios for each)."""
    num_iterations: PositiveCount = 1
    """Passes over each batch of rollouts."""
    curriculum: bool = False
    """Begin with the easiest difficulty and go on to the next on measured success; else they take turns."""
    promote_at: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Mean verified reward at a difficulty that begins the next one."""
    promote_window: PositiveCount = 32
    """Groups over which that mean is taken."""
    curriculum_replay: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the scenarios that goes back to difficulties that were passed."""
    reward_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which one reward is given up and its group left out."""
    checkpoint_every: Count = 0
    """Optimizer steps between checkpoints of the unfinished stage; 0 saves about once a minute."""
    loss: GrpoLossConfig = GrpoLossConfig()
    guards: GrpoGuardsConfig = GrpoGuardsConfig()
    memory: GrpoMemoryConfig = GrpoMemoryConfig()

    def of_role(self, role: str) -> Self:
        """The section as it is for one role: its own number of steps is everybody's."""
        return self.model_copy(update={"max_steps": self.steps_of(role), "role_steps": {}})

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        resolve_weights(self.reward, self.reward_weights)
        if not self.verifier_weight and not self.model_weight:
            raise ValueError("verifier_weight and model_weight are both 0: nothing is rewarded")
        if self.trained_per_group == 1 or self.trained_per_group > self.group_size:
            raise ValueError(
                f"trained_per_group is {self.trained_per_group}: it must be 2 to {self.group_size}"
                " (group_size), or 0 to learn from all"
            )
        check_micro_batch(
            self.memory.micro_batch_size,
            self.prompts_per_step * self.group_size,
            "prompts_per_step * group_size",
        )
        played = self.prompts_per_step * self.group_size * self.steps_per_generation
        check_batch(played, "prompts_per_step * group_size * steps_per_generation")
        return self
