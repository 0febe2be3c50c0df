"""Episodes as JSON lines: exactly as played, with token ids and log-probabilities; NaN is refused."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from simulator.export.atomic_files import open_atomic
from simulator.governance.record import GovernedRecord
from simulator.records import Episode

SECRET = ("interrupt_id", "expires_at_s", "request", "precedent", "features")  # of the store alone


def episode_to_json(episode: Episode) -> str:
    """Write the episode on one line.

    Raises:
        ValueError: a logprob is not finite.
    """
    return json.dumps(asdict(episode), allow_nan=False, separators=(",", ":"))


def governed_to_json(record: GovernedRecord) -> str:
    """Write the record on one line, without the parts of the decision log that only its own checks use.

    Raises:
        ValueError: a logprob is not finite.
    """
    value = asdict(record)
    for entry in value["log"]:
        entry["body"] = {name: part for name, part in entry["body"].items() if name not in SECRET}
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of JSON; the file appears under its name only once it is whole and on disk."""
    with open_atomic(path) as file:
        file.writelines(line.encode() + b"\n" for line in lines)
