"""`emads plan`: what a config will take in memory, time and money, before anything runs.

A floor is what the hardware cannot go below: arithmetic at its peak, or weights and cache read once per
sampled token. The expected time divides it by the shares of the peak that training and sampling reach.
Formulas: docs/results/performance.md.
"""

import re
from dataclasses import dataclass, fields, replace

from roles.errors import UserError, unknown
from roles.registry import ROLES
from training.config.run_config import RunConfig
from training.models.shapes import Shape, find_shape
from training.planning.memory import Memory, estimate_memory, host_memory, planned_engine
from training.planning.workload import JOINT, Workload, list_phases

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

    Raises:
        UserError: another form.
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
