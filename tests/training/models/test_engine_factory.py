"""The engine that `auto` stands for: by device, by what is installed, by model."""

from pathlib import Path

import pytest
import torch
from model_zoo import write_family

from roles.errors import UserError
from training.config.model_config import ModelConfig
from training.config.run_config import EngineConfig
from training.models import engine_factory
from training.models.engine_factory import name_engine

AUTO = EngineConfig()
SERVED = ("Qwen2ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM")


@pytest.fixture(params=["installed", "missing"])
def vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine with a GPU, with vLLM or without it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    known = SERVED if request.param == "installed" else ()
    monkeypatch.setattr(engine_factory, "can_serve", lambda architecture: architecture in known)
    return str(request.param)


def test_without_a_gpu_it_is_the_embedded_engine() -> None:
    assert name_engine(AUTO, ModelConfig(preset="qwen2.5-7b")).name == "transformers"


def test_on_a_gpu_vllm_plays_what_it_serves(vllm: str, tmp_path: Path) -> None:
    def choose(preset: str, adapter: str = "lora") -> str:
        return name_engine(AUTO, ModelConfig.model_validate({"preset": preset, "adapter": adapter})).name

    wanted = "vllm" if vllm == "installed" else "transformers"
    assert [choose(one) for one in ("qwen2.5-0.5b", "smollm2-135m")] == [wanted] * 2
    assert choose(str(write_family("Mistral", tmp_path / "mistral"))) == wanted
    assert choose(str(write_family("Mamba", tmp_path / "mamba"))) == "transformers"
    assert [choose("tiny", "none"), choose("qwen2.5-0.5b", "qlora")] == ["transformers"] * 2


def test_above_half_a_billion_weights_the_embedded_engine_is_taken_by_name_alone(vllm: str) -> None:
    model = ModelConfig(preset="qwen2.5-1.5b", adapter="lora")
    if vllm == "installed":
        assert name_engine(AUTO, model).name == "vllm"
        return
    with pytest.raises(UserError, match=r"1\.5e9 weights.* 1 to 4 % .*engine.name=transformers"):
        name_engine(AUTO, model)
    named = AUTO.changed(name="transformers")
    assert name_engine(named, model) == named
