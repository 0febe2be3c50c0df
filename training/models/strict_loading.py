"""Models and tokenizers from folders and the hub as data alone: safetensors only, never a stranger's code."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from roles.errors import UserError


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
    """A tokenizer.

    Raises:
        UserError: missing, damaged, or one that wants to bring its own code.
    """
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
        pickle.UnpicklingError,
    ) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"cannot load model {str(source)!r}: {reason[:500]}; use preset 'tiny' or a local folder"
        ) from error
