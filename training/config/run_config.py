"""Configuration of a run: one frozen, strict model per stage; defaults are the vetted run.

Every field is read by a stage. Loading (YAML, --set, messages) is in `training/config/loading.py`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roles.errors import unknown
from roles.registry import ROLES
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY
from scenarios.rewards import resolve_weights

PRESETS = ("tiny", "smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b")

Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
GroupSize = Annotated[int, Field(ge=2)]  # a group of one has nobody to be compared with
Rate = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
ClipRange = Annotated[float, Field(gt=0, lt=1)]
Temperature = Annotated[float, Field(gt=0, le=10)]
Difficulty = Annotated[int, Field(ge=MIN_DIFFICULTY, le=MAX_DIFFICULTY)]


class Section(BaseModel):
    """Base of every config model: exact types, finite numbers, unknown keys refused, immutable."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelConfig(Section):
    """Base model of every role. The five sizes are those of the `tiny` preset; others bring their own."""

    preset: str = "tiny"
    """`tiny` (built from config, no download), a named preset, or a hub id or folder written with a slash."""
    hidden_size: Annotated[int, Field(ge=16)] = 128
    """Width of the tiny model, 16 or more; a multiple of 2 * num_heads."""
    num_layers: PositiveCount = 3
    """Transformer blocks of the tiny model."""
    num_heads: PositiveCount = 4
    """Attention heads of the tiny model."""
    intermediate_size: PositiveCount = 320
    """Width of the tiny model's feed-forward layers."""
    vocab_size: Annotated[int, Field(ge=256, le=65_536)] = 512
    """Most tokens that the tiny model's tokenizer may have."""
    short_prompts: bool = True
    """Prompts hold the brief alone, without mandate and tools: for a model trained on these roles only."""
    prompt_layout: Literal["role_first", "case_first"] = "role_first"
    """What prompts begin with; case_first lets a prefix cache compute once what all roles of a case read."""
    adapter: Literal["none", "lora", "qlora"] = "none"
    """What is trained: all weights (none), LoRA on a frozen base, or LoRA on a 4-bit base (CUDA only)."""
    adapter_sharing: Literal["per_role", "shared"] = "per_role"
    """One adapter for each role, or one that all roles share."""
    lora_rank: PositiveCount = 16
    """Rank of the LoRA matrices."""
    lora_alpha: PositiveCount = 32
    """Scale of what LoRA adds: alpha / rank."""
    lora_targets: tuple[str, ...] = Field(default=("all-linear",), min_length=1)
    """Modules that LoRA is put on, by name; `all-linear` is every linear layer but the output head."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of a frozen base; what is trained is always float32."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, preset: str) -> str:
        if preset not in PRESETS and "/" not in preset:
            raise unknown(
                "model.preset", preset, [*PRESETS, "or a hub id such as Qwen/Qwen2.5-0.5B-Instruct"]
            )
        return preset

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of 2 * num_heads = {2 * self.num_heads}"
            )
        return self

    @model_validator(mode="after")
    def _check_adapter(self) -> Self:
        if self.adapter == "none" and self.adapter_sharing == "shared":
            raise ValueError("adapter_sharing 'shared' needs an adapter: set adapter to lora or qlora")
        if self.adapter == "none" and self.dtype != "float32":
            raise ValueError(
                f"dtype {self.dtype!r} is for a frozen base: set adapter to lora or qlora, or leave dtype out"
            )
        if "all-linear" in self.lora_targets and len(self.lora_targets) > 1:
            raise ValueError("lora_targets: all-linear stands alone; leave it out to name modules")
        return self


def _check_micro_batch(micro: int, batch: int, name: str) -> None:
    if micro and batch % micro:
        raise ValueError(f"micro_batch_size {micro} must divide {name} {batch}")


def _check_patience(patience: int, validate_every: int) -> None:
    if patience and not validate_every:
        raise ValueError(f"patience {patience} needs validations: set validate_every")


class DataConfig(Section):
    """Scenarios and demonstrations. Splits never share a scenario, whatever the seed."""

    seed: Count = 0
    """Seed of the scenario streams."""
    difficulties: tuple[Difficulty, ...] = Field(default=(1, 2), min_length=1)
    """Difficulties that scenarios cycle through, 1 (easiest) to 10."""
    seat_share: Annotated[float, Field(ge=0, le=1)] = 0.6
    """Share of the supervised rows that show the role's seat in the team; the rest shows its own family."""
    conventions: Literal["house", "symmetric"] = "house"
    """Practices of team cases; `symmetric` has two equally good pairs: to see that teams invent their own."""
    first_grpo_index: Count = 1_000_000
    """Index of the first training scenario of GRPO: far from the demonstrations, so none is met again."""
    first_marl_index: Count = 2_000_000
    """Index of the first training case of joint training."""

    @field_validator("difficulties")
    @classmethod
    def _check_difficulties(cls, difficulties: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(difficulties)) != len(difficulties):
            raise ValueError(f"{list(difficulties)} repeats a difficulty: name each one once")
        return difficulties


