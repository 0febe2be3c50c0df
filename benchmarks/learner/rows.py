"""Models of random weights, ragged rows and time measurement for the learner benchmarks."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from training.config.rl_config import MarlConfig
from training.learner.rows import TrainingRow
from training.rl.credit import centre

SIZES = {  # hidden, layers, heads, key-value heads, intermediate, vocabulary; prompts; completions
    "smollm2": ((576, 30, 9, 3, 1536, 49_152), (256,), (12, 64)),
    "tiny": ((64, 2, 4, 2, 128, 2_000), (96,), (4, 24)),
}
GROUP_SIZE = 8
LEARNING = MarlConfig().changed(max_completion_tokens=128, memory__micro_batch_tokens=1_000_000)


def build_model(size: str) -> Any:
    """Random weights, the same in every process."""
    hidden, layers, heads, kv_heads, intermediate, vocabulary = SIZES[size][0]
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=True,
            pad_token_id=0,
        )
    )


def make_rows(size: str) -> list[TrainingRow]:
    """Groups of one prompt and ragged completions each, on policy as far as the learner is concerned."""
    _, prompts, (shortest, longest) = SIZES[size]
    generator = torch.Generator().manual_seed(1)
    vocabulary = SIZES[size][0][-1]
    rows = []
    for length in prompts:
        prompt = torch.randint(4, vocabulary, (length,), generator=generator).tolist()
        advantages = centre(torch.rand(GROUP_SIZE, generator=generator).tolist())
        for place, advantage in enumerate(advantages):
            own = shortest + (longest - shortest) * place // (GROUP_SIZE - 1)
            ids = (*prompt, *torch.randint(4, vocabulary, (own,), generator=generator).tolist())
            mask = (*[0] * length, *[1] * own)
            rows.append(
                TrainingRow(
                    role="cto",
                    token_ids=ids,
                    loss_mask=mask,
                    sampling_logprobs=(0.0,) * len(ids),
                    advantage=advantage,
                )
            )
    return rows


def read_memory(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


def measure(step: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Growth of the peak over the first step, median seconds of the later ones."""
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step()
    growth = read_memory("VmHWM") - before
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds), "growth": growth}
