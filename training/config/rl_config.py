"""`grpo` and `marl`: GRPO of each role alone, joint RL of the team, and what both read from `rl`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roles.errors import unknown
from roles.team import TEAM_ROLES
from scenarios.rewards import resolve_weights
from simulator.agents.agent_kinds import AgentKind
from training.config.section import (
    ClipRange,
    Count,
    GroupSize,
    PositiveCount,
    Rate,
    Section,
    Share,
    Temperature,
    Weight,
    check_batch,
    check_patience,
)


class LossConfig(Section):
    """Loss of a policy-gradient stage: token weights, clipping, KL, correction for the engine's rounding."""

    kind: Literal["grpo", "gspo", "dr_grpo", "dapo"] = "dapo"
    """Token weight: 1 / all own tokens (dapo), its row's (grpo; gspo has a ratio per row), most (dr_grpo)."""
    clip_low: ClipRange = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: ClipRange = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL divergence to the policy before this stage; 0 loads no reference."""
    importance: Literal["ratio", "token", "call"] = "ratio"
    """Correction for what the engine sampled: the ratio, or truncated weights; vLLM: `call` if not given."""

    @property
    def clip_level(self) -> Literal["token", "sequence"]:
        """Return "token" for tokens' own ratios, "sequence" for a row's geometric mean (arXiv:2507.18071)."""
        return "sequence" if self.kind == "gspo" else "token"


class CreditConfig(Section):
    """Advantages from rewards that are compared with each other."""

    estimator: Literal["dr_grpo", "grpo", "rloo", "reinforce_pp", "gae"] = "dr_grpo"
    """Estimator of advantages from scores; training/rl/credit.py has a function for each."""


class GuardsConfig(Section):
    """Validation of a stage on cases of the validation split; the best weights are kept."""

    validate_every: Count = 0
    """Steps between validations by sampled plays; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 64
    """Scenarios of the validation split that are played each time."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""

    @model_validator(mode="after")
    def _check_patience(self) -> Self:
        check_patience(self.patience, self.validate_every)
        return self


class MemoryConfig(Section):
    """Forward passes and sharding of the learner: memory and time, never what is learnt."""

    micro_batch_tokens: PositiveCount = 16_384
    """Padded tokens per forward pass of the learner; changes memory, never the result."""
    row_layout: Literal["padded", "shared_prompt"] = "shared_prompt"
    """Rows side by side with padding, or end to end with every common prompt computed once."""
    sharding: Literal["none", "fsdp2", "fsdp2_offload"] = "none"
    """Under torchrun a rank holds all weights (none) or its part of them: on the GPU (fsdp2), on the host."""
    bf16: bool = False
    """Passes multiply float32 weights in bfloat16; gradients' sums and optimizer stay float32."""
    logit_rows: Count = 0
    """Own tokens whose logits are held at once; 0 holds those of a whole forward pass."""


