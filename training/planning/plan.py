"""Floors and expected time of a phase on a device. Formulas: docs/results/performance.md.

A floor is what the hardware cannot go below: arithmetic at its peak, or weights and cache read once per
sampled token. The expected time divides it by the shares of the peak that training and sampling reach.
"""

from dataclasses import dataclass, replace

from roles.errors import UserError
from roles.registry import ROLES
from training.config.run_config import RunConfig
from training.planning.memory import planned_engine
from training.planning.shapes import Shape
from training.planning.workload import JOINT, Phase


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


def estimate_time(shape: Shape, config: RunConfig, phase: Phase, device: Device, ranks: int) -> PhaseTime:
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
        players, plays_ahead = host_gpus(config), config.marl.max_staleness > 0
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


def host_gpus(config: RunConfig) -> float:
    """GPUs of a run's rollout hosts: one for each process, of Ray what it is asked for.

    Raises:
        UserError: Ray is asked for none.
    """
    if config.num_hosts and config.rollouts.backend == "ray" and not config.rollouts.gpus_per_host:
        raise UserError(
            "rollouts.gpus_per_host is 0, so Ray gives rollout hosts no GPU, and a plan for GPUs has no speed"
            " for them: set it to 1"
        )
    return config.num_hosts * (config.rollouts.gpus_per_host if config.rollouts.backend == "ray" else 1.0)


def sampling_bytes(shape: Shape, phase: Phase, config: RunConfig, ranks: int = 1) -> float:
    """Bytes read while sampling: all weights once per step of a batch, and each transcript's cache."""
    if not phase.sampled:
        return 0.0
    value = 4 if config.model.adapter == "none" and config.model.preset == "tiny" else 2
    steps = phase.sampled / max(1.0, phase.batch / ranks)
    return steps * value * shape.num_working + phase.sampled * phase.row * shape.cache_bytes(value)
