"""Episodes as JSON lines, read strictly: what is read writes back to the same bytes."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import UserError
from simulator.export.atomic_files import open_atomic
from simulator.records import Episode

_EPISODE = TypeAdapter(Episode)
R = TypeVar("R")


def episode_to_dict(episode: Episode) -> dict[str, Any]:
    """Return the episode as plain JSON values; inverse of `episode_from_json`."""
    value: dict[str, Any] = json.loads(episode_to_json(episode))
    return value


def read_record(line: str, adapter: TypeAdapter[R], to_dict: Callable[[R], Any]) -> R:
    """Read the record of one line: exact types, no unknown or missing key; it must write back to the same.

    Raises:
        ValueError: says what is wrong.
    """
    try:
        value = parse_strict_json(line)
        record = adapter.validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except AnswerError as error:
        raise ValueError(str(error)) from None
    if to_dict(record) != value:
        raise ValueError("unknown key")
    return record


def episode_to_json(episode: Episode) -> str:
    """Write the episode on one line.

    Raises:
        ValueError: a logprob is not finite.
    """
    return json.dumps(asdict(episode), allow_nan=False, separators=(",", ":"))


def episode_from_json(line: str) -> Episode:
    """Read the episode of one line: exact types, no unknown or missing key, one logprob per sampled id.

    Raises:
        ValueError: says what is wrong.
    """
    episode = read_record(line, _EPISODE, episode_to_dict)
    for trajectory in episode.trajectories.values():
        for turn in trajectory.turns:
            if len(turn.completion_ids) != len(turn.logprobs):
                raise ValueError(
                    f"{trajectory.session}: {len(turn.completion_ids)} ids, {len(turn.logprobs)} logprobs"
                )
    return episode


def write_episodes(path: Path, episodes: Iterable[Episode]) -> None:
    """Write a JSONL file; it appears under its name only once it is whole and on disk."""
    write_lines(path, map(episode_to_json, episodes))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of JSON; the file appears under its name only once it is whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        file.writelines(line.encode() + b"\n" for line in lines)


def read_episodes(path: Path) -> Iterator[Episode]:
    """Read the episodes of a JSONL file, in order; of a governed one its reports, last draft and votes.

    Raises:
        UserError: no such file, or a damaged row, named by its number.
    """
    if not path.is_file():
        raise UserError(f"no episodes file {str(path)!r}")
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield episode_from_json(_find_episode(line))
            except ValueError as error:
                raise UserError(f"{path}, row {number}: {error}") from None


def _find_episode(line: str) -> str:
    """Return the line itself, or the episode within the record of a governed one (`governed_episodes`)."""
    if '"chapters":' not in line:
        return line
    value = json.loads(line)
    return json.dumps(value["episode"]) if isinstance(value, dict) and "episode" in value else line
