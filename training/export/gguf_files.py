"""Models and adapters in llama.cpp's format, written with the `gguf` package.

With adapters: the base once, a LoRA file per owner, and the merged models where they are exported. With full
weights: a file per role. The tiny tokenizer (Unigram on a cut of its own) has no counterpart in llama.cpp:
such a file holds no vocabulary, and its callers send token ids. Names of tensors are the package's own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    TensorNameMap,
    TokenType,
    get_tensor_name_map,
    quants,
)
from safetensors.torch import load_file
from torch import Tensor
from transformers import CONFIG_MAPPING

from roles.errors import UserError
from training.export.team_folder import ADAPTERS, BASE, FULL, GGUF, MERGED, TeamRecord
from training.models.adapters import WEIGHTS

ENDING = ".gguf"
LORA_ENDING = ".lora.gguf"
ARCHITECTURES = {
    "LlamaForCausalLM": (MODEL_ARCH.LLAMA, "smollm"),
    "Qwen2ForCausalLM": (MODEL_ARCH.QWEN2, "qwen2"),
    "Qwen3ForCausalLM": (MODEL_ARCH.QWEN3, "qwen2"),
}  # class of transformers -> architecture, and name of the cut of its byte-level vocabulary
CUTS = {
    "smollm": ["digits", "words of GPT-2"],
    "qwen2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
}  # what llama.cpp cuts text by under each name
# fields of config.json that the file holds, or by which tensors and tokens are written
WRITTEN = frozenset(
    {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
    | {"head_dim", "max_position_embeddings", "rms_norm_eps", "vocab_size", "rope_parameters", "rope_scaling"}
    | {"rope_theta", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "architectures"}
    | {"layer_types", "use_sliding_window"}
)
# that say nothing of what a model computes: how it was made, learns, or is run
NO_MATTER = frozenset(
    {"_name_or_path", "attention_dropout", "dtype", "id2label", "initializer_range", "label2id"}
    | {"max_window_layers", "model_type", "output_attentions", "output_hidden_states", "pretraining_tp"}
    | {"return_dict", "sliding_window", "torch_dtype", "transformers_version", "use_cache"}
)
ROPE = {"rope_type", "type", "rope_theta"}
_BPE = {"unk_token", "fuse_unk", "byte_fallback", "dropout"}  # without meaning where every byte is known
_FACTORS = {".lora_A.weight": ".lora_a", ".lora_B.weight": ".lora_b"}
_PREFIX = "base_model.model."


def write_gguf(folder: Path, record: TeamRecord) -> None:
    """Write gguf/ of a folder whose other parts stand already; raises as `write_model`."""
    home = folder / GGUF
    home.mkdir()
    if record.weights == FULL:
        for owner in record.owners:
            write_model(folder / FULL / owner, home / f"{owner}{ENDING}", name=f"{record.name}-{owner}")
        return
    write_model(folder / BASE, home / f"{BASE}{ENDING}", name=f"{record.name}-{BASE}")
    for owner in record.owners:
        name = f"{record.name}-{owner}"
        write_lora(folder / BASE, folder / ADAPTERS / owner, home / f"{owner}{LORA_ENDING}", name=name)
        if record.merged:
            write_model(folder / MERGED / owner, home / f"{owner}{ENDING}", name=name)


def write_model(model: Path, target: Path, *, name: str) -> None:
    """Write a model's folder as one file, in the precision of its weights.

    Raises:
        UserError: an architecture or a tokenizer that is not written here.
    """
    config = _read_json(model / "config.json")
    architecture, cut = _find_architecture(config)
    _refuse_unwritten(config, _read_json(model / "tokenizer.json"), cut)
    writer = GGUFWriter(target, architecture.name.lower())
    writer.add_type("model")
    writer.add_name(name)
    _add_shape(writer, config)
    _add_tokenizer(writer, model, config, cut)
    names = get_tensor_name_map(architecture, config["num_hidden_layers"])
    for file in sorted(model.glob("*.safetensors")):
        for key, tensor in load_file(file).items():
            if key == "lm_head.weight" and config.get("tie_word_embeddings", False):
                continue
            _add_tensor(writer, _rename(names, key), _turn(key, tensor, config))
    _finish(writer)


def write_lora(base: Path, adapter: Path, target: Path, *, name: str) -> None:
    """Write a PEFT folder as a LoRA file for the base's file; raises as `write_model`."""
    config = _read_json(base / "config.json")
    architecture, _ = _find_architecture(config)
    settings = _read_json(adapter / "adapter_config.json")
    writer = GGUFWriter(target, architecture.name.lower())
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(settings["lora_alpha"]))
    names = get_tensor_name_map(architecture, config["num_hidden_layers"])
    for key, tensor in load_file(adapter / WEIGHTS).items():
        ending = next(one for one in _FACTORS if key.endswith(one))
        module = f"{key.removeprefix(_PREFIX).removesuffix(ending)}.weight"
        # rows of B are outputs, which the format orders as it orders the weight's own rows
        turned = _turn(module, tensor, config) if ending == ".lora_B.weight" else tensor
        _add_tensor(writer, _rename(names, module) + _FACTORS[ending], turned)
    _finish(writer)


def _find_architecture(config: Mapping[str, Any]) -> tuple[MODEL_ARCH, str]:
    (name,) = config["architectures"]
    if name not in ARCHITECTURES:
        raise UserError(
            f"--gguf: {name} is not written here (known: {', '.join(ARCHITECTURES)}); leave --gguf out"
        )
    return ARCHITECTURES[name]


