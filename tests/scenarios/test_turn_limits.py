"""Default turn limits suffice for whatever the experts show, in every family, style and difficulty."""

import random
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import yaml

from scenarios.base import Style
from scenarios.registry import families
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import hold_meeting
from simulator.graph.runner import MAX_TURNS
from training.config.rl_config import GrpoConfig

CONFIGS = Path(__file__).parents[2] / "configs"
NUM_CASES = 4  # per family, style and difficulty


@cache
def count_most_turns() -> int:
    """The turns of the longest demonstration, the answer included."""
    return max(
        len(family.demonstrate(family.generate("train", 0, index, difficulty), random.Random(index)))
        for style in get_args(Style)
        for family in families(style).values()
        for difficulty in range(1, 11)
        for index in range(NUM_CASES)
    )


def test_experts_take_several_turns() -> None:
    assert count_most_turns() >= 8


def test_the_default_suffices() -> None:
    assert GrpoConfig().max_turns >= count_most_turns()


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_suffice(path: Path) -> None:
    grpo = (yaml.safe_load(path.read_text()) or {}).get("grpo") or {}
    assert grpo.get("max_turns", MAX_TURNS) >= count_most_turns()


@pytest.mark.parametrize("style", get_args(Style))
def test_the_table_allows_what_its_experts_do(style: Style) -> None:
    most = 0
    for difficulty in (1, 5, 10):
        for index in range(6):
            meeting = hold_meeting(PlanGame(generate("train", 0, index, difficulty), style))
            steps = [len(one.steps) for said in meeting.messages.values() for one in said]
            most = max(most, *steps)
    assert most <= MAX_TURNS
