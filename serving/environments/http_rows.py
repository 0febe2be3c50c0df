"""Rows for the HTTP environments, one scenario per line, as NeMo Gym and verifiers read a data set."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.environments.plays import KINDS, Kind, Play, ScenarioName, start_play
from simulator.export.episode_files import write_lines


def make_row(play: Play) -> dict[str, Any]:
    """One row: the request to a Responses API, and the scenario's name. No fact, no truth.

    Example: make_row(start_play(name))["scenario"]["family"] == "cto"
    """
    scenario = play.scenario
    system, user = play.messages
    return {
        "responses_create_params": {
            "input": [{**system, "role": "developer"}, user],
            "tools": [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in play.tools
            ],
            "parallel_tool_calls": False,
        },
        "scenario": {
            "family": scenario.family,
            "split": scenario.split,
            "seed": scenario.seed,
            "index": scenario.index,
            "difficulty": scenario.difficulty,
        },
    }


def write_rows(
    path: Path,
    family: str,
    *,
    split: str,
    seed: int,
    count: int,
    difficulties: Sequence[int],
    kinds: Mapping[str, Kind] = KINDS,
) -> Path:
    """Write a JSONL file of the family's first `count` scenarios of a split, difficulties in turn.

    Raises:
        UserError: a scenario that the family does not have.
    """

    def rows() -> Iterable[str]:
        for index in range(count):
            difficulty = difficulties[index % len(difficulties)]
            name = {
                "family": family,
                "split": split,
                "seed": seed,
                "index": index,
                "difficulty": difficulty,
            }
            yield json.dumps(make_row(start_play(ScenarioName.model_validate(name), kinds)))

    write_lines(path, rows())
    return path
