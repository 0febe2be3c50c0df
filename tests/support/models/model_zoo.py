"""Families of open models as tiny random ones: each with its kind of layers, tokenizer and chat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tiny_models import tiny_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from zoo_chats import CHATS

from training.export.gguf_files import CUTS

VOCABULARY = 640
WINDOW = 24  # tokens; every prompt is longer
SIZE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
}
SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family. Example: FAMILIES["Qwen 2"].config == "qwen2" """

    config: str  # transformers' name of the configuration
    tokenizer: str  # how text is cut: a key of `_CUTTERS`
    chat: str  # a key of `CHATS`
    settings: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 0.15  # standard deviation of the weights: large enough that a wrong mask shows


FAMILIES: dict[str, Family] = {
    "Llama 2": Family(config="llama", tokenizer="pieces", chat="llama2", settings={"num_key_value_heads": 4}),
    "Llama 3": Family(
        config="llama",
        tokenizer="bytes",
        chat="llama3",
        settings={
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        },
    ),
    "SmolLM2": Family(
        config="llama", tokenizer="smollm", chat="chatml", settings={"tie_word_embeddings": True}
    ),
    "SmolLM3": Family(
        config="smollm3", tokenizer="bytes", chat="chatml", settings={"no_rope_layers": [1, 0]}
    ),
    "Qwen 2.5": Family(config="qwen2", tokenizer="qwen2", chat="chatml"),
    "Qwen 3": Family(config="qwen3", tokenizer="qwen2", chat="chatml"),
    "Qwen 3 MoE": Family(
        config="qwen3_moe",
        tokenizer="qwen2",
        chat="chatml",
        settings={"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
    "Mistral": Family(
        config="mistral", tokenizer="pieces", chat="mistral", settings={"sliding_window": WINDOW}
    ),
    "Mistral without a window": Family(
        config="mistral", tokenizer="pieces", chat="mistral", settings={"sliding_window": None}
    ),
    "Mixtral": Family(
        config="mixtral", tokenizer="pieces", chat="mistral", settings={"num_local_experts": 4}
    ),
    "Phi-3": Family(
        config="phi3",
        tokenizer="pieces",
        chat="phi3",
        settings={"sliding_window": WINDOW, "num_key_value_heads": 4},
    ),
    "Phi-4": Family(config="phi3", tokenizer="bytes", chat="phi3", settings={"sliding_window": None}),
    "Gemma 2": Family(
        config="gemma2", tokenizer="pieces", chat="gemma", settings={"query_pre_attn_scalar": 8, **SLIDING}
    ),
    "Gemma 3": Family(
        config="gemma3_text",
        tokenizer="pieces",
        chat="gemma",
        settings={"query_pre_attn_scalar": 8, **SLIDING},
    ),
    "OLMo 2": Family(config="olmo2", tokenizer="bytes", chat="olmo"),
    "OLMo 3": Family(config="olmo3", tokenizer="bytes", chat="olmo", settings=SLIDING),
    "gpt-oss": Family(
        config="gpt_oss",
        tokenizer="bytes",
        chat="harmony",
        settings={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
            **SLIDING,
        },
    ),
    "Granite": Family(
        config="granite",
        tokenizer="bytes",
        chat="granite",
        settings={
            "logits_scaling": 8.0,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
        },
    ),
    "Cohere": Family(config="cohere", tokenizer="bytes", chat="cohere", settings={"logit_scale": 0.25}),
    "Falcon": Family(
        config="falcon",
        tokenizer="bytes",
        chat="falcon",
        settings={"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    ),
    "LFM2": Family(
        config="lfm2", tokenizer="bytes", chat="chatml", settings={"layer_types": ["conv", "full_attention"]}
    ),
    "Mamba": Family(config="mamba", tokenizer="bytes", chat="chatml", settings={"state_size": 8}),
    "GPT-2": Family(config="gpt2", tokenizer="bytes", chat="chatml", settings={"n_positions": 1024}),
    "GPT-2 without a chat": Family(config="gpt2", tokenizer="bytes", chat="none"),
    "OPT": Family(
        config="opt",
        tokenizer="bytes",
        chat="chatml",
        settings={"ffn_dim": 48, "word_embed_proj_dim": 32, "do_layer_norm_before": True},
    ),
    "GPT-NeoX": Family(config="gpt_neox", tokenizer="bytes", chat="chatml"),
    "StableLM": Family(config="stablelm", tokenizer="bytes", chat="chatml"),
    "StarCoder2": Family(
        config="starcoder2", tokenizer="bytes", chat="chatml", settings={"sliding_window": WINDOW}
    ),
    "GLM 4": Family(config="glm4", tokenizer="bytes", chat="chatml"),
    "Nemotron": Family(config="nemotron", tokenizer="bytes", chat="chatml"),
    "BLOOM": Family(config="bloom", tokenizer="bytes", chat="chatml", settings={"n_layer": 2, "n_head": 4}),
    "DeepSeek V3": Family(
        config="deepseek_v3",
        tokenizer="bytes",
        chat="chatml",
        settings={
            "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
            "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
            "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
        },
    ),
}  # fmt: skip


@cache
def _train_pieces() -> str:
    """Vocabulary of a SentencePiece kind: words with their space before, and bytes for what is unknown."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 32,
        special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(tiny_texts(), trainer)
    return str(tokenizer.to_str())


_CUTTERS: dict[str, Any] = {
    "bytes": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
    "qwen2": lambda: [
        pre_tokenizers.Split(Regex(CUTS["qwen2"][0]), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
}


@cache
def _train_bytes(cut: str) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_CUTTERS[cut]())
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 32,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(tiny_texts(), trainer)
    return str(tokenizer.to_str())


def make_tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """The family's kind of tokenizer with its chat template; its texts begin as those of the family do."""
    template, begin, end, others = CHATS[family.chat]
    stored = _train_pieces() if family.tokenizer == "pieces" else _train_bytes(family.tokenizer)
    tokenizer = Tokenizer.from_str(stored)
    control = [*filter(None, [begin]), *([end] if end != begin else []), *others]
    tokenizer.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in control])
    if begin is not None:
        number = tokenizer.token_to_id(begin)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, number)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=begin, eos_token=end, pad_token=end,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = template or None
    return fast


def make_model(family: Family, tokenizer: PreTrainedTokenizerFast) -> Any:
    """Random weights, biases included, that are wide enough to tell texts apart."""
    torch.manual_seed(0)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    size = {key: one for key, one in SIZE.items() if key not in _LEFT_OUT.get(family.config, ())}
    names = {"vocab_size": VOCABULARY, "pad_token_id": tokenizer.pad_token_id, **ends}
    config = AutoConfig.for_model(family.config, **{**size, **names, **family.settings})
    model: Any = AutoModelForCausalLM.from_config(config).float()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and "A_log" not in name:
            parameter.data.normal_(std=family.scale)
        elif name.endswith("bias"):
            parameter.data.normal_(std=0.02)
    return model.eval()


_NO_HEADS = ("head_dim", "num_attention_heads", "num_key_value_heads")
_LEFT_OUT = {
    "gpt2": ("head_dim", "num_key_value_heads", "intermediate_size"),
    "falcon": ("head_dim",),
    "mamba": (*_NO_HEADS, "max_position_embeddings", "intermediate_size"),
    "bloom": (*_NO_HEADS, "max_position_embeddings", "num_hidden_layers", "intermediate_size"),
    "deepseek_v3": ("head_dim",),
}  # fmt: skip


def write_family(name: str, folder: Path) -> Path:
    """Write the family as a folder that `model.preset` can name."""
    family = FAMILIES[name]
    tokenizer = make_tokenizer(family)
    make_model(family, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
