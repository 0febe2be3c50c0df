"""Bytes that a rank holds while it trains, from sizes alone: the arithmetic of `emads plan` and the dry run.

Counted from what the passes of training/learner keep, and held against peaks measured on a GPU
(benchmarks/gpu/results): within 6 percent there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from roles.registry import ROLES
from simulator.engines.vllm.options import BESIDE
from training.config.model_config import ModelConfig
from training.config.run_config import RunConfig
from training.models.shapes import Shape
from training.planning.workload import JOINT, Workload

LOGIT_CHUNK = 2048  # positions whose logits TRL's and the trainer's losses hold at once
LOGIT_BYTES = 12  # of a logit while its softmax and entropy are taken: three numbers in float32
WINDOW_SPARE = 1.25  # columns of the embedded engine's window, as a multiple of the longest transcript
KEPT_LOGIT_BYTES = 16  # of a logit that is kept for the backward pass, with its gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on each rank while training."""

    weights: float = 0.0  # of the base and of what is trained
    gradients: float = 0.0
    optimizer: float = 0.0
    players: float = 0.0  # copies that play where the learner's weights are sharded or learn meanwhile
    activations: float = 0.0  # what the forward pass keeps for the backward pass
    working: float = 0.0  # on top of it for a while: logits, or with checkpoints one layer computed again
    cache: float = 0.0  # keys and values of the transcripts that are sampled side by side

    @property
    def total(self) -> float:
        """The sum; an engine samples and a learner trains in turn, and both stay."""
        sizes: list[float] = [getattr(self, field.name) for field in fields(self)]
        return sum(sizes)


def layer_bytes(shape: Shape, value: int) -> int:
    """Return what the backward pass of one layer keeps of one token; `value` bytes to a number.

    Two norms with their inputs in float32, queries, keys, values, attention output, and four vectors of the
    feed-forward width (gate, its activation, up, their product).
    """
    attention = 2 * shape.heads * shape.head_size + 2 * shape.kv_heads * shape.head_size
    return 2 * 4 * shape.hidden + value * (2 * shape.hidden + attention + 4 * shape.inner)


def activation_bytes(shape: Shape, value: int, *, checkpointing: bool) -> int:
    """Return what all layers keep of one token: everything, or each layer's input."""
    return shape.layers * (value * shape.hidden if checkpointing else layer_bytes(shape, value))


def working_bytes(shape: Shape, value: int, tokens: float, logits: float, *, checkpointing: bool) -> float:
    """The larger of what comes in turn: logits, or a layer computed again with the gradients through it."""
    if not checkpointing:
        return logits
    passing = value * (shape.inner + 2 * shape.hidden)
    return max(logits, tokens * (layer_bytes(shape, value) + passing))


def joint_memory(shape: Shape, config: RunConfig, ranks: int, *, tokens: float | None = None) -> Memory:
    """Of joint training; `tokens` of a micro-batch where they are fewer than the config allows."""
    model, memory = config.model, config.marl.memory
    owners = 1 if model.adapter_sharing == "shared" else len(ROLES)
    parts = ranks if memory.sharding != "none" else 1
    value = 2 if model.dtype == "bfloat16" or memory.bf16 else 4
    checkpointing = model.gradient_checkpointing
    held = float(memory.micro_batch_tokens) if tokens is None else tokens
    trained = float(owners * _trained_by_owner(shape, model))
    base = _frozen_bytes(shape, model)
    kept = 4.0 * trained if config.marl.needs_reference else 0.0  # what was trained as it was, for KL
    plays_halved = memory.bf16 and model.adapter == "none"
    gathered = 0.0  # a layer in use and the next one, embeddings and head
    if parts > 1:
        gathered = value * (2.0 * shape.layer_parameters + shape.num_parameters - shape.num_layer_parameters)
    elif plays_halved:
        gathered = 2.0 * shape.num_parameters  # a model's weights in the precision of its pass
    is_offloaded = memory.sharding == "fsdp2_offload" and parts > 1
    stays = 0.0 if is_offloaded else 1 / parts
    logits = KEPT_LOGIT_BYTES * held * shape.vocab
    if memory.logit_rows:
        logits = LOGIT_BYTES * min(float(memory.logit_rows), held) * shape.vocab
    # copies play of what is sharded or has passes in bfloat16; what plays ahead keeps its own version
    is_embedded = planned_engine(config) == "transformers"
    plays_ahead = config.marl.max_staleness > 0 and not config.num_hosts
    copies = int(parts > 1 or (plays_halved and is_embedded)) + int(plays_ahead)
    return Memory(
        weights=(base + 4.0 * trained + kept) * stays + gathered,
        gradients=4.0 * trained * stays,
        optimizer=8.0 * trained * stays,
        players=(2.0 if plays_halved else 4.0) * trained * copies + base * (parts > 1 and is_embedded),
        activations=held * activation_bytes(shape, value, checkpointing=checkpointing),
        working=working_bytes(shape, value, held, logits, checkpointing=checkpointing),
    )


