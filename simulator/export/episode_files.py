"""Episodes as JSON lines, read strictly: what is read writes back to the same bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from roles.base import AnswerError, Role, parse_strict_json
from roles.errors import UserError
from roles.registry import ROLES
from simulator.chat import Chat
from simulator.export.atif import episode_to_atif
from simulator.export.atomic_files import open_atomic, write_document
from simulator.governance.log import Entry
from simulator.governance.record import GovernedRecord
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


_RECORD = TypeAdapter(GovernedRecord)
SECRET = ("interrupt_id", "expires_at_s", "request", "precedent", "features")  # of the store alone


def governed_to_json(record: GovernedRecord) -> str:
    """Write the record on one line, without the parts of the decision log that only its own checks use.

    Raises:
        ValueError: a logprob is not finite.
    """
    value = asdict(record)
    for entry in value["log"]:
        entry["body"] = {name: part for name, part in entry["body"].items() if name not in SECRET}
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def governed_from_json(line: str) -> GovernedRecord:
    """Read the record of one line: exact types, no unknown or missing key.

    Raises:
        ValueError: says what is wrong.
    """
    return read_record(line, _RECORD, lambda record: json.loads(governed_to_json(record)))


def write_governed(path: Path, records: Iterable[GovernedRecord]) -> None:
    """Write a JSONL file; it appears under its name only once it is whole and on disk."""
    write_lines(path, map(governed_to_json, records))


def read_governed(path: Path) -> Iterator[GovernedRecord]:
    """Read the records of a JSONL file, in order.

    Raises:
        UserError: no such file, or a damaged row, named by its number.
    """
    if not path.is_file():
        raise UserError(f"no episodes file {str(path)!r}")
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield governed_from_json(line)
            except ValueError as error:
                raise UserError(f"{path}, row {number}: {error}") from None


def governed_to_atif(
    record: GovernedRecord,
    chat: Chat,
    *,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> dict[str, Any]:
    """Return the record as an ATIF document: the episode, then every entry of the decision log as a step."""
    document = episode_to_atif(record.episode, chat, roles=speakers or roles)
    steps = document["steps"] + [_log_step(entry) for entry in record.log]
    document["steps"] = [{**step, "step_id": number} for number, step in enumerate(steps, 1)]
    document["final_metrics"]["total_steps"] = len(steps)
    document["extra"] |= {
        "protocol": "full",
        "status": record.status,
        "accountable": record.accountable,
        "num_proposals": len(record.chapters),
        "num_replans": max((chapter.attempt for chapter in record.chapters), default=0),
        "option": next(
            (one.proposal["option"] for one in reversed(record.chapters) if one.is_committed), None
        ),
        "is_log_sound": record.is_log_sound,
    }
    return document


def write_governed_atif(
    path: Path,
    record: GovernedRecord,
    chat: Chat,
    *,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> Path:
    """Write one record as a JSON document; it appears under its name only once it is whole."""
    return write_document(path, governed_to_atif(record, chat, roles=roles, speakers=speakers))


def _log_step(entry: Entry) -> dict[str, Any]:
    body = {name: value for name, value in entry.body.items() if name not in SECRET}
    return {
        "source": "system",
        "message": f"Decision log: {entry.kind}.",
        "extra": {"kind": entry.kind, "at_s": entry.at_s, "hash": entry.hash, **body},
    }
