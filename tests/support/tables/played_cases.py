"""The same plays through every standard: an expert's steps, garbage, and what the core pays for them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from scenarios.base import Step, ToolCall
from serving.environments.plays import KINDS, EnvironmentOutcome, Play, ScenarioName, start_play
from training.data.tasks import import_tasks

PLAYED = (
    "cto",
    "coo",
    "risk",
    "cost",
    "reconcile",
    "team_cto",
    "team_risk",
    "team_reconcile",
    "maths",
    "lookup",
)
GARBAGE = (
    Step(text="", call=ToolCall(name="no_such_tool", arguments={"x": 1})),
    Step(text="I would take A."),
)


def name_case(family: str, index: int = 1, difficulty: int = 2) -> ScenarioName:
    return ScenarioName(family=family, split="train", seed=0, index=index, difficulty=difficulty)


def expert_steps(name: ScenarioName) -> tuple[Step, ...]:
    """The demonstration, of a seat the best known answer."""
    return KINDS[name.family].family.demonstrate(start_play(name).scenario, random.Random(0))


def play_steps(play: Play, steps: Sequence[Step]) -> EnvironmentOutcome:
    """What the core pays for these steps; the last one is the answer."""
    for step in steps[:-1]:
        assert step.call is not None
        play.call(step.call.name, step.call.arguments)
    return play.answer(steps[-1].text)


def expected(name: ScenarioName, steps: Sequence[Step]) -> EnvironmentOutcome:
    return play_steps(start_play(name), steps)


def list_plays() -> list[tuple[ScenarioName, tuple[Step, ...], float]]:
    """Scenario, steps and reward of an expert and of garbage, per family."""
    plays = []
    for family in PLAYED:
        name = name_case(family)
        for steps in (expert_steps(name), GARBAGE):
            plays.append((name, steps, expected(name, steps).reward))
    return plays


def write_imported(folder: Path) -> Path:
    """A folder of `emads import` with sums as questions, under the name sums."""
    folder.mkdir(parents=True)
    source = folder / "sums.jsonl"
    rows = [{"question": f"What is {one} plus {one * 7}?", "answer": str(8 * one)} for one in range(1, 25)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    import_tasks([source], folder / "sums", layout="qa", name="sums", check="number")
    return folder / "sums"
