"""Options of a vLLM engine: some set by this project, some defaults, the rest passed through."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roles.errors import UserError, unknown
from simulator.engines.vllm.library import argument_names, is_cpu_build

OWN = {  # decided by the engine itself; the reason is what a user is told
    "model": "it is the base model of the run",
    "logprobs_mode": "training needs the log-probabilities that tokens were sampled with",
    "generation_config": "sampling is set by the config of the run",
    "seed": "it is the seed of the run",
    "enable_log_requests": "logs would hold company facts",
}
DEFAULTS: dict[str, Any] = {
    "enable_lora": True,
    "max_loras": 8,  # adapters in one batch: five roles, and old versions while their last calls end
    "max_lora_rank": 16,
    "enable_prefix_caching": True,
    "disable_log_stats": True,
    "use_tqdm_on_load": False,
}
CPU_DEFAULTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,  # vLLM's own 128 would cache nothing of a short prompt
    "kv_cache_memory_bytes": 1 << 30,
    "max_num_seqs": 256,
}


LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM takes as max_lora_rank
START_TIMEOUT_S = "600"
ALONE, BESIDE = 0.9, 0.4  # share of a GPU's memory, without a learner and with one


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse a key that vLLM does not know, or that is not the user's to set.

    Raises:
        UserError: names the key, the nearest match, and what is allowed; or vLLM is not installed.
    """
    allowed = sorted(argument_names() - set(OWN))
    for key in options:
        if key in OWN:
            raise UserError(f"engine.vllm.{key} cannot be set: {OWN[key]}")
        if key not in allowed:
            raise unknown("engine.vllm key", key, allowed)


def engine_arguments(weights: Path, options: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """Return all arguments of one engine; `options` replace the defaults. Only token ids go in and out."""
    return {
        **DEFAULTS,
        **(CPU_DEFAULTS if is_cpu_build() else {}),
        "skip_tokenizer_init": True,
        **options,
        "model": str(weights),
        "seed": seed,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "enable_log_requests": False,
    }


def start_environment(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return variables that the engine's processes need."""
    variables = {"VLLM_ENGINE_READY_TIMEOUT_S": START_TIMEOUT_S}
    if is_cpu_build() and arguments.get("enforce_eager"):
        variables["TORCHDYNAMO_DISABLE"] = "1"  # else the sampler alone is compiled, at the first call
    return variables | own_gpu()


def own_gpu() -> dict[str, str]:
    """Return what shows an engine the GPU of this process alone, where a launcher gave it one of several.

    The launcher's rank says which: an engine starts in a thread, and CUDA's current device is per thread.
    """
    import torch

    if "LOCAL_RANK" not in os.environ or not torch.cuda.is_available():
        return {}
    place, named = int(os.environ["LOCAL_RANK"]), os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": named.split(",")[place] if named else str(place)}


def share_gpu(
    options: Mapping[str, Any],
    *,
    lora_rank: int,
    dtype: str,
    num_engines: int,
    beside_learner: bool,
    sleeps: bool,
) -> dict[str, Any]:
    """Return the options with the rank of the run's adapters and, on a GPU, dtype and share of its memory.

    `dtype`: of the run's weights; vLLM by itself would halve float32. `num_engines`: on this GPU. `sleeps`:
    while the learner beside it learns. What is given goes first.

    Raises:
        UserError: several GPUs for an engine that has the GPU of its process.
    """
    import torch

    for key in ("tensor_parallel_size", "pipeline_parallel_size"):
        if options.get(key, 1) != 1:
            raise UserError(
                f"engine.vllm.{key} is {options[key]}, but an engine in a process has that process's GPU"
                f" alone: leave {key} out, or start vLLM servers and set engine.name=vllm_server"
            )

    ours: dict[str, Any] = {
        "max_lora_rank": min((rank for rank in LORA_RANKS if rank >= lora_rank), default=lora_rank)
    }
    if torch.cuda.is_available():
        ours["gpu_memory_utilization"] = round((BESIDE if beside_learner else ALONE) / num_engines, 3)
        ours["enable_sleep_mode"] = sleeps
        ours["dtype"] = dtype
    return ours | dict(options)