class SftConfig(Section):
    """Supervised fine-tuning of each role on demonstrations."""

    max_steps: Count = 450
    """Optimizer steps per role; 0 leaves the base model as it is."""
    batch_size: PositiveCount = 16
    """Demonstrations per optimizer step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """`muon` (2-D weights by Muon, the rest by AdamW) or `adamw` alone."""
    muon_learning_rate: Rate = 0.02
    """Peak rate of Muon; unused with adamw."""
    learning_rate: Rate = 0.002
    """Peak rate of AdamW."""
    micro_batch_size: Count = 0
    """Demonstrations per forward pass: less memory, same step; it divides batch_size. 0 takes all at once."""
    packing: bool = False
    """Lay demonstrations end to end, none seeing another; batch_size then counts rows of pack_tokens."""
    pack_tokens: Annotated[int, Field(ge=64)] = 1024
    """Most tokens of a packed row."""
    validate_every: Count = 0
    """Steps between validations, of which the best weights are kept; 0 keeps the last weights."""
    num_validation_rows: PositiveCount = 64
    """Demonstrations of the validation split that are scored."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""
    control_fraction: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Length of the more-SFT control as a fraction of the compared RL stage's time; 0 leaves it out."""
    checkpoint_every: Count = 0
    """Optimizer steps between checkpoints of the unfinished stage; 0 saves about once a minute."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        _check_micro_batch(self.micro_batch_size, self.batch_size, "batch_size")
        _check_patience(self.patience, self.validate_every)
        return self


class GrpoConfig(Section):
    """Group-relative policy optimisation of each role alone, on its own verifier."""

    max_steps: Count = 120
    """Optimizer steps per role; 0 leaves the stage out."""
    prompts_per_step: PositiveCount = 8
    """Scenarios per step."""
    group_size: GroupSize = 8
    """Trajectories per scenario that are compared with each other, 2 or more."""
    learning_rate: Rate = 2e-4
    """Peak learning rate."""
    adam_epsilon: Rate = 1e-4
    """Adam's epsilon: near a weight's gradient (1e-4 here) it keeps small, noisy gradients small."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL divergence to the SFT policy; 0 does not load a reference."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""
    reward: Literal["default", "rlvr"] = "rlvr"
    """Role reward: `default` (efficiency and tool quality) or `rlvr` (correctness, format, steps)."""
    reward_weights: dict[str, Weight] = {"step": 0.0}
    """Weights that replace those of the preset, by component; the demo charges nothing for steps."""
    scale_rewards: Literal["group", "none"] = "none"
    """Whether a group's advantages are divided by its standard deviation (`group`) or not (`none`)."""
    loss: Literal["grpo", "dr_grpo", "dapo"] = "grpo"
    """A token weighs 1 / its length (grpo), 1 / a constant (dr_grpo) or 1 / all tokens (dapo)."""
    max_turns: PositiveCount = 6
    """Assistant turns before a trajectory is cut off."""
    max_failed_calls: PositiveCount = 1
    """Failed tool calls that cut a trajectory off; to learn to recover from errors takes 2 or more."""
    max_completion_tokens: PositiveCount = 48
    """Tokens per assistant turn before it is cut off."""
    steps_per_generation: PositiveCount = 1
    """Optimizer steps that one batch of rollouts is cut into (prompts_per_step scenarios for each)."""
    num_iterations: PositiveCount = 1
    """How often each batch of rollouts is trained on."""
    micro_batch_size: Count = 0
    """Trajectories per forward pass: less memory; divides prompts_per_step * group_size. 0: all."""
    row_layout: Literal["padded", "shared_prompt"] = "padded"
    """Trajectories side by side with padding, or end to end with the prompt of a group computed once."""
    importance: Literal["none", "call"] = "none"
    """Correction for what the engine sampled: truncated weights per call; a vLLM engine sets it to `call`."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """Greatest importance weight of a call."""
    validate_every: Count = 0
    """Steps between greedy validations, before the first step too; the best weights are kept. 0: never."""
    validation_scenarios: PositiveCount = 64
    """Scenarios of the validation split that are played each time."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""
    curriculum: bool = False
    """Begin with the easiest difficulty and go on to the next on measured success; else they take turns."""
    promote_at: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Mean verified reward at a difficulty that begins the next one."""
    promote_window: PositiveCount = 32
    """Groups over which that mean is taken."""
    curriculum_replay: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the scenarios that goes back to difficulties that were passed."""
    alarm_every: Count = 5
    """Batches of rollouts between measurements for the alarms; 0 measures nothing."""
    alarm_rollouts: PositiveCount = 16
    """Rollouts of a batch that are audited and whose KL to the starting policy is measured."""
    stop_on_alarm: bool = False
    """End the stage when an alarm goes off."""
    reward_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which one reward is given up and its group left out."""
    checkpoint_every: Count = 0
    """Optimizer steps between checkpoints of the unfinished stage; 0 saves about once a minute."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        resolve_weights(self.reward, self.reward_weights)
        _check_micro_batch(
            self.micro_batch_size, self.prompts_per_step * self.group_size, "prompts_per_step * group_size"
        )
        _check_patience(self.patience, self.validate_every)
        return self


