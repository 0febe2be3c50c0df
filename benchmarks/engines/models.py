"""Models that engine benchmarks run on: the tiny preset, and random weights in the shape of SmolLM2-135M."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.engines.workloads import ROLES

# name -> (vocab, hidden, feed-forward, layers, heads, key-value heads, longest context)
SHAPES = {
    "tiny": (512, 128, 320, 3, 4, 4, 4096),
    "135m": (49152, 576, 1536, 30, 9, 3, 8192),
    "3b": (151936, 2048, 11008, 36, 16, 2, 32768),
}
RANK = 16


def write_base(shape: str, folder: Path) -> Path:
    """Random weights of a shape as a model folder."""
    vocab, hidden, wide, layers, heads, kv_heads, longest = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=wide,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        max_position_embeddings=longest,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        dtype=torch.float32,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def load_team(base: Path, roles: tuple[str, ...] = ROLES) -> PeftModel:
    """The base with one random adapter per role, ready for generation."""
    lora = LoraConfig(
        r=RANK,
        lora_alpha=RANK,
        target_modules="all-linear",
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    team = get_peft_model(model, lora, adapter_name=roles[0])
    for role in roles[1:]:
        team.add_adapter(role, lora)
    team.eval()
    assert isinstance(team, PeftModel)
    return team


def scratch() -> Path:
    """A new folder, in memory where there is some."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="emads-bench-", dir=memory if memory.is_dir() else None))