class RLConfig(Section):
    """Settings of the RL loop, for a role alone and for the team."""

    max_steps: Count = 100
    """Batches of rollouts that are played and learnt from; 0 leaves the stage out."""
    learning_rate: Rate = 3e-4
    """Peak learning rate."""
    rate_schedule: Literal["constant", "linear"] = "linear"
    """Learning rates as they are (constant), or down to 0 in a straight line over max_steps (linear)."""
    warm_up_steps: Count = 0
    """Steps over which the learning rates rise to their peak."""
    adam_epsilon: Rate = 1e-4
    """Adam's epsilon: near a weight's usual gradient (1e-4 here) it keeps small, noisy gradients small."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of one set of weights are scaled down to this norm."""
    updates_per_batch: PositiveCount = 1
    """Passes over a step's rows; only from the second update on can a ratio leave the clip's range."""
    minibatches: PositiveCount = 1
    """Parts that a step's rows are cut into, with an update after each."""
    max_staleness: Count = 0
    """Steps that rollouts may be behind the weights: 0 plays and trains in turn, exactly."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""
    max_completion_tokens: PositiveCount = 56
    """Tokens per turn before it is cut off."""
    loss: LossConfig = LossConfig()
    credit: CreditConfig = CreditConfig()
    guards: GuardsConfig = GuardsConfig()
    memory: MemoryConfig = MemoryConfig()

    @property
    def max_row_tokens(self) -> int:
        """Most own tokens of a row: what loss `dr_grpo` divides by."""
        return self.max_completion_tokens

    @property
    def needs_reference(self) -> bool:
        """The stage needs a copy of its starting weights, to measure KL."""
        return self.loss.kl_coefficient > 0

    @model_validator(mode="after")
    def _check_staleness(self) -> Self:
        if self.max_staleness and self.loss.importance == "ratio":
            raise ValueError("max_staleness needs a correction for it: set loss.importance to token or call")
        return self


class GrpoConfig(RLConfig):
    """Group-relative policy optimisation of each role alone, on its own verifier."""

    max_steps: Count = 100
    """Batches of rollouts per role; 0 leaves the stage out."""
    prompts_per_step: PositiveCount = 8
    """Scenarios per step."""
    group_size: GroupSize = 8
    """Trajectories per scenario that are compared with each other, 2 or more."""
    trained_per_group: Count = 0
    """Trajectories of a group that are learnt from, whose rewards differ most (PODS); 2 or more, 0: all."""
    reward: Literal["default", "rlvr"] = "rlvr"
    """Role reward: `default` (efficiency and tool quality) or `rlvr` (correctness, format, steps)."""
    reward_weights: dict[str, Weight] = Field(default={"step": 0.0})
    """Weights that replace those of the preset, by component; the demo charges nothing for steps."""
    model_share: Share = 0.0
    """Share of the reward that the role's reward model scores (`emads train reward`); 0 needs none."""
    agent: AgentKind = "react"
    """Agent: `chat` (answers alone), `react` (with its tools), `code` (also Python in the sandbox)."""
    max_turns: PositiveCount = 10
    """Assistant turns before a trajectory is cut off."""
    max_failed_calls: PositiveCount = 1
    """Failed tool calls that cut a trajectory off; to learn to recover from errors takes 2 or more."""
    curriculum: bool = False
    """Begin with the easiest difficulty; the next one follows at a mean reward of .7; else they mix."""

    @property
    def max_row_tokens(self) -> int:
        """Most own tokens of a row: what loss `dr_grpo` divides by."""
        return self.max_turns * self.max_completion_tokens

    @model_validator(mode="after")
    def _check_grpo(self) -> Self:
        resolve_weights(self.reward, self.reward_weights)
        if self.trained_per_group == 1 or self.trained_per_group > self.group_size:
            raise ValueError(
                f"trained_per_group is {self.trained_per_group}: it must be 2 to {self.group_size}"
                " (group_size), or 0 to learn from all"
            )
        if self.trained_per_group and self.credit.estimator == "gae":
            raise ValueError("estimator gae compares no group: leave trained_per_group at 0")
        if self.curriculum and self.max_staleness:
            raise ValueError("curriculum chooses by the latest groups: leave max_staleness at 0")
        check_batch(self.prompts_per_step * self.group_size, "prompts_per_step * group_size")
        return self


class MarlCreditConfig(CreditConfig):
    """Credit of joint training: from the team reward to each role's advantages."""

    scheme: Literal["shared", "cross_valued", "shapley"] = "cross_valued"
    """Scheme from team reward to each role's score; training/rl/credit.py has a class for each."""
    token_price: Annotated[float, Field(ge=0, le=0.1)] = 0.0
    """Reward that every token costs which a role writes in an episode, a question too; 0: words are free."""


class MarlGuardsConfig(GuardsConfig):
    """Validation of joint training."""

    validate_every: Count = 20
    """Joint steps between validations by sampled plays; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 200
    """Team cases of the validation split that are played each time."""


class MarlConfig(RLConfig):
    """Joint multi-agent RL of the whole team on the team reward."""

    max_steps: Count = 60
    """Joint steps; 0 leaves the stage out."""
    start_from: str | None = None
    """Another run's folder, from whose joint weights training goes on; null: from GRPO's."""
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
    rate_factors: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(default={"reconcile": 0.2})
    """Factors by which roles' rates differ from learning_rate; a role with 0 plays and never learns."""
    rounds: Count = 1
    """Rounds of votes after the decision; 0 asks for none."""
    credit: MarlCreditConfig = MarlCreditConfig()
    guards: MarlGuardsConfig = MarlGuardsConfig()

    @model_validator(mode="after")
    def _check_marl(self) -> Self:
        played = self.scenarios_per_step * self.report_sets * self.decisions_per_set
        check_batch(played, "scenarios_per_step * report_sets * decisions_per_set")
        for role in self.rate_factors:
            if role not in TEAM_ROLES:
                raise unknown("marl.rate_factors", role, sorted(TEAM_ROLES))
        if not any(self.rate_factors.get(role, 1.0) for role in TEAM_ROLES):
            raise ValueError("rate_factors is 0 for every role: nothing would be trained")
        return self
