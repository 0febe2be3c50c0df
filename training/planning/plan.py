"""Floors and expected time of a phase on a device. Formulas: docs/notebook/performance.md.

A floor is what the hardware cannot go below: arithmetic at its peak, or weights and cache read once per
sampled token. The expected time divides it by the shares of the peak that training and sampling reach.
"""

from dataclasses import dataclass

from roles.registry import ROLES
from training.config.run_config import RunConfig
from training.planning.shapes import Shape
from training.planning.workload import JOINT, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. Example: DEVICES["a100"].flops == 312e12"""

    name: str
    flops: float  # dense bfloat16, per second
    bandwidth: float  # bytes per second of its memory
    memory: float  # bytes
    training_share: float = 0.40  # of flops, in forward and backward passes
    reading_share: float = 0.50  # of flops, in prefill
    sampling_share: float = 0.50  # of bandwidth, in decoding


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
    """Floors and expected seconds of a phase: joint training on all ranks, others with a role on each."""
    together = ranks  # ranks that share a batch
    if phase.name != JOINT:
        ranks, together = min(ranks, 1 if config.model.adapter_sharing == "shared" else len(ROLES)), 1
    learning = phase.trained * (
        training_flops_per_token(shape, config) + 3 * attention_flops_per_token(shape, phase.row)
    )
    reading = phase.read * (2 * shape.num_working + attention_flops_per_token(shape, phase.row))
    sampling = phase.sampled * (2 * shape.num_working + attention_flops_per_token(shape, phase.row))
    moved = sampling_bytes(shape, phase, config, together)
    compute, bandwidth = (learning + reading + sampling) / device.flops, moved / device.bandwidth
    expected = learning / (device.flops * device.training_share)
    expected += reading / (device.flops * device.reading_share)
    expected += max(
        sampling / (device.flops * device.reading_share), moved / (device.bandwidth * device.sampling_share)
    )
    return PhaseTime(
        name=phase.name,
        compute_floor_s=compute / ranks,
        bandwidth_floor_s=bandwidth / ranks,
        expected_s=expected / ranks,
    )


def sampling_bytes(shape: Shape, phase: Phase, config: RunConfig, ranks: int = 1) -> float:
    """Bytes read while sampling: all weights once per step of a batch, and each transcript's cache."""
    if not phase.sampled:
        return 0.0
    value = 4 if config.model.adapter == "none" and config.model.preset == "tiny" else 2
    steps = phase.sampled / max(1.0, phase.batch / ranks)
    return steps * value * shape.num_working + phase.sampled * phase.row * shape.cache_bytes(value)
