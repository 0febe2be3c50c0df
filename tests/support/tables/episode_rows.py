"""Rows of episode files read back: exact types, no unknown or missing key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from simulator.export.episode_files import episode_to_json, governed_to_json
from simulator.governance.record import GovernedRecord
from simulator.records import Episode


def read_episodes(path: Path) -> list[Episode]:
    """Read every row; what is read must write back to the same values."""
    return _read(path, Episode, lambda episode: json.loads(episode_to_json(episode)))


def read_governed(path: Path) -> list[GovernedRecord]:
    """Read every row of governed episodes."""
    return _read(path, GovernedRecord, lambda record: json.loads(governed_to_json(record)))


def _read(path: Path, kind: type[Any], to_dict: Callable[[Any], Any]) -> list[Any]:
    adapter = TypeAdapter(kind)
    found = []
    for line in path.read_text().splitlines():
        found.append(adapter.validate_json(line, strict=True))
        assert to_dict(found[-1]) == json.loads(line)
    return found
