"""`emads plan`: what a config will take in memory, time and money, before anything runs.

Tokens of each phase come from transcripts of its scenarios. Memory is the sum of the tensors that the passes
of training/learner keep; it is within 6 percent of peaks measured on a GPU (benchmarks/gpu/results). A floor
is what the hardware cannot go below: arithmetic at its peak, or weights and cache read once per sampled
token. The expected time divides it by the shares of the peak that training and sampling reach. Formulas:
docs/results/performance.md.
"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from simulator.chat import Chat, PlainChat
from simulator.engines.vllm.options import BESIDE
from training.config.model_config import ModelConfig
from training.config.run_config import RunConfig
from training.data.demonstrations import corpus, supervised_rows
from training.models.shapes import Shape, find_shape

SAMPLES = 16  # transcripts per role that lengths are taken from
TOKENIZER_SCENARIOS = 100  # per family, for the tiny preset's own tokenizer
CHARACTERS_PER_TOKEN = 3.0  # of other presets: large vocabularies write figures digit by digit
JOINT = "joint RL"
VOTE_SHARE = 0.15  # of a report's length: a vote reads the decision and says one word


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tokens of one phase, all roles together.

    Example: Workload(name="SFT", trained=1.2e6, read=0, sampled=0, batch=0, row=80)
    """

    name: str
    trained: float  # positions of all forward and backward passes
    read: float = 0.0  # prompt and observation tokens that an engine computes
    sampled: float = 0.0  # tokens that an engine samples, one by one
    batch: float = 0.0  # transcripts that are sampled side by side
    row: float = 0.0  # mean positions of a row
    widest: float = 0.0  # positions of the longest transcripts
    step_rows: float = 0.0  # rows of one forward and backward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean tokens of a transcript. Example: Lengths(context=70.0, own=25.0)"""

    context: float  # prompt and tool observations
    own: float  # the role's words

    @property
    def row(self) -> float:
        return self.context + self.own


def list_phases(config: RunConfig) -> list[Workload]:
    """The training phases of a run; evaluation is not among them."""
    share = config.data.seat_share
    chat: Chat = PlainChat()
    if config.model.preset == "tiny":
        from simulator.engines.embedded.hf_chat import HFChat
        from training.models.base_model import train_tokenizer

        tokenizer = train_tokenizer(corpus(config, TOKENIZER_SCENARIOS), config.model.vocab_size)
        chat = HFChat(tokenizer, short_prompts=config.model.short_prompts)
    alone = {role: measure_lengths(config, role, 0.0, chat) for role in ROLES}
    seated = {role: measure_lengths(config, role, 1.0, chat) for role in TEAM_ROLES}
    rows = dict.fromkeys(alone, config.sft.max_steps * config.sft.batch_size)
    lengths = {
        role: share * seated[role].row + (1 - share) * length.row if role in seated else length.row
        for role, length in alone.items()
    }
    sft = Workload(
        name="SFT",
        trained=sum(rows[role] * lengths[role] for role in rows),
        row=statistics.fmean(lengths.values()),
        step_rows=config.sft.micro_batch_size or config.sft.batch_size,
    )
    return [sft, _grpo(config, alone), _marl(config, seated)]


def _grpo(config: RunConfig, alone: dict[str, Lengths]) -> Workload:
    grpo = config.grpo
    batch = grpo.prompts_per_step * grpo.group_size
    played = dict.fromkeys(alone, grpo.max_steps * batch)
    share = (grpo.trained_per_group or grpo.group_size) / grpo.group_size
    passes = grpo.updates_per_batch * share
    row = statistics.fmean(lengths.row for lengths in alone.values())
    return Workload(
        name="GRPO per role",
        trained=sum(played[role] * passes * lengths.row for role, lengths in alone.items()),
        read=sum(played[role] * lengths.context for role, lengths in alone.items()),
        sampled=sum(played[role] * lengths.own for role, lengths in alone.items()),
        batch=batch,
        row=row,
        step_rows=min(math.ceil(batch * share), math.ceil(grpo.memory.micro_batch_tokens / row)),
    )


def _marl(config: RunConfig, seated: dict[str, Lengths]) -> Workload:
    marl = config.marl
    sets = marl.max_steps * marl.scenarios_per_step * marl.report_sets
    reports = [lengths for role, lengths in seated.items() if role != RECONCILER]
    votes, decisions = marl.rounds * VOTE_SHARE, marl.decisions_per_set
    own = sets * (sum(x.own for x in reports) + decisions * seated[RECONCILER].own)
    context = sets * (sum(x.context * (1 + votes) for x in reports) + decisions * seated[RECONCILER].context)
    rows = sets * (len(reports) + decisions)
    return Workload(
        name=JOINT,
        trained=own + context,
        read=context,
        sampled=own,
        batch=marl.scenarios_per_step * marl.report_sets * (len(reports) + decisions),
        row=(own + context) / max(1, rows),
        widest=max(x.row + x.context * votes for x in seated.values()),
        step_rows=marl.memory.micro_batch_tokens / max(1.0, (own + context) / max(1, rows)),
    )


