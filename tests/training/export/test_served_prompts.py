"""Servers that render an exported template send a model the very ids that it was trained on."""

from pathlib import Path
from typing import Any

import pytest
from model_zoo import FAMILIES, write_family
from transformers import AutoTokenizer

from roles.registry import ROLES
from simulator.engines.embedded.hf_chat import HFChat
from training.config.loading import load_config
from training.export.export import export_team
from training.models.base_model import load_pretrained
from training.models.weights import save_weights
from training.runs.run_folder import Run

KINDS = ("Llama 3", "Qwen 3", "Gemma 3", "Mistral", "gpt-oss")  # a date; tools; no system; no tools; two ends


@pytest.fixture(params=KINDS)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[HFChat, Any]:
    """The chat of training, and the tokenizer of the exported folder as a server loads it."""
    base = write_family(request.param, tmp_path / "model")
    config = load_config(None, ("name=served", f"model.preset={base}", "model.adapter_sharing=shared"))
    run = Run.create(tmp_path / "run", config)
    model, tokenizer = load_pretrained(str(base))
    save_weights(run, "marl", "team", model, tokenizer, step=1)
    folder = export_team(run, tmp_path / "to").path / "roles/team"
    return HFChat(tokenizer), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("with_tools", [False, True])
def test_a_servers_prompt_is_the_trained_one(served: tuple[HFChat, Any], with_tools: bool) -> None:
    chat, exported = served
    for role in (ROLES["cto"], ROLES["reconcile"]):
        brief = 'Option A: speed 35, "cost" 12.\n'
        number, _ = chat._find_opening(role, with_tools)
        messages, tools = chat._list_shapes(role, chat.neutralise(brief), with_tools)[number]
        rendered = exported.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, return_dict=False
        )
        assert tuple(rendered) == chat.open(role, brief, with_tools=with_tools)


def test_the_date_in_a_prompt_does_not_move(tmp_path: Path) -> None:
    assert FAMILIES["Llama 3"].chat == "llama3"
    _, tokenizer = load_pretrained(str(write_family("Llama 3", tmp_path / "model")))
    text = tokenizer.apply_chat_template([{"role": "system", "content": "x"}], tokenize=False)
    assert "Today Date: 01 Jan 2026" in str(text)
