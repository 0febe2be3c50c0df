"""Results as lines of JSON, written out as they come, so that a stopped measurement keeps what it has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.line_files import LineFile, read_lines

Record = Callable[..., None]  # record(kind, **values)


def open_record(path: Path, part: str) -> Record:
    """A function that adds one line to the file, named by the part that measured it."""

    def record(kind: str, **values: Any) -> None:
        line = json.dumps(
            {"part": part, "kind": kind} | {key: _round(value) for key, value in values.items()}
        )
        with LineFile(path) as file:
            file.add(line.encode())
        print(line, flush=True)

    return record


def read_records(path: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    return [json.loads(line) for line in read_lines(path)]


def _round(value: Any) -> Any:
    """Five significant digits are more than a measurement has."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