class MarlConfig(Section):
    """Joint multi-agent RL of the whole team on the team reward."""

    max_steps: Count = 40
    """Joint optimizer steps; 0 leaves the stage out."""
    scenarios_per_step: PositiveCount = 24
    """Team scenarios per step."""
    report_sets: GroupSize = 4
    """Full episodes per scenario; a specialist's reports are compared across them, 2 or more."""
    decisions_per_set: GroupSize = 2
    """ReconcileGPT's decisions on each set of reports, 2 or more; protocol full plays one course per set."""
    protocol: Literal["assess", "full"] = "assess"
    """What is played: reports, decision, votes; or governed episodes with re-plans, one per report set."""
    learning_rate: Rate = 2e-4
    """Peak learning rate."""
    rate_schedule: Literal["constant", "linear"] = "constant"
    """Learning rates as they are (constant), or down to 0 in a straight line over max_steps (linear)."""
    role_learning_rates: dict[str, Rate] = {}
    """Peak learning rates of single roles, in place of learning_rate."""
    frozen_roles: tuple[str, ...] = ()
    """Roles that play and are not trained."""
    alternate_every: Count = 0
    """Train specialists and ReconcileGPT in turns of so many steps; 0 trains all in every step."""
    credit: Literal[
        "shared", "episode", "role_normalised", "difference", "cross_rescored", "hierarchical"
    ] = "shared"
    """How an episode's team reward becomes each role's score; training/credit/ has a file for each."""
    rescore: Literal["practices", "engine"] = "practices"
    """What decides on mixed reports for cross_rescored: house practices fitted to ReconcileGPT, or itself."""
    estimator: Literal["dr_grpo", "grpo", "rloo", "reinforce_pp", "remax", "gae"] = "dr_grpo"
    """How scores become advantages; training/joint/estimators.py has a function for each."""
    reward: Literal["team", "agreement_only"] = "team"
    """What is rewarded: the team reward, or (for comparison only) the share of seats that accept."""
    loss: Literal["dapo", "grpo", "dr_grpo"] = "dapo"
    """Token weight: 1 / all own tokens (dapo), 1 / its row's (grpo), 1 / max_completion_tokens (dr_grpo)."""
    clip_level: Literal["token", "sequence"] = "token"
    """A ratio is the token's own (token) or the geometric mean over its row (sequence, as in GSPO)."""
    clip_low: ClipRange = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: ClipRange = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL divergence to the team before this stage."""
    kl_kind: Literal["k1", "k2", "k3", "k3_ratio"] = "k3"
    """Estimator of the KL divergence; k3_ratio is k3 times the probability ratio."""
    kl_target: Weight = 0.0
    """KL per token that a controller holds by moving each role's kl_coefficient; 0 keeps it fixed."""
    measure_kl: bool = False
    """Log the KL divergence to the team before this stage even where its coefficient is 0."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Decay of the advantage along a trajectory's own tokens, for estimator gae."""
    critic_learning_rate: Rate = 1e-3
    """Learning rate of the value heads, for estimator gae."""
    critic_epochs: PositiveCount = 4
    """Passes of the value heads over a step's rows, for estimator gae."""
    importance: Literal["ratio", "token", "call"] = "ratio"
    """Correction for what the engine sampled: the ratio, or truncated weights; vLLM: `call` if not given."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """Greatest importance weight of a token or call."""
    max_staleness: Count = 0
    """Steps that rollouts may be behind the weights: 0 plays and trains in turn, exactly."""
    drift_alarm: Weight = 0.05
    """Fall of a role's own verified score, mean of drift_window steps, that is reported; 0 never."""
    drift_window: PositiveCount = 5
    """Steps whose mean is compared with the first ones."""
    anchor: Literal["none", "kl", "sft"] = "none"
    """What holds a role whose score fell: KL to its start, or demonstrations of its own family and seat."""
    anchor_coefficient: Weight = 0.1
    """Weight of the anchor's loss."""
    validate_every: Count = 0
    """Steps between validations; the best team of them is kept. 0 keeps the last team."""
    validation_scenarios: PositiveCount = 100
    """Team cases of the validation split, played greedily."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of a role are scaled down to this norm."""
    max_completion_tokens: PositiveCount = 32
    """Tokens per turn before it is cut off."""
    micro_batch_tokens: PositiveCount = 16_384
    """Padded tokens per forward pass of the learner; changes memory, never the result."""
    row_layout: Literal["padded", "packed", "shared_prompt"] = "padded"
    """Rows side by side with padding, end to end, or end to end with every common prompt computed once."""
    sharding: Literal["none", "fsdp2"] = "none"
    """Under torchrun: every rank holds all weights (none), or its part of what is trained (fsdp2)."""
    sharded_bf16: bool = False
    """Whether sharded weights are gathered and multiplied in bfloat16; sums and optimizer stay float32."""
    cpu_offload: bool = False
    """Whether sharded weights and optimizer rest in the memory of the host."""
    logit_rows: Count = 0
    """Own tokens whose logits are held at once; 0 holds those of a whole forward pass."""
    rounds: Count = 1
    """Rounds of votes after the decision; 0 asks for none."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""

    @property
    def needs_reference(self) -> bool:
        """Whether the weights before this stage are kept at hand, for KL."""
        return self.kl_coefficient > 0 or self.measure_kl or self.anchor == "kl"

    @model_validator(mode="after")
    def _check_marl(self) -> Self:
        for key in ("role_learning_rates", "frozen_roles"):
            for role in getattr(self, key):
                if role not in ROLES:
                    raise unknown(f"marl.{key}", role, sorted(ROLES))
        if set(self.frozen_roles) >= set(ROLES):
            raise ValueError("frozen_roles names every role: nothing would be trained")
        if self.estimator == "remax" and self.credit in ("difference", "cross_rescored", "hierarchical"):
            raise ValueError(
                f"estimator remax subtracts a greedy reward, which has no meaning under credit {self.credit}:"
                " use shared, episode or role_normalised"
            )
        if self.protocol == "full" and self.credit in ("difference", "cross_rescored", "hierarchical"):
            raise ValueError(
                f"credit {self.credit} values decisions that nobody took, and a governed episode (protocol"
                " full) is not decided again: set credit to shared, episode or role_normalised"
            )
        if self.kl_target > 0 and self.kl_coefficient == 0:
            raise ValueError("kl_target moves kl_coefficient, which is 0: set one to begin with")
        if self.max_staleness and self.importance == "ratio":
            raise ValueError("max_staleness needs a correction for it: set importance to token or call")
        return self

    checkpoint_every: Count = 0
    """Joint steps between checkpoints of the unfinished stage; 0 saves about once a minute."""


class EngineConfig(Section):
    """What completes prompts. Sampled answers repeat with `transformers` only."""

    name: Literal["transformers", "vllm", "vllm_server"] = "transformers"
    """`transformers` and `vllm` run in this process, `vllm_server` asks running servers."""
    vllm: dict[str, bool | int | float | str] = {}
    """vLLM's own engine arguments, for example {max_model_len: 4096}; with `vllm` alone."""
    servers: tuple[str, ...] = ()
    """Addresses of `vllm serve` instances of one model, for `vllm_server`."""
    structured: bool = False
    """Hold simulated answers to their JSON schema, with `vllm` alone; training never does."""
    request_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a call of vLLM counts as failed."""

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.vllm and self.name != "vllm":
            raise ValueError(f"vllm options are given but name is {self.name!r}: set name to vllm")
        if bool(self.servers) != (self.name == "vllm_server"):
            raise ValueError("servers and name vllm_server go together: give both or neither")
        if self.structured and self.name != "vllm":
            raise ValueError(f"structured answers need name vllm, not {self.name!r}")
        return self


class EvaluationConfig(Section):
    """Sealed evaluation on the test split."""

    num_role_scenarios: PositiveCount = 1000
    """Test scenarios per role."""
    num_team_scenarios: PositiveCount = 600
    """Test scenarios of the team."""
    difficulties: tuple[Difficulty, ...] = ()
    """Difficulties of the test scenarios; none: those of the training data."""
    num_bootstrap: Annotated[int, Field(ge=100)] = 2000
    """Resamples behind each confidence interval, 100 or more."""


class ReviewConfig(Section):
    """Cases that the trained team plays to find those that people should judge (`emads run`)."""

    num_scenarios: Count = 200
    """New cases that are played; 0 leaves the phase out."""
    first_index: Count = 3_000_000
    """Index of the first of them: far from all training cases."""
    decisions_per_case: GroupSize = 8
    """Decisions that are sampled on the same reports, to see how sure the team is."""
    low_margin: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Under this difference of the two most frequent decisions' shares a case is uncertain."""
    max_cases: PositiveCount = 50
    """Most cases in the queue, the most uncertain first."""


