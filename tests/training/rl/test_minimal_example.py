"""The minimal example of joint RL runs as it stands, learns, and stays short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "minimal_marl.py"


@pytest.mark.slow
def test_the_example_raises_the_team_reward_within_five_steps() -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "5"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    rewards = [float(value) for value in re.findall(r"team reward (\S+)", printed)]
    assert len(rewards) == 5
    assert sum(rewards[-2:]) / 2 > sum(rewards[:2]) / 2 + 0.2


def test_the_example_fits_150_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 150
