"""`RunConfig`: everything that determines a run; defaults are the vetted run.

Each stage's section has a file of its own beside this one. Every field is read by a stage. Loading (YAML,
--set, messages) is in `training/config/loading.py`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from roles.errors import UserError, unknown
from roles.registry import ROLES
from simulator.reward import TeamRewardWeights
from training.config.model_config import ModelConfig
from training.config.rl_config import GrpoConfig, MarlConfig, RLConfig
from training.config.section import Count, Difficulty, Place, PositiveCount, Rate, Section, check_patience


class SftConfig(Section):
    """Supervised fine-tuning of each role on demonstrations."""

    max_steps: Count = 800
    """Optimizer steps per role; 0 leaves the base model as it is."""
    transfer_from: str | None = None
    """Role that is trained first, from whose SFT weights all others start; null: every role from the base."""
    start_from: str | None = None
    """Another run's folder, from whose SFT weights on the same base this SFT goes on; null: from the base."""
    refused_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of demonstrations in which a tool refuses a wrong call, not learnt from, before the right one."""
    batch_size: PositiveCount = 16
    """Demonstrations per optimizer step; packed rows with row_layout packed."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """`muon` (2-D weights by Muon, the rest by AdamW) or `adamw` alone."""
    muon_learning_rate: Rate = 0.01
    """Peak rate of Muon; unused with adamw."""
    learning_rate: Rate = 0.004
    """Peak rate of AdamW."""
    micro_batch_size: Count = 0
    """Demonstrations per forward pass: less memory, same step; it divides batch_size. 0 takes all at once."""
    row_layout: Literal["padded", "packed", "shared_prompt"] = "shared_prompt"
    """Rows side by side; end to end, 1024 tokens a row; or end to end with their common prompts once."""
    validate_every: Count = 0
    """Steps between validations, of which the best weights are kept; 0 keeps the last weights."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.transfer_from is not None and self.transfer_from not in ROLES:
            raise unknown("sft.transfer_from", self.transfer_from, list(ROLES))
        if self.start_from is not None and self.transfer_from is not None:
            raise ValueError(
                "start_from gives every role its own weights, transfer_from another role's: leave one out"
            )
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} must divide batch_size {self.batch_size}"
            )
        check_patience(self.patience, self.validate_every)
        return self


RL_STAGES = ("grpo", "marl")  # whose keys of `RLConfig` the section `rl` sets together
FIRST_GRPO_INDEX = 1_000_000  # of GRPO's training scenarios: far from the demonstrations
FIRST_MARL_INDEX = 2_000_000  # of joint training's cases, where it goes on from no other joint training
FIRST_REVIEW_INDEX = 3_000_000  # of the cases that are played for review: far from all training cases


class DataConfig(Section):
    """Scenarios and demonstrations. Splits never share a scenario, whatever the seed."""

    seed: Place = 0
    """Seed of the scenario streams."""
    difficulties: tuple[Difficulty, ...] = Field(default=(1, 2), min_length=1)
    """Difficulties that scenarios cycle through, 1 (easiest) to 10."""
    num_demonstrations: Count = 4000
    """Demonstrations per role that SFT goes over again and again; 0 takes new ones always."""
    seat_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the supervised rows that show the role's seat in the team; the rest shows its own family."""
    offers_per_option: Annotated[int, Field(ge=1, le=3)] = 1
    """Most parts that a seat may offer on one option of a team case; ReconcileGPT funds one of them."""
    replan_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the supervised rows that show a governed episode with a re-plan, for marl.protocol full."""

    @field_validator("difficulties")
    @classmethod
    def _check_difficulties(cls, difficulties: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(difficulties)) != len(difficulties):
            raise ValueError(f"{list(difficulties)} repeats a difficulty: name each one once")
        return difficulties


class RolloutsConfig(Section):
    """Processes that play episodes of GRPO and joint training; `block_size` alone changes the weights."""

    hosts: Count = 0
    """Processes that play, each with all policies; 0 plays in the learner's process."""
    block_size: Count = 0
    """Cases that are played side by side, or on a host; 0: all of a step, and 250 of an evaluation."""
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Seconds after which a silent host is replaced; ranks without hosts wait as long for each other."""
    ray: str = ""
    """Ray cluster whose actors are the hosts: an address, `auto` or `local`; empty: processes here."""


class EngineConfig(Section):
    """Engine that completes prompts. Sampled answers repeat with `transformers` only."""

    name: Literal["auto", "transformers", "vllm", "vllm_server"] = "auto"
    """`transformers`, `vllm`, running servers; `auto`: vLLM on a GPU where it is installed and can."""
    vllm: dict[str, bool | int | float | str] = Field(default={})
    """vLLM's own engine arguments, for example {max_model_len: 4096}; with `vllm` alone."""
    servers: tuple[str, ...] = ()
    """Addresses of `vllm serve` instances of one model, for `vllm_server`."""
    adapter_folder: str = ""
    """Folder for adapters that all `servers` see; empty: memory, for servers on this machine."""

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.vllm and self.name != "vllm":
            raise ValueError(f"vllm options are given but name is {self.name!r}: set name to vllm")
        if bool(self.servers) != (self.name == "vllm_server"):
            raise ValueError("servers and name vllm_server go together: give both or neither")
        if self.adapter_folder and self.name != "vllm_server":
            raise ValueError(f"adapter_folder is for name vllm_server, not {self.name!r}: leave it out")
        far = [one for one in self.servers if urlsplit(one).hostname not in ("127.0.0.1", "localhost", "::1")]
        if far and not self.adapter_folder:
            raise ValueError(
                f"the server {far[0]} is on another machine and reads adapters from files: set adapter_folder"
                " to a folder that it and this machine share"
            )
        return self


