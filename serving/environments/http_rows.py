"""Rows for the HTTP environments, one scenario per line, as NeMo Gym and verifiers read a data set."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario, Split
from scenarios.registry import FAMILIES
from simulator.export.episode_files import write_lines


def make_row(scenario: Scenario, role: Role) -> dict[str, Any]:
    """One row: the request to a Responses API, and the scenario's name. No fact, no truth.

    Example: make_row(scenario, ROLES["cto"])["scenario"]["family"] == "cto"
    """
    return {
        "responses_create_params": {
            "input": [
                {"role": "developer", "content": role.mandate},
                {"role": "user", "content": scenario.brief},
            ],
            "tools": [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in role.tools
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
    split: Split,
    seed: int,
    count: int,
    difficulties: Sequence[int],
    families: Mapping[str, Family] = FAMILIES,
    roles: Mapping[str, Role] = ROLES,
) -> Path:
    """Write a JSONL file of the family's first `count` scenarios of a split, difficulties in turn."""
    made = families[family]

    def rows() -> Iterable[str]:
        for index in range(count):
            scenario = made.generate(split, seed, index, difficulties[index % len(difficulties)])
            yield json.dumps(make_row(scenario, roles[scenario.role]))

    write_lines(path, rows())
    return path
