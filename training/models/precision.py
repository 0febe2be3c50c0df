"""Which precision this CPU multiplies faster: it differs between CPUs that name the same instructions."""

import torch
from torch.nn.functional import linear
from torch.utils.benchmark import Timer

PRECISIONS = ("float32", "bfloat16")
ROWS, WIDTH, OUT = 1024, 576, 1536  # one feed-forward product of SmolLM2-135M
REPEATS = 5
WORTH_SAYING = 1.5  # times as fast


def seconds_of_product(dtype: str) -> float:
    """Seconds of one product in this precision on one thread of the CPU, the best of several."""
    rows, weights = (torch.ones(size, WIDTH, dtype=getattr(torch, dtype)) for size in (ROWS, OUT))
    given = {"linear": linear, "rows": rows, "weights": weights}
    # several threads would wait for each other where other programs run
    timer = Timer("linear(rows, weights)", globals=given, num_threads=1)
    return min(timer.timeit(1).mean for _ in range(REPEATS))


def advise_precision(dtype: str) -> str:
    """Return a line on the other precision of a frozen base if this CPU is much faster in it, else ""."""
    other = PRECISIONS[1 - PRECISIONS.index(dtype)]
    ratio = seconds_of_product(dtype) / seconds_of_product(other)
    if ratio < WORTH_SAYING:
        return ""
    return (
        f"model.dtype {dtype}: this CPU multiplies {ratio:.1f} times as fast in {other};"
        f" a new run with --set model.dtype={other} is trained and plays faster"
    )