def _refuse_unwritten(config: Mapping[str, Any], tokenizer: Mapping[str, Any], cut: str) -> None:
    """Refuse settings that the file would not hold: another program would compute another model."""
    ropes = [config.get(key) or {} for key in ("rope_parameters", "rope_scaling")]
    (name,) = config["architectures"]
    usual = CONFIG_MAPPING[name.removesuffix("ForCausalLM").lower()]().to_dict()
    usual |= {"attention_bias": name == "Qwen2ForCausalLM"}
    kinds = set(config.get("layer_types") or ()) - {"full_attention"}
    found = {
        "rope_scaling": any(
            one.get("rope_type", one.get("type", "default")) != "default" or set(one) - ROPE for one in ropes
        ),
        "sliding_window": bool(kinds) or bool(config.get("use_sliding_window")),
        "eos_token_id (a list)": isinstance(config.get("eos_token_id"), list),
        **{
            key: value not in (None, usual.get(key))
            for key, value in config.items()
            if key not in WRITTEN | NO_MATTER
        },
    } | _unwritten_of_tokenizer(tokenizer, cut)
    if any(found.values()):
        names = ", ".join(name for name, is_unwritten in found.items() if is_unwritten)
        raise UserError(f"--gguf: the file would not hold {names}; leave --gguf out")


def _unwritten_of_tokenizer(stored: Mapping[str, Any], cut: str) -> dict[str, bool]:
    model = stored["model"]
    if model["type"] != "BPE":  # such a file holds no vocabulary: callers send token ids
        return {
            f"tokenizer type {model['type']}": model["type"] != "Unigram" or bool(model.get("byte_fallback"))
        }
    last = stored.get("post_processor") or {}
    steps = last.get("processors", [last])
    normalizer = (stored.get("normalizer") or {"type": "NFC"})["type"]
    decoder = (stored.get("decoder") or {"type": "ByteLevel"})["type"]
    flags = ("lstrip", "rstrip", "single_word")
    return {
        "SentencePiece's byte_fallback": bool(model.get("byte_fallback")),
        **{key: bool(model.get(key)) for key in sorted(set(model) - {"type", "vocab", "merges", *_BPE})},
        "pre_tokenizer": _cuts_of(stored.get("pre_tokenizer") or {}) != CUTS[cut],
        f"normalizer {normalizer}": normalizer != "NFC",
        f"decoder {decoder}": decoder != "ByteLevel",
        "tokens that a post_processor adds (bos)": any(step.get("special_tokens") for step in steps),
        "lstrip, rstrip or single_word of added tokens": any(
            token.get(flag) for token in stored.get("added_tokens", ()) for flag in flags
        ),
    }


def _cuts_of(stored: Mapping[str, Any]) -> list[Any]:
    """What a stored pre-tokenizer cuts text by, in order."""
    cuts: list[Any] = []
    for step in stored.get("pretokenizers", [stored]):
        if step.get("type") == "ByteLevel":
            cuts += ["words of GPT-2"] if step.get("use_regex", True) else []
            cuts += ["a space before"] if step.get("add_prefix_space") else []
        elif step.get("type") == "Digits":
            cuts.append("digits" if step.get("individual_digits") else "numbers")
        else:
            is_kept = step.get("behavior") == "Isolated" and not step.get("invert")
            cuts.append((step.get("pattern") or {}).get("Regex") if is_kept else step.get("type"))
    return cuts


def _add_shape(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    rope = config.get("rope_parameters") or {}
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: GGUFWriter, model: Path, config: Mapping[str, Any], cut: str) -> None:
    stored = _read_json(model / "tokenizer.json")
    template = model / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text())
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        add = getattr(writer, f"add_{key}")
        if isinstance(config.get(key), int):
            add(config[key])
    if stored["model"]["type"] != "BPE":
        writer.add_tokenizer_model("none")
        return
    added = {one["id"]: one for one in stored["added_tokens"]}
    tokens = {number: token for token, number in stored["model"]["vocab"].items()}
    tokens |= {number: one["content"] for number, one in added.items()}
    rows = range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list([tokens.get(number, f"[PAD{number}]") for number in rows])
    writer.add_token_types([_find_type(tokens, added, number) for number in rows])
    merges = stored["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    writer.add_add_bos_token(False)


def _find_type(tokens: Mapping[int, str], added: Mapping[int, Any], number: int) -> TokenType:
    if number not in tokens:
        return TokenType.UNUSED
    if number not in added:
        return TokenType.NORMAL
    return TokenType.CONTROL if added[number]["special"] else TokenType.USER_DEFINED


def _turn(key: str, tensor: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Return rows in the format's order: of Llama models it interleaves the halves that positions turn."""
    heads = {
        "self_attn.q_proj.weight": config["num_attention_heads"],
        "self_attn.k_proj.weight": config.get("num_key_value_heads") or config["num_attention_heads"],
    }
    number = next((count for ending, count in heads.items() if key.endswith(ending)), None)
    if number is None or config["architectures"] != ["LlamaForCausalLM"]:
        return tensor
    half = tensor.shape[0] // number // 2
    return tensor.view(number, 2, half, -1).transpose(1, 2).reshape(tensor.shape)


def _rename(names: TensorNameMap, key: str) -> str:
    found = names.get_name(key, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise UserError(f"--gguf: the format has no name for the tensor {key}; leave --gguf out")
    return found


def _add_tensor(writer: GGUFWriter, name: str, tensor: Tensor) -> None:
    """Add a tensor in its own precision; vectors are float32, as the format wants them."""
    values = tensor.to(torch.float32).contiguous().numpy()
    kind = GGMLQuantizationType.BF16 if tensor.dtype == torch.bfloat16 and tensor.ndim > 1 else None
    if kind is None:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value
