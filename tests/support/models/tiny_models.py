"""A tiny tokenizer, chat and models that training tests share, and an engine of scripted words."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.loading import load_config
from training.config.model_config import ModelConfig
from training.config.run_config import DataConfig, RunConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer
from training.runs.run_folder import Run
from training.stages.sft import train_base

DIFFICULTIES = (1, 2)
SMALL = ModelConfig(hidden_size=32, num_layers=1, num_heads=2, intermediate_size=48)


@cache
def tiny_texts() -> tuple[str, ...]:
    """Texts of a few scenarios, drawn once per process."""
    return tuple(corpus(RunConfig(data=DataConfig(difficulties=DIFFICULTIES)), 40))


@cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The product's own tokenizer, trained on a few scenarios."""
    return train_tokenizer(tiny_texts(), 512)


def make_tiny_base(path: Path) -> None:
    """Make the base of a run as its first stage does, with a tokenizer trained on a few scenarios."""
    train_base(Run.open(path), tiny_texts())


def make_untrained_run(path: Path, *settings: str) -> Path:
    """A run with small base weights only: its team plays, badly."""
    small = (
        "name=untrained",
        "num_workers=0",
        "model.hidden_size=32",
        "model.num_layers=1",
        "model.num_heads=2",
    )
    config = load_config(None, [*small, "model.intermediate_size=64", "data.difficulties=[1]", *settings])
    make_tiny_base(Run.create(path, config).path)
    return path


@cache
def tiny_chat() -> HFChat:
    return HFChat(tiny_tokenizer(), short_prompts=True)


def small_model(seed: int = 0, scale: float = 1.0) -> Qwen3ForCausalLM:
    """Random weights; a `scale` above 1 takes the distribution away from uniform."""
    model = build_tiny_model(SMALL, tiny_tokenizer(), seed)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(scale)
    return model


def speak_by_adapters(model: Any) -> Any:
    """The PEFT model, ready to be asked, with adapters that all say something: B is not zero."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)
    return model.eval()


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same_weights(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class RecordingEngine(TransformersEngine):
    """The real engine; keeps every call with its answer."""

    calls: list[tuple[CompletionRequest, Completion]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls = []

    async def complete(self, request: CompletionRequest) -> Completion:
        completion = await super().complete(request)
        self.calls.append((request, completion))
        return completion
