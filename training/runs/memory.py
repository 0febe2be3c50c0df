"""Memory that a process keeps: a step's tensors are given the pages of the step before."""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed; elsewhere nothing is done. Returns whether it does.

    By default every large tensor is mapped anew and each of its pages is zeroed by the kernel at first touch:
    on a virtual machine two fifths of the time of SmolLM2's SFT (docs/notebook/performance.md).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _MOST))


def return_freed_memory() -> bool:
    """Give what is free back to the system, where glibc keeps it. Returns whether any was given back.

    For a worker between two tasks: one that waits would hold the most that a task ever took.
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(0))
