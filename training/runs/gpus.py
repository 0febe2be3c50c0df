"""Gives each process one GPU where several are visible: the stages of one role are trained on one.

A trainer that sees two GPUs spreads every batch over both, which that of GRPO refuses. So worker processes
take turns in the visible GPUs: five roles are trained side by side on five of them. Processes of torchrun
choose their own.
"""

import os
from collections.abc import Sequence


def visible_gpus() -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES calls the GPUs of this process, without starting CUDA."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return (named.split(",") if named else [str(place) for place in range(count)])[:count]


def spare_gpus() -> list[str]:
    """Those that the learners of this machine leave to rollout hosts; all where they leave none."""
    gpus = visible_gpus()
    return gpus[int(os.environ.get("LOCAL_WORLD_SIZE", "1")) :] or gpus


def claim_gpu(gpus: Sequence[str], worker: int) -> None:
    """Let this process see one of these GPUs alone; call it before anything is put on one."""
    if gpus and "LOCAL_RANK" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]