def measure_lengths(config: RunConfig, role: str, seat_share: float, chat: Chat) -> Lengths:
    """Mean lengths of demonstrations: exact with the tiny preset's tokenizer, else from their characters."""
    rows = list(supervised_rows(config, role, chat, num_rows=SAMPLES, first_row=0, seat_share=seat_share))
    own = statistics.fmean(sum(row.loss_mask) for row in rows)
    context = statistics.fmean(len(row.token_ids) - sum(row.loss_mask) for row in rows)
    if not isinstance(chat, PlainChat):
        return Lengths(context=context, own=own)
    tools = sum(len(str(tool.as_chat_tool())) for tool in ROLES[role].tools)
    opening = 0 if config.model.short_prompts else len(ROLES[role].mandate) + tools
    return Lengths(context=(opening + context) / CHARACTERS_PER_TOKEN, own=own / CHARACTERS_PER_TOKEN)


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
    """Bytes of keys and values in each engine; `in_turn`: bytes that a learner uses while vLLM sleeps.

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


GIB = 2**30
# Tokens of one turn of a stated workload: what is new to read before it, and what is said.
TURN_READ, TURN_SAMPLED = 256, 128
USABLE_SHARE = 0.9  # of a device's memory; the rest is fragmentation and the runtime
_WORKLOAD = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,4})x([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. Example: DEVICES["a100"].flops == 312e12"""

    name: str
    flops: float  # dense bfloat16, per second
    bandwidth: float  # bytes per second of its memory
    memory: float  # bytes
    training_share: float = 0.20  # of flops, in forward and backward passes; 17 to 23 % on an H100
    reading_share: float = 0.50  # of flops, in prefill; not measured
    sampling_share: float = 0.50  # of bandwidth, in decoding by vLLM; not measured
    embedded_share: float = 0.03  # the same by the embedded engine; 1 to 4 % on an H100


