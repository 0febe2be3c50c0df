"""Plays groups of rollouts of a run's role, as a batch of GRPO is played; for benchmarks."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from roles.registry import ROLES
from scenarios.base import Split
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from training.config.rl_config import GrpoConfig
from training.models.adapters import roles_of
from training.models.base_model import quiet_libraries
from training.models.weights import load_trainable
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_folder import Run
from training.runs.workers import keep_freed_memory
from training.stages.from_config import make_chat
from training.stages.rl import draw_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlays:
    """A role's weights after a stage of a run, ready to play."""

    run: Run
    role: str
    stage: str
    groups: int
    temperature: float
    model: Any
    tokenizer: Any

    @property
    def grpo(self) -> GrpoConfig:
        """The run's section, whose group size, limits and temperature hold."""
        return self.run.config.grpo

    def play(self, split: Split, first: int, *, seed: int, stream: str) -> list[SoloEpisode]:
        """Play `groups` scenarios from index `first`, each as often as a group of GRPO, group after group.

        Raises:
            Exception: what an episode raised.
        """
        config, grpo = self.run.config, self.grpo.changed(temperature=self.temperature)
        chat = make_chat(self.tokenizer, config)
        player = SoloPlayer(config=grpo, chat=chat, families=families(config.model.prompts))
        engine = TransformersEngine(end_id=chat.end_id, seed=seed)
        serve_roles(engine, dict.fromkeys(roles_of(self.role), self.model), 0)
        drawn = [draw_scenario(self.run, self.role, split, first, place) for place in range(self.groups)]
        played = [one for group in player.play(engine, drawn, stream) for one in group.episodes]
        episodes = []
        for one in played:
            if isinstance(one, Exception):
                raise one
            episodes.append(one)
        return episodes


def load(description: str | None, arguments: Sequence[str]) -> RunPlays:
    """Read a benchmark's arguments, and load what they name."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--role", choices=list(ROLES), default="cto")
    parser.add_argument("--stage", default="sft")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--temperature", type=float, help="of the plays; not given: grpo.temperature")
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    torch.set_num_threads(run.config.threads_per_worker)
    model, tokenizer = load_trainable(run, options.stage, options.role)
    return RunPlays(
        run=run,
        role=options.role,
        stage=options.stage,
        groups=options.groups,
        temperature=run.config.grpo.temperature if options.temperature is None else options.temperature,
        model=model,
        tokenizer=tokenizer,
    )