class TeamRewardConfig(Section):
    """Weights of the team reward R = V (1 + c C) / (1 + c) - k U - h H."""

    consensus: Weight = 0.25
    """c: how much justified agreement multiplies the value of the decision."""
    unresolved: Weight = 0.2
    """k: penalty on the share of specialists whose hard limit the decision breaks."""
    escalation: Weight = 0.1
    """h: penalty on needless or missed escalation."""


class RunConfig(Section):
    """Everything that determines a run.

    Example: RunConfig(name="trial", grpo=GrpoConfig(max_steps=0)).marl.group_size == 8
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "demo"
    """Name of the run in reports and manifests: letters, digits, `_`, `.` and `-`."""
    seed: Count = 0
    """Seed of initial weights, sampling and shuffling (data.seed is the scenarios' own)."""
    threads_per_worker: PositiveCount = 1
    """CPU threads of each worker process."""
    num_workers: Count = 2
    """Worker processes that train or evaluate side by side; 0 runs everything in this process, in order."""
    checkpoints_kept: Annotated[int, Field(ge=2)] = 2
    """Checkpoints of an unfinished stage that are kept, 2 or more: a damaged one needs an older one."""
    price_per_hour: Weight = 0.0
    """Price of the whole machine per hour, in any currency; 0 shows no cost."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    sft: SftConfig = SftConfig()
    grpo: GrpoConfig = GrpoConfig()
    marl: MarlConfig = MarlConfig()
    engine: EngineConfig = EngineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    team_reward: TeamRewardConfig = TeamRewardConfig()
    review: ReviewConfig = ReviewConfig()


def correct_for_engine(values: dict[str, Any]) -> dict[str, Any]:
    """With vLLM engine and learner differ: importance is corrected per call where a config says nothing.

    Done on a config's text: a validator before the model's own would end the reading of JSON lists as tuples.
    """
    if not _is_other_engine(values.get("engine")):
        return values
    stages = {stage: values.get(stage, {}) for stage in ("grpo", "marl")}
    return values | {
        stage: {"importance": "call", **section} if isinstance(section, dict) else section
        for stage, section in stages.items()
    }


def _is_other_engine(engine: Any) -> bool:
    """Whether rollouts come from another program than the one that learns."""
    name = engine.get("name", "transformers") if isinstance(engine, dict) else getattr(engine, "name", None)
    return name in ("vllm", "vllm_server")


# What may be changed in a run's config.yaml between two attempts: it decides memory, time and money only.
NEUTRAL_KEYS = {
    "num_workers": True,
    "checkpoints_kept": True,
    "price_per_hour": True,
    "sft": {"checkpoint_every", "micro_batch_size"},
    "grpo": {"checkpoint_every"},
    "marl": {"checkpoint_every", "micro_batch_tokens"},
}


def compute_digest(config: RunConfig) -> str:
    """sha256 over the canonical JSON of the resolved config: equal for configs that make the same weights.

    NEUTRAL_KEYS are left out of it.
    """
    return digest_values(config.model_dump(mode="json"))


def digest_values(values: Mapping[str, Any]) -> str:
    """`compute_digest` of a config as it was stored, key by key.

    Keys that a later version added are not in it, so the digest of a stored run never changes.
    """
    kept = {
        key: {k: v for k, v in value.items() if k not in neutral} if isinstance(neutral, set) else value
        for key, value in values.items()
        if (neutral := NEUTRAL_KEYS.get(key)) is not True
    }
    canonical = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
