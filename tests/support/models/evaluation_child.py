"""A process that evaluates an untrained tiny role and team into a folder; tests kill it at any point."""

import sys
from functools import partial
from pathlib import Path

import torch
from tiny_models import small_model, tiny_chat

from evaluation.scoring.sealed_plays import play_stage, solo_player, team_player
from scenarios.base import Scenario
from scenarios.registry import SHORT_FAMILIES
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.engines.embedded.engine import TransformersEngine
from simulator.reward import TeamRewardWeights

NUM, BLOCK = 40, 8


def role_cases() -> list[Scenario]:
    return [SHORT_FAMILIES["cto"].generate("test", 0, index, 1) for index in range(NUM)]


def team_cases() -> list[TeamScenario]:
    return [generate("test", 0, index, 1) for index in range(NUM // 2)]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    chat = tiny_chat()
    engine = TransformersEngine(end_id=chat.end_id, seed=3)
    for place, role in enumerate(("cto", "coo", "risk", "cost", "reconcile")):
        engine.set_policy(role, small_model(place, scale=6.0), version=f"{role}@0")
    solo = solo_player("cto", SHORT_FAMILIES, engine=engine, chat=chat, max_turns=2, max_completion_tokens=24)
    play_stage("cto", "untrained", role_cases(), solo, folder=folder, block_size=BLOCK)
    team = team_player(
        engine=engine,
        chat=chat,
        weights=TeamRewardWeights(),
        max_completion_tokens=12,
        make_game=partial(PlanGame, style="short"),
    )
    play_stage("team", "untrained", team_cases(), team, folder=folder, block_size=BLOCK)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