class EvaluationConfig(Section):
    """Sealed evaluation on the test split."""

    num_role_scenarios: PositiveCount = 1000
    """Test scenarios per role."""
    num_team_scenarios: PositiveCount = 600
    """Test scenarios of the team."""
    difficulties: tuple[Difficulty, ...] = ()
    """Difficulties of the test scenarios; none: those of the training data."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Sampling temperature of the plays that are judged; 0: all play greedily, and `greedy` is false."""
    greedy: bool = True
    """Play all of them greedily, too; without, half of the time, and what greedy play shows is not judged."""
    num_tries: PositiveCount = 4
    """Plays of each of the first 100 team cases, for the chance that all succeed; 1 plays none again."""

    @model_validator(mode="after")
    def _check_greedy_plays(self) -> Self:
        """Refuse to play the same again: greedy plays of a scenario never differ."""
        if self.temperature == 0 and (self.greedy or self.num_tries > 1):
            raise ValueError(
                "at temperature 0 all plays of a scenario are alike: set greedy to false and num_tries to 1"
            )
        return self


class ReviewConfig(Section):
    """Cases that the trained team plays to find those that people should judge (`emads run`)."""

    num_scenarios: Count = 200
    """New cases that are played; 0 leaves the phase out."""


class RunConfig(Section):
    """Everything that determines a run.

    Example: RunConfig(name="trial", grpo=GrpoConfig(max_steps=0)).marl.group_size == 8
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "demo"
    """Name of the run in reports and manifests: letters, digits, `_`, `.` and `-`."""
    seed: Place = 0
    """Seed of initial weights, sampling and shuffling (data.seed is the scenarios' own)."""
    threads_per_worker: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPU threads of each worker process."""
    num_workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """Worker processes that train or evaluate side by side; 0 runs everything in this process, in order."""
    num_ranks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Workers that share the cases of a joint step, and the batches of a model of all roles; on CPUs."""
    checkpoint_every: Count = 0
    """Steps between checkpoints of an unfinished stage; 0 saves about once a minute."""
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...] = ()
    """Trackers that get the metrics of every stage, beside metrics.jsonl."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    sft: SftConfig = SftConfig()
    grpo: GrpoConfig = GrpoConfig()
    marl: MarlConfig = MarlConfig()
    rollouts: RolloutsConfig = RolloutsConfig()
    engine: EngineConfig = EngineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    team_reward: TeamRewardWeights = TeamRewardWeights()
    review: ReviewConfig = ReviewConfig()

    @property
    def cases_per_block(self) -> int:
        """Cases of a joint step that are played side by side."""
        return self.rollouts.block_size or self.marl.scenarios_per_step

    @property
    def num_hosts(self) -> int:
        """Rollout hosts of joint training that have something to do; 0 plays in the learner's process."""
        return self._count_hosts(self.marl.scenarios_per_step, self.marl.max_staleness)

    @property
    def num_role_hosts(self) -> int:
        """Rollout hosts of a role's GRPO that have something to do; 0 plays in the learner's process."""
        return self._count_hosts(self.grpo.prompts_per_step, self.grpo.max_staleness)

    def _count_hosts(self, cases: int, ahead: int) -> int:
        """Hosts for steps of so many cases; none for a step's only block which nobody waits for meanwhile."""
        num_blocks = -(-cases // (self.rollouts.block_size or cases))
        if num_blocks == 1 and not ahead and not self.rollouts.ray:
            return 0
        return min(self.rollouts.hosts, num_blocks * (ahead + 1))

    @model_validator(mode="after")
    def _check_sharding(self) -> Self:
        """Refuse a packed base in parts: its numbers are no weights that FSDP2 could cut."""
        for name, section in (("grpo", self.grpo), ("marl", self.marl)):
            if section.memory.sharding != "none" and self.model.adapter == "qlora":
                raise ValueError(
                    f"{name}.memory.sharding {section.memory.sharding} does not shard the 4-bit base of"
                    " model.adapter qlora: set it to none (every rank holds the packed base), or"
                    " model.adapter to lora"
                )
        return self

    @model_validator(mode="after")
    def _check_ranks(self) -> Self:
        """Refuse batches that the ranks cannot share evenly, and ranks that would never play."""
        if self.num_ranks == 1:
            return self
        if self.model.adapter_sharing == "shared" and self.sft.batch_size % self.num_ranks:
            raise ValueError(
                f"sft.batch_size {self.sft.batch_size} is no multiple of num_ranks {self.num_ranks}: change"
                " either"
            )
        if self.rollouts.hosts or self.engine.name not in ("auto", "transformers"):
            raise ValueError(
                f"num_ranks {self.num_ranks} is for engine transformers without rollouts.hosts: set it to 1"
            )
        return self

    @model_validator(mode="after")
    def _check_transfer(self) -> Self:
        """Refuse what is for single roles where all share their weights."""
        if self.model.adapter_sharing == "shared" and self.sft.transfer_from:
            raise ValueError("sft.transfer_from is for roles with weights of their own: leave it out")
        return self

    @model_validator(mode="after")
    def _check_rollouts(self) -> Self:
        """Refuse hosts that would never have anything to do."""
        cases, rollouts = self.marl.scenarios_per_step, self.rollouts
        if rollouts.hosts > self.marl.max_staleness + 1 and not rollouts.block_size:
            raise ValueError(
                f"rollouts.hosts is {rollouts.hosts}, but all {cases} cases of a step go to one of them: set"
                f" rollouts.block_size, for example to {-(-cases // rollouts.hosts)}"
            )
        if rollouts.hosts and self.engine.name == "vllm_server":
            raise ValueError("engine vllm_server plays on its servers already: leave rollouts.hosts at 0")
        return self

    @model_validator(mode="after")
    def _keep_streams_apart(self) -> Self:
        """Refuse a stage that would run into the training scenarios of the stage after it, or never end."""
        room = (
            FIRST_GRPO_INDEX  # as from there to joint training's first index, and from there to the review's
        )
        for section, steps, per_step, end in (
            ("sft", self.sft.max_steps, self.sft.batch_size, "GRPO's scenarios"),
            ("grpo", self.grpo.max_steps, self.grpo.prompts_per_step, "the cases of joint training"),
            ("marl", self.marl.max_steps, self.marl.scenarios_per_step, "the review's cases"),
        ):
            if steps * per_step > room:
                raise ValueError(
                    f"{section}.max_steps = {steps} with {per_step} scenarios each is {steps * per_step:,}"
                    f" scenarios, but there are {room:,} before {end}; take at most {room // per_step:,}"
                    " steps"
                )
        return self


def spread_shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's text with the keys of its section `rl` in both stages of RL, where a stage sets no other.

    Done on a config's text, as `correct_for_engine` is.

    Raises:
        UserError: `rl` is no section, or has a key that one of the stages alone knows.
    """
    if "rl" not in values:
        return dict(values)
    shared = values["rl"]
    if not isinstance(shared, dict):
        raise UserError(f"config key rl = {shared!r}: must be a section with keys of its own")
    for key in shared:
        if key not in RLConfig.model_fields:
            raise unknown("config key of rl:", str(key), list(RLConfig.model_fields))
    spread = {stage: _lay_over(shared, values.get(stage, {})) for stage in RL_STAGES}
    return {key: value for key, value in values.items() if key != "rl"} | spread


def _lay_over(shared: dict[str, Any], own: Any) -> Any:
    """A stage's keys, and those of `shared` that it does not set; what is no section is left as it is."""
    if not isinstance(own, dict):
        return own
    laid = {
        key: _lay_over(shared[key], value) if isinstance(shared.get(key), dict) else value
        for key, value in own.items()
    }
    return laid | {key: value for key, value in shared.items() if key not in own}


def correct_for_engine(values: dict[str, Any]) -> dict[str, Any]:
    """With vLLM engine and learner differ: importance is corrected per call where a config says nothing.

    Done on a config's text: a validator before the model's own would end the reading of JSON lists as tuples.
    """
    engine = values.get("engine")
    name = engine.get("name") if isinstance(engine, dict) else getattr(engine, "name", None)
    changed = {}
    for stage in RL_STAGES if name in ("vllm", "vllm_server") else ():
        keys = values.get(stage, {})
        if isinstance(keys, dict) and isinstance(loss := keys.get("loss", {}), dict):
            changed[stage] = keys | {"loss": {"importance": "call", **loss}}
    return values | changed


# Keys of a run's config.yaml that may change between two attempts: they decide memory, time and money only.
NEUTRAL_KEYS = frozenset(
    {
        "num_workers",
        "checkpoint_every",
        "report_to",
        "sft.micro_batch_size",
        "grpo.memory.micro_batch_tokens",
        "marl.memory.micro_batch_tokens",
        "rollouts.hosts",
        "rollouts.timeout_s",
        "rollouts.ray",
    }
)


def compute_digest(config: RunConfig) -> str:
    """sha256 over the canonical JSON of the resolved config: equal for configs that make the same weights.

    NEUTRAL_KEYS are left out of it.
    """
    return digest_values(config.model_dump(mode="json"))


def digest_values(values: Mapping[str, Any]) -> str:
    """`compute_digest` of a config as it was stored, key by key.

    Keys that a later version added are not in it, so the digest of a stored run never changes.
    """
    canonical = json.dumps(without_neutral(spread_shared(values)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def without_neutral(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a stored config, or a part of it under `prefix`, without NEUTRAL_KEYS."""
    return {
        key: without_neutral(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in values.items()
        if prefix + key not in NEUTRAL_KEYS
    }
