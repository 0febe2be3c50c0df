"""Measures the ceilings of the device: its matrix peak and its memory bandwidth."""

import statistics
import time

import torch

from benchmarks.gpu.sizes import Scale


def measure_peak(scale: Scale) -> float:
    """Floating-point operations per second of a large product in the scale's precision."""
    width = scale.choose(8192, 256)
    a, b = (torch.randn(width, width, device=scale.device, dtype=scale.dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    scale.wait()
    start = time.perf_counter()
    for _ in range(20):
        a @ b
    scale.wait()
    done = 20 * 2 * float(width) ** 3
    return done / (time.perf_counter() - start)


def measure_bandwidth(scale: Scale, repeats: int = 12) -> float:
    """Bytes per second that a large copy moves, reading and writing, median."""
    source = torch.empty(scale.choose(2**32, 2**22), dtype=torch.uint8, device=scale.device).random_(255)
    target = torch.empty_like(source)
    rates = []
    for _ in range(repeats):
        scale.wait()
        start = time.perf_counter()
        target.copy_(source)
        scale.wait()
        rates.append(2 * source.numel() / (time.perf_counter() - start))
    return statistics.median(rates[2:])