def host_memory(shape: Shape, config: RunConfig, phase: Workload, *, device_bytes: float = 80e9) -> Memory:
    """Of a rollout host: the whole team, and the cache of the block of cases that it plays."""
    owners = 1 if config.model.adapter_sharing == "shared" else len(ROLES)
    trained = 4.0 * owners * _trained_by_owner(shape, config.model)
    block = replace(phase, batch=config.cases_per_block / config.marl.scenarios_per_step * phase.batch)
    return Memory(
        weights=_frozen_bytes(shape, config.model) + trained,
        cache=_cache_bytes(shape, config, block, 1, device_bytes),
    )


def role_memory(shape: Shape, config: RunConfig, phase: Workload) -> Memory:
    """Of SFT or GRPO of one role, which is trained on one GPU."""
    model = config.model
    trained = float(_trained_by_owner(shape, model))
    width, checkpointing = phase.step_rows * phase.row, model.gradient_checkpointing
    value = 2 if model.dtype == "bfloat16" else 4
    logits = float(KEPT_LOGIT_BYTES * min(width, LOGIT_CHUNK) * shape.vocab)
    return Memory(
        weights=_frozen_bytes(shape, model) + 4.0 * trained,
        gradients=4.0 * trained,
        optimizer=8.0 * trained,
        activations=width * activation_bytes(shape, value, checkpointing=checkpointing),
        working=working_bytes(shape, value, width, logits, checkpointing=checkpointing),
    )


def estimate_memory(
    shape: Shape, config: RunConfig, phases: Sequence[Workload], ranks: int, *, device_bytes: float = 80e9
) -> Memory:
    """Of the phase that needs most, with the cache of what it samples side by side.

    With vLLM in the process the cache is its share of the device, less what the learner takes in turn.
    """
    found = []
    for phase in phases:
        if phase.name != JOINT:
            one, engines = role_memory(shape, config, phase), 1
        else:
            one, engines = joint_memory(shape, config, ranks), 0 if config.num_hosts else ranks
        if engines:
            in_turn = 0.0 if config.marl.max_staleness else one.activations + one.working
            cache = _cache_bytes(shape, config, phase, engines, device_bytes, in_turn=in_turn)
            one = replace(one, cache=cache)
        found.append(one)
    return max(found, key=lambda memory: memory.total, default=Memory())


def _cache_bytes(
    shape: Shape,
    config: RunConfig,
    phase: Workload,
    engines: int,
    device_bytes: float,
    *,
    in_turn: float = 0.0,
) -> float:
    """Keys and values in one of so many engines; `in_turn`: what a learner takes while vLLM sleeps.

    vLLM pages its share of a GPU; the embedded engine holds every transcript as wide as the widest.
    """
    name = planned_engine(config, on_gpu=device_bytes > 0)
    if not phase.sampled or name == "vllm_server":
        return 0.0
    if name == "vllm":
        share = float(config.engine.vllm.get("gpu_memory_utilization", BESIDE)) * device_bytes
        return max(0.0, share - in_turn)
    value = 2 if config.model.dtype == "bfloat16" else 4
    columns = WINDOW_SPARE * max(phase.widest, phase.row)
    return phase.batch / engines * columns * shape.cache_bytes(value)


def planned_engine(config: RunConfig, *, on_gpu: bool = True) -> str:
    """Name of the engine that plays there, where vLLM is installed."""
    if config.engine.name != "auto":
        return config.engine.name
    can_be_served = config.model.preset != "tiny" and config.model.adapter != "qlora"
    return "vllm" if on_gpu and can_be_served else "transformers"


def _trained_by_owner(shape: Shape, model: ModelConfig) -> int:
    return shape.num_parameters if model.adapter == "none" else shape.lora_parameters(model.lora_rank)


def _frozen_bytes(shape: Shape, model: ModelConfig) -> float:
    if model.adapter == "none":
        return 0.0
    per_weight = 0.55 if model.adapter == "qlora" else {"float32": 4.0, "bfloat16": 2.0}[model.dtype]
    return per_weight * shape.num_parameters
