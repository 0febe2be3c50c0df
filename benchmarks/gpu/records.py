"""Results as lines of JSON, written out as they come, so that a stopped measurement keeps what it has."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = Callable[..., None]  # record(kind, **values)


def open_record(path: Path, part: str) -> Record:
    """A function that adds one line to the file, named by the part that measured it."""

    def record(kind: str, **values: Any) -> None:
        line = json.dumps(
            {"part": part, "kind": kind} | {key: _round(value) for key, value in values.items()}
        )
        with path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(line, flush=True)

    return record


def read_records(path: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _round(value: Any) -> Any:
    """Five significant digits are more than a measurement has."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