DEVICES = {
    "a100": Device(name="A100 80 GB", flops=312e12, bandwidth=2.039e12, memory=80e9),
    "h100": Device(name="H100 80 GB", flops=989e12, bandwidth=3.35e12, memory=80e9),
    "h200": Device(name="H200 141 GB", flops=989e12, bandwidth=4.8e12, memory=141e9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """Seconds of one phase on all ranks together."""

    name: str
    compute_floor_s: float
    bandwidth_floor_s: float
    expected_s: float


def training_flops_per_token(shape: Shape, config: RunConfig) -> float:
    """2 N forward, 2 N for the inputs' gradients, 2 N for the weights' (not of a frozen base), 2 N again."""
    passes = 4 if config.model.adapter != "none" else 6
    passes += 2 if config.model.gradient_checkpointing else 0
    return float(passes * shape.num_working)


def attention_flops_per_token(shape: Shape, row: float) -> float:
    """Forward: 4 * layers * width * positions before it, half of the row on average."""
    return 4 * shape.layers * shape.heads * shape.head_size * row / 2


def estimate_time(shape: Shape, config: RunConfig, phase: Workload, device: Device, ranks: int) -> PhaseTime:
    """Floors and expected seconds of a phase: joint training on all ranks, others with a role on each.

    On rollout hosts joint training plays beside the ranks; with `max_staleness` while they learn.
    """
    players: float = ranks
    together = ranks  # devices that share a batch
    batch, plays_ahead = phase.batch, False
    if phase.name != JOINT:
        together, owners = 1, 1 if config.model.adapter_sharing == "shared" else len(ROLES)
        ranks = players = min(ranks, owners)
    elif config.num_hosts:
        players, plays_ahead = config.num_hosts, config.marl.max_staleness > 0
        together, batch = 1, config.cases_per_block / config.marl.scenarios_per_step * phase.batch
    learning = phase.trained * (
        training_flops_per_token(shape, config) + 3 * attention_flops_per_token(shape, phase.row)
    )
    reading = phase.read * (2 * shape.num_working + attention_flops_per_token(shape, phase.row))
    sampling = phase.sampled * (2 * shape.num_working + attention_flops_per_token(shape, phase.row))
    moved = sampling_bytes(shape, replace(phase, batch=batch), config, together)
    learns_s = learning / ranks / (device.flops * device.training_share)
    plays_s = reading / (device.flops * device.reading_share)
    share = device.sampling_share if planned_engine(config) != "transformers" else device.embedded_share
    plays_s += max(sampling / (device.flops * device.reading_share), moved / (device.bandwidth * share))
    floors = learning / ranks / device.flops, (reading + sampling) / players / device.flops
    return PhaseTime(
        name=phase.name,
        compute_floor_s=max(floors) if plays_ahead else sum(floors),
        bandwidth_floor_s=moved / players / device.bandwidth,
        expected_s=max(learns_s, plays_s / players) if plays_ahead else learns_s + plays_s / players,
    )


def sampling_bytes(shape: Shape, phase: Workload, config: RunConfig, ranks: int = 1) -> float:
    """Bytes read while sampling: all weights once per step of a batch, and each transcript's cache."""
    if not phase.sampled:
        return 0.0
    value = 4 if config.model.adapter == "none" and config.model.preset == "tiny" else 2
    steps = phase.sampled / max(1.0, phase.batch / ranks)
    return steps * value * shape.num_working + phase.sampled * phase.row * shape.cache_bytes(value)


def show_plan(config: RunConfig, device: str, ranks: int, price: float | None, workload: str | None) -> str:
    """Sizes, memory per rank, and each phase's floors and expected time.

    Raises:
        UserError: unknown device, unknown model sizes, a malformed workload.
    """
    if device not in DEVICES:
        raise unknown("device", device, list(DEVICES))
    shape = find_shape(config.model)
    phases = list_phases(config) if workload is None else [stated_workload(workload)]
    times = [estimate_time(shape, config, phase, DEVICES[device], ranks) for phase in phases]
    title, limit = f"{ranks} x {DEVICES[device].name}", DEVICES[device].memory
    hosts = config.num_hosts if any(phase.name == JOINT for phase in phases) else 0
    gpus = float(hosts)
    memory = estimate_memory(shape, config, phases, ranks, device_bytes=limit)
    most = memory.total
    lines = [
        f"{config.name}: {config.model.preset}, {shape.num_parameters / 1e6:,.1f} M parameters, {title}",
        f"memory per rank: {_memory_text(memory)}",
    ]
    if hosts:
        (joint,) = (phase for phase in phases if phase.name == JOINT)
        host = host_memory(shape, config, joint, device_bytes=limit)
        most = max(most, host.total)
        title = f"memory of each of {hosts} rollout hosts on {gpus:g} GPUs beside the ranks'"
        lines.append(f"{title}: {_memory_text(host)}")
    if most > USABLE_SHARE * limit:
        lines.append(
            f"does not fit into {limit / GIB:.0f} GiB, so it has no time and no price: more ranks (--ranks),"
            " an adapter (model.adapter=lora), model.gradient_checkpointing=true or smaller micro batches"
        )
        return "\n".join(lines)
    lines += _time_lines(phases, times, ranks + gpus, price)
    return "\n".join(lines)


def stated_workload(text: str) -> Workload:
    """One epoch of TASKSxROLLOUTSxTURNS, every rollout trained on once.

    Example: stated_workload("500x8x5").sampled == 500 * 8 * 5 * TURN_SAMPLED

    Raises UserError for another form.
    """
    match = _WORKLOAD.fullmatch(text)
    if match is None:
        raise UserError(f"--workload {text!r} is not of the form TASKSxROLLOUTSxTURNS, e.g. 500x8x5")
    tasks, rollouts, turns = (int(part) for part in match.groups())
    played = tasks * rollouts
    row = turns * (TURN_READ + TURN_SAMPLED)
    return Workload(
        name=f"epoch of {played * turns:,} turns",
        trained=float(played * row),
        read=float(played * turns * TURN_READ),
        sampled=float(played * turns * TURN_SAMPLED),
        batch=256.0,
        row=float(row),
        step_rows=8.0,
    )


def _memory_text(memory: Memory) -> str:
    sizes = {field.name: getattr(memory, field.name) for field in fields(memory)}
    shown = ", ".join(f"{name} {size / GIB:.2f}" for name, size in sizes.items() if size)
    return f"{memory.total / GIB:.2f} GiB ({shown})"


def _time_lines(
    phases: list[Workload], times: list[PhaseTime], devices: float, price: float | None
) -> list[str]:
    heading = f"{'phase':<28}{'trained':>12}{'read':>12}{'sampled':>12}"
    heading += f"{'compute':>10}{'memory':>10}{'expected':>10}{'price':>10}"
    lines, total = [heading], sum(time.expected_s for time in times)
    for phase, time in zip(phases, times, strict=True):
        line = f"{phase.name:<28}{phase.trained:>12,.0f}{phase.read:>12,.0f}{phase.sampled:>12,.0f}"
        line += f"{_clock(time.compute_floor_s):>10}{_clock(time.bandwidth_floor_s):>10}"
        lines.append(f"{line}{_clock(time.expected_s):>10}{_cost(time.expected_s, devices, price):>10}")
    lines.append(f"{'all':<84}{_clock(total):>10}{_cost(total, devices, price):>10}")
    lines.append("tokens of each kind; floors of arithmetic and of memory traffic; evaluation is not counted")
    return lines


def _clock(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _cost(seconds: float, devices: float, price: float | None) -> str:
    return "-" if price is None else f"{seconds / 3600 * devices * price:.2f}"
