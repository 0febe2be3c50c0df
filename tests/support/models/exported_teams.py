"""Runs whose weights are random, finished as far as an export needs them, and what such a team says."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_models import small_model, speak_by_adapters, tiny_tokenizer

from emads.run_weights import load_run_weights
from roles.registry import ROLES
from simulator.engines.base import CompletionRequest, Sampling
from training.config.loading import load_config
from training.models.adapters import attach, owners_of
from training.models.weights import save_weights
from training.runs.run_folder import Run

SMALL = ("model.hidden_size=32", "model.num_layers=1", "model.num_heads=2", "model.intermediate_size=48")
NUM_TOKENS = 12  # of a greedy answer
PROMPTS = {"cto": "Report on A 10 5", "coo": "B 3 4", "risk": "C", "cost": "12 7 none", "reconcile": "A or B"}
PLAIN_CONSUMER = """
import json, sys
for name in ("emads", "roles", "scenarios", "simulator", "evaluation", "training", "serving"):
    sys.modules[name] = None
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
answers = {}
for role, (base, adapter, prompt) in json.load(sys.stdin).items():
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert tokenizer.chat_template
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids])
    seen = torch.ones_like(ids)
    said = model.generate(input_ids=ids, attention_mask=seen, do_sample=False, max_new_tokens=NUM)
    answers[role] = said[0, ids.shape[1]:].tolist()
print(json.dumps(answers))
""".replace("NUM", str(NUM_TOKENS))


def make_random_run(path: Path, *settings: str) -> Run:
    """A run with random weights of every role after `marl`; its base after `base`."""
    run = Run.create(path, load_config(None, ("name=random", *SMALL, *settings)))
    tokenizer, base = tiny_tokenizer(), small_model(scale=4.0)
    save_weights(run, "base", None, base, tokenizer, step=0)
    for number, owner in enumerate(owners_of(run.config.model, tuple(ROLES))):
        if run.config.model.adapter == "none":
            model: Any = small_model(seed=number, scale=4.0)
        else:
            model = speak_by_adapters(
                attach(small_model(scale=4.0), run.config.model, seed=number, name=owner)
            )
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_B" in name:
                        parameter.add_(number * 0.05)
        save_weights(run, "marl", owner, model, tokenizer, step=7)
    return run


def say_here(path: Path, stage: str = "marl") -> dict[str, list[int]]:
    """What every role of a run or of an exported team answers to PROMPTS, greedily, on our own engine."""
    team = load_run_weights(path, stage)

    async def ask(role: str) -> list[int]:
        request = CompletionRequest(
            policy=role,
            session=role,
            prompt_ids=team.chat.encode(PROMPTS[role]),
            sampling=Sampling(temperature=0.0, max_completion_tokens=NUM_TOKENS),
        )
        return list((await engine.complete(request)).token_ids)

    async def ask_all() -> dict[str, list[int]]:
        return {role: await ask(role) for role in PROMPTS}

    with team.serve([]) as engine:
        return asyncio.run(ask_all())


def say_in_plain_libraries(folder: Path, models: Mapping[str, Sequence[str | None]]) -> dict[str, list[int]]:
    """The same from a process of its own that cannot import this project, started in the folder."""
    asked = {role: [*places, PROMPTS[role]] for role, places in models.items()}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_CONSUMER],
        cwd=folder,
        env=environment,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answers
