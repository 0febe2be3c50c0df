"""LoRA: one frozen base per run, and per role (or once for all roles) a small set of trained weights on it.

A role's checkpoint is a standard PEFT folder (adapter_config.json, adapter_model.safetensors); the base
stands once under checkpoints/base. While one role trains alone its adapter is named `default`, as TRL
expects; in a team every adapter has its role's name, or `team` where all roles share one.
Source: arXiv:2106.09685 (LoRA), arXiv:2305.14314 (QLoRA).
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from peft import (
    LoraConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    prepare_model_for_kbit_training,
)
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED, SINGLE, START, adapter_of
from training.config.model_config import ModelConfig

WEIGHTS = "adapter_model.safetensors"
_KINDS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")  # PEFT's names of the two factors


def list_owners(config: ModelConfig) -> tuple[str, ...]:
    """Owners of weights: every role, or the team where one adapter serves all roles."""
    return owners_of(config, tuple(ROLES))


def owners_of(config: ModelConfig, roles: Sequence[str]) -> tuple[str, ...]:
    """The owners of these roles' weights, each once."""
    return tuple(dict.fromkeys(owner_of(config, role) for role in roles))


def owner_of(config: ModelConfig, role: str) -> str:
    """Under whose name a role's weights are trained and kept."""
    return SHARED if config.adapter_sharing == "shared" else role


def roles_of(owner: str) -> tuple[str, ...]:
    """The roles that an owner's weights speak for."""
    return tuple(ROLES) if owner == SHARED else (owner,)


def quantization(config: ModelConfig) -> BitsAndBytesConfig | None:
    """Quantisation of the frozen base: 4-bit normal floats for `qlora`, else none.

    Raises:
        UserError: `qlora` without a CUDA device or without bitsandbytes.
    """
    if config.adapter != "qlora":
        return None
    if not torch.cuda.is_available():
        raise UserError(
            "model.adapter 'qlora' needs a CUDA device, and none is here; use model.adapter=lora on a CPU"
        )
    if find_spec("bitsandbytes") is None:
        raise UserError(
            "model.adapter 'qlora' needs bitsandbytes; pip install 'emads[qlora]', or use model.adapter=lora"
        )
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def attach(base: PreTrainedModel, config: ModelConfig, *, seed: int, name: str = SINGLE) -> PeftModel:
    """`base`, frozen, with one new trainable adapter that does not yet change what it says.

    Raises:
        UserError: the base has no modules of the names in `lora_targets`.
    """
    torch.manual_seed(seed)
    targets = "all-linear" if config.lora_targets == ("all-linear",) else list(config.lora_targets)
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    if config.adapter == "qlora":
        base = prepare_model_for_kbit_training(  # type: ignore[no-untyped-call]
            base, use_gradient_checkpointing=config.gradient_checkpointing
        )
    try:
        model = get_peft_model(base, lora, adapter_name=name)
    except ValueError as error:
        raise UserError(f"config key model.lora_targets: {str(error).splitlines()[0]}") from None
    return model


def save_adapter(model: nn.Module, folder: Path, *, role: str, base: str) -> None:
    """Write a role's adapter as a PEFT folder; `base` is what it names as its base model (id or path)."""
    name, adapted = adapter_of(model, role), cast(PeftModel, model)
    assert name is not None
    state = get_peft_model_state_dict(adapted, adapter_name=name, save_embedding_layers=False)
    save_file(
        {key: value.detach().to("cpu", torch.float32).contiguous() for key, value in state.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    lora = cast(LoraConfig, adapted.peft_config[name])
    kept = lora.base_model_name_or_path, lora.inference_mode, lora.target_modules
    modules = sorted(lora.target_modules or ())  # PEFT's set has another order in every process
    lora.base_model_name_or_path, lora.inference_mode, lora.target_modules = base, True, modules
    try:
        lora.save_pretrained(str(folder))
    finally:
        lora.base_model_name_or_path, lora.inference_mode, lora.target_modules = kept


def load_adapters(base: PreTrainedModel, folders: Mapping[str, Path]) -> PeftModel:
    """`base`, frozen, with the adapters of `folders` by name; the first is active, all can be trained.

    Raises:
        UserError: an adapter's names are not those of the base's modules.
    """
    model: PeftModel | None = None
    for name, folder in folders.items():
        try:
            if model is None:
                model = PeftModel.from_pretrained(base, folder, adapter_name=name, is_trainable=True)
            else:
                model.load_adapter(folder, adapter_name=name, is_trainable=True)
            _check_keys(model, name, folder)
        except (ValueError, RuntimeError, KeyError, TypeError) as error:  # other names, shapes, kinds
            told = f"unknown {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"adapter {folder} does not fit its base: {told[:500]}") from None
    if model is None:
        raise ValueError("no adapters to load")
    model.set_adapter(next(iter(folders)))
    return model


def _check_keys(model: PeftModel, name: str, folder: Path) -> None:
    """Refuse an adapter whose file and whose modules on the base have different names."""
    wanted = set(get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False))
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        held = set(file.keys())
    if wanted == held and held:
        return
    lacking, over = (
        f"{len(keys)} ({', '.join(sorted(keys)[:3]) or 'none'})" for keys in (wanted - held, held - wanted)
    )
    raise UserError(
        f"adapter {folder} does not fit its base: weights that no module of the base takes: {over}; "
        f"modules that the file has no weights for: {lacking}; export it again with the installed version"
    )


def keep_start(model: Any) -> None:
    """Keep what every adapter is now, frozen, on the same base: a reference without a second model."""
    for name in list(model.peft_config):
        config = copy.copy(model.peft_config[name])
        config.inference_mode = True
        model.add_adapter(START + name, config)
        parameters = dict(model.named_parameters())
        for key, kept in parameters.items():
            if f".{START}{name}." in key:
                kept.data.copy_(parameters[key.replace(f".{START}{name}.", f".{name}.")].data)
                kept.requires_grad_(False)


def named_role_parameters(model: nn.Module, role: str) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters that training this role may change: its adapter, or with full weights all trainable ones."""
    name = adapter_of(model, role)
    for key, parameter in model.named_parameters():
        is_own = any(f".{kind}.{name}." in f"{key}." for kind in _KINDS)
        if parameter.requires_grad if name is None else is_own:
            yield key, parameter


def role_parameters(model: nn.Module, role: str) -> list[nn.Parameter]:
    """The parameters of `named_role_parameters`, for an optimizer or a gradient norm of one role."""
    return [parameter for _, parameter in named_role_parameters(model, role)]


def role_weights(model: nn.Module, role: str) -> dict[str, torch.Tensor]:
    """The role's weights as they are held here, not copied; of a sharded model this rank's part of them."""
    return {name: parameter.detach() for name, parameter in named_role_parameters(model, role)}
