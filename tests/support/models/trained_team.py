"""A very small team that was really trained: supervised, then together, a few steps each."""

import contextlib
import io
from pathlib import Path

from tiny_models import make_tiny_base

from emads.commands.stages import train_stages
from training.config.loading import load_config
from training.runs.run_folder import Run

SETTINGS = (
    "name=small",
    "num_workers=0",
    "model.hidden_size=32",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.intermediate_size=64",
    "data.difficulties=[1]",
    "data.seat_share=1.0",
    "sft.max_steps=3",
    "sft.batch_size=4",
    "sft.muon_learning_rate=0.04",
    "sft.learning_rate=0.015",
    "grpo.max_steps=0",
    "marl.max_steps=1",
    "marl.scenarios_per_step=2",
    "marl.report_sets=2",
    "marl.decisions_per_set=2",
    "marl.guards.validation_scenarios=2",
)


def train_small_team(path: Path, *settings: str) -> Path:
    """The run's folder, with weights after every stage."""
    made = Run.create(path, load_config(None, (*SETTINGS, *settings)))
    make_tiny_base(made.path)
    with contextlib.redirect_stdout(io.StringIO()):
        train_stages(made, "sft")
        train_stages(made, "grpo")
        train_stages(made, "marl")
    return made.path
