"""`marl`: joint multi-agent RL of the whole team."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roles.errors import unknown
from roles.team import TEAM_ROLES
from training.config.rl_sections import GuardsConfig, LossConfig
from training.config.section import (
    Count,
    GroupSize,
    PositiveCount,
    Rate,
    Section,
    Temperature,
    Weight,
    check_batch,
)


class MarlLossConfig(LossConfig):
    """Loss of joint training: token weights, clipping, KL, correction for what the engine sampled."""

    kind: Literal["grpo", "dr_grpo", "dapo"] = "dapo"
    """Token weight: 1 / all own tokens (dapo), 1 / its row's (grpo), 1 / max_completion_tokens (dr_grpo)."""
    clip_level: Literal["token", "sequence"] = "token"
    """A ratio is the token's own (token) or the geometric mean over its row (sequence, as in GSPO)."""
    measure_kl: bool = False
    """Log the KL divergence to the team before this stage even where its coefficient is 0."""
    importance: Literal["ratio", "token", "call"] = "ratio"
    """Correction for what the engine sampled: the ratio, or truncated weights; vLLM: `call` if not given."""


class CreditConfig(Section):
    """Credit of joint training: from the team reward to each role's advantages."""

    scheme: Literal["shared", "cross_valued", "shapley"] = "cross_valued"
    """Scheme from team reward to each role's score; training/joint/credit/schemes.py has a class for each."""
    estimator: Literal["dr_grpo", "grpo", "rloo", "reinforce_pp", "gae"] = "dr_grpo"
    """Estimator of advantages from scores; training/joint/credit/estimators.py has a function for each."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Decay of the advantage along a trajectory's own tokens, for estimator gae."""
    critic_learning_rate: Rate = 1e-3
    """Learning rate of the value heads, for estimator gae."""
    critic_epochs: PositiveCount = 4
    """Passes of the value heads over a step's rows, for estimator gae."""


class MarlGuardsConfig(GuardsConfig):
    """Validation of joint training, and alarm and anchor for a role whose own score falls."""

    validate_every: Count = 20
    """Joint steps between greedy validations; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 200
    """Team cases of the validation split that are played each time."""
    drift_alarm: Weight = 0.05
    """Fall of a role's own verified score, mean of drift_window steps, that is reported; 0 never."""
    drift_window: PositiveCount = 5
    """Steps whose mean is compared with the first ones."""
    anchor: Literal["none", "kl", "sft"] = "none"
    """Extra loss on a role after a drift alarm: KL to its start, or demonstrations of its family and seat."""
    anchor_coefficient: Weight = 0.1
    """Weight of the anchor's loss."""


class MarlMemoryConfig(Section):
    """Forward passes and sharding of joint training: memory and time, never what is learnt."""

    micro_batch_tokens: PositiveCount = 16_384
    """Padded tokens per forward pass of the learner; changes memory, never the result."""
    row_layout: Literal["padded", "shared_prompt"] = "shared_prompt"
    """Rows side by side with padding, or end to end with every common prompt computed once."""
    sharding: Literal["none", "fsdp2"] = "none"
    """Under torchrun: every rank holds all weights (none), or its part of what is trained (fsdp2)."""
    bf16: bool = False
    """Whether passes multiply float32 weights in bfloat16; gradients' sums and optimizer stay float32."""
    cpu_offload: bool = False
    """Whether sharded weights and optimizer rest in the memory of the host."""
    logit_rows: Count = 0
    """Own tokens whose logits are held at once; 0 holds those of a whole forward pass."""


class MarlConfig(Section):
    """Joint multi-agent RL of the whole team on the team reward."""

    max_steps: Count = 60
    """Joint optimizer steps; 0 leaves the stage out."""
    start_from: str | dict[str, str] | None = None
    """Another run's folder, or one per role: training goes on from its joint weights; without: from GRPO."""
    scenarios_per_step: PositiveCount = 24
    """Team scenarios per step."""
    report_sets: GroupSize = 4
    """Sets of reports per scenario; a specialist's reports are compared across them, 2 or more."""
    decisions_per_set: GroupSize = 2
    """ReconcileGPT's decisions on each set of reports, 2 or more; protocol full plays one course per set."""
    protocol: Literal["assess", "full"] = "assess"
    """Episodes to play: reports, decision, votes; or governed ones with re-plans, one per report set."""
    learning_rate: Rate = 1.5e-3
    """Peak learning rate."""
    adam_epsilon: Rate = 1e-4
    """Adam's epsilon: a weight whose usual gradient is well below it moves by less than a full step."""
    rate_schedule: Literal["constant", "linear"] = "linear"
    """Learning rates as they are (constant), or down to 0 in a straight line over max_steps (linear)."""
    warm_up_steps: Count = 0
    """Joint steps in which the rates rise to their peaks; Adam's first step at full rate can break a role."""
    rate_factors: dict[str, Annotated[float, Field(gt=0, le=10)]] = Field(default={"reconcile": 0.2})
    """By how much the peak rates of single roles differ from learning_rate, as a factor."""
    frozen_roles: tuple[str, ...] = ()
    """Roles that play and are not trained."""
    reward: Literal["team", "agreement_only"] = "team"
    """Reward to learn from: the team reward, or (for comparison only) the share of seats that accept."""
    max_staleness: Count = 0
    """Steps that rollouts may be behind the weights: 0 plays and trains in turn, exactly."""
    updates_per_batch: PositiveCount = 1
    """Passes over a step's rows; only from the second update on can a ratio leave the clip's range."""
    minibatches: PositiveCount = 1
    """Parts that a step's rows are cut into, with an update after each."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of a role are scaled down to this norm."""
    max_completion_tokens: PositiveCount = 56
    """Tokens per turn before it is cut off."""
    rounds: Count = 1
    """Rounds of votes after the decision; 0 asks for none."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""
    checkpoint_every: Count = 0
    """Joint steps between checkpoints of the unfinished stage; 0 saves about once a minute."""
    loss: MarlLossConfig = MarlLossConfig()
    credit: CreditConfig = CreditConfig()
    guards: MarlGuardsConfig = MarlGuardsConfig()
    memory: MarlMemoryConfig = MarlMemoryConfig()

    @property
    def needs_reference(self) -> bool:
        """Whether the weights before this stage are kept at hand, for KL."""
        return self.loss.kl_coefficient > 0 or self.loss.measure_kl or self.guards.anchor == "kl"

    @model_validator(mode="after")
    def _check_marl(self) -> Self:
        played = self.scenarios_per_step * self.report_sets * self.decisions_per_set
        check_batch(played, "scenarios_per_step * report_sets * decisions_per_set")
        starts = self.start_from if isinstance(self.start_from, dict) else {}
        named = (
            ("rate_factors", self.rate_factors),
            ("frozen_roles", self.frozen_roles),
            ("start_from", starts),
        )
        for key, roles in named:
            for role in roles:
                if role not in TEAM_ROLES:
                    raise unknown(f"marl.{key}", role, sorted(TEAM_ROLES))
        if set(self.frozen_roles) >= set(TEAM_ROLES):
            raise ValueError("frozen_roles names every role: nothing would be trained")
        if self.max_staleness and self.loss.importance == "ratio":
            raise ValueError("max_staleness needs a correction for it: set loss.importance to token or call")
        return self
