"""The command that starts a `vllm serve` for the client in server_client.py.

VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --logprobs-mode processed_logprobs ...
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.engines.vllm.options import CPU_DEFAULTS, DEFAULTS

SERVER_VARIABLES = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}


def server_command(
    weights: Path, *, port: int, on_cpu: bool, options: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the command that starts a server as this client needs it; set SERVER_VARIABLES beside it.

    It runs vLLM's server module: the CPU build's own `vllm serve` stops because its package has another name.
    """
    chosen = {
        **{
            key: value
            for key, value in DEFAULTS.items()
            if key not in ("disable_log_stats", "use_tqdm_on_load")
        },
        **(CPU_DEFAULTS if on_cpu else {}),
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        **(options or {}),
    }
    flags = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    flags += ["--model", str(weights), "--port", str(port), "--served-model-name", "base"]
    for key, value in chosen.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        else:
            flags += [f"--{name}", str(value)]
    return flags
