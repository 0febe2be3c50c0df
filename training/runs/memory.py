"""Memory that a process keeps: a step's tensors are given the pages of the step before."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed; elsewhere nothing is done. Returns whether it does.

    By default every large tensor is mapped anew and each of its pages is zeroed by the kernel at first touch:
    on a virtual machine two fifths of the time of SmolLM2's SFT (docs/results/performance.md).
    """
    mallopt = _find("mallopt")
    return mallopt is not None and bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _MOST))


def return_freed_memory() -> bool:
    """Give what is free back to the system, where glibc keeps it. Returns whether any was given back.

    For a worker between two tasks: one that waits would hold the most that a task ever took.
    """
    gc.collect()
    trim = _find("malloc_trim")
    return trim is not None and bool(trim(0))


def _find(name: str) -> Callable[..., Any] | None:
    """Return a function of the C library; None where it has none of that name."""
    try:
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
