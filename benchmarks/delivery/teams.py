"""Makes runs of random weights or adapters to export: a round trip needs different weights, not good ones."""

from pathlib import Path

import torch

from roles.registry import ROLES
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.data.demonstrations import corpus
from training.models.adapters import attach, owners_of
from training.models.base_model import build_tiny_model, load_pretrained, train_tokenizer
from training.models.weights import save_weights
from training.runs.run_folder import Run

TEAMS = {
    "tiny-full": ("model.preset=tiny", "model.adapter=none"),
    "tiny-lora": ("model.preset=tiny", "model.adapter=lora"),
    "smollm2": ("model.preset=smollm2-135m", "model.prompts=full", "model.adapter=lora"),
}
TINY_SCALE = 7.0  # fresh layers of the tiny model repeat the last token; stronger ones do not
ADAPTER_STD = 0.02  # of the B factors, which start at 0


def make_run(kind: str, path: Path) -> Run:
    """Write a run with weights of every role after `marl`."""
    run = Run.create(path, load_config(None, (f"name={kind}", *TEAMS[kind])))
    model = run.config.model

    def build(seed: int):  # a model and its tokenizer
        if model.preset != "tiny":
            return load_pretrained(model.preset)
        texts = corpus(RunConfig(), 200)
        tokenizer = train_tokenizer(texts, model.vocab_size)
        made = build_tiny_model(model, tokenizer, seed)
        for name, parameter in made.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.data.mul_(TINY_SCALE)
        return made, tokenizer

    base, tokenizer = build(0)
    save_weights(run, "base", None, base, tokenizer, step=0)
    for number, owner in enumerate(owners_of(model, tuple(ROLES))):
        speaker, _ = build(number if model.adapter == "none" else 0)
        if model.adapter != "none":
            speaker = attach(speaker, model, seed=number, name=owner)
            for name, parameter in speaker.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=ADAPTER_STD)
        save_weights(run, "marl", owner, speaker, tokenizer, step=0)
    return run
