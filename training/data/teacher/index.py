"""teacher.json and the data card of a folder that a teacher wrote: its shards, and how much was rejected."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import UserError
from scenarios.base import Split
from training.runs.atomic_files import encode_json, write_atomic

TEACHER_INDEX = "teacher.json"
FORMAT: Literal["emads-taught/1"] = "emads-taught/1"
_TEXT = """
# Company decision demonstrations by a teacher model

Each row is one role's play of one generated scenario as a teacher model wrote it: `messages` is the whole
chat with tool calls and their true observations, `answer` the final answer, `tools` the tools' signatures
(all three are JSON text). Every row passed four checks: its tools exist and took the calls, the verifier gave
the answer the least reward or more, figures named like a tool's were given by a tool or the brief, and the
tools said the same when asked again. What was rejected, and why, is in `FAMILY/SPLIT-NUMBER.rejected.jsonl`.
Splits share no scenario.

| shard | author | seed | difficulties | least reward | scenarios | rows | rejected | unfinished |
|---|---|---|---|---|---|---|---|---|
"""


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class TaughtShard(_Record):
    """One Parquet file of a teacher's rows.

    Example: TaughtShard(path="cto/train-00000.parquet", family="cto", split="train", author="teacher:qwen",
                         seed=0, difficulties=(1, 2), min_reward=1.0, num_scenarios=1000, num_rows=812,
                         rejected={"answer": 170, "chain": 18}, num_unfinished=0, cost=1.42,
                         prompt_tokens=4000000, completion_tokens=310000, sha256="5c...")
    """

    path: str
    family: str
    split: Split
    author: str
    seed: int
    difficulties: tuple[int, ...]
    min_reward: float  # of its rows' answers
    num_scenarios: int  # asked for
    num_rows: int
    rejected: dict[str, int]  # by reason
    num_unfinished: int  # not played to their end yet: a failure, a limit
    cost: float  # in the currency of the prices, all runs together
    prompt_tokens: int  # as far as the endpoint said
    completion_tokens: int
    sha256: str


class TaughtIndex(_Record):
    """Content of teacher.json."""

    format: Literal["emads-taught/1"]
    shards: tuple[TaughtShard, ...] = ()  # sorted by path


def read_taught_index(folder: Path) -> TaughtIndex:
    """The shards that a teacher wrote; none where there is no teacher.json.

    Raises:
        UserError: a damaged teacher.json.
    """
    path = folder / TEACHER_INDEX
    try:
        return TaughtIndex.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return TaughtIndex(format=FORMAT)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError:
        raise UserError(f"{path} is damaged; delete it to have it made again from the journals") from None


def write_taught_index(folder: Path, shards: Mapping[str, TaughtShard]) -> None:
    """Replace teacher.json and README.md by these shards (by path)."""
    index = TaughtIndex(format=FORMAT, shards=tuple(shards[path] for path in sorted(shards)))
    write_atomic(folder / TEACHER_INDEX, encode_json(index.model_dump(mode="json")))
    write_atomic(folder / "README.md", _write_card(index).encode())


def _write_card(index: TaughtIndex) -> str:
    files: dict[str, dict[str, str]] = {}
    for shard in index.shards:
        files.setdefault(shard.family, {})[shard.split] = f"{shard.family}/{shard.split}-*.parquet"
    configs = [
        {
            "config_name": family,
            "data_files": [{"split": split, "path": path} for split, path in splits.items()],
        }
        for family, splits in files.items()
    ]
    header = yaml.safe_dump({"configs": configs}, sort_keys=False)
    return f"---\n{header}---\n{_TEXT}" + "".join(_describe(shard) for shard in index.shards)


def _describe(shard: TaughtShard) -> str:
    rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(shard.rejected.items())) or "0"
    cells = (
        shard.path,
        " ".join(shard.author.replace("|", " ").split()),
        shard.seed,
        ", ".join(str(difficulty) for difficulty in shard.difficulties),
        f"{shard.min_reward:g}",
        shard.num_scenarios,
        shard.num_rows,
        rejected,
        shard.num_unfinished,
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"
