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
    """A causal language model; `options` go to `from_pretrained`.

    Raises:
        UserError: missing, damaged, pickled weights, or a model that wants to bring its own code.
    """
    with _explain(source):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            source, use_safetensors=True, trust_remote_code=False, **options
        )
        return model


def load_without_dropout(source: str | Path, **options: Any) -> PreTrainedModel:
    """The same model without dropout: what learns then computes what was sampled.

    Raises:
        UserError: as `load_model`.
    """
    with _explain(source):
        config: Any = AutoConfig.from_pretrained(source, trust_remote_code=False)
    for one in (config, config.get_text_config()):
        for name, value in one.to_dict().items():
            if "drop" in name and isinstance(value, float) and value > 0:
                setattr(one, name, 0.0)
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
