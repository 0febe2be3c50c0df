"""dataset.json: which shards of a data folder are finished, and what they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import UserError
from scenarios.base import Split
from training.runs.atomic_files import encode_json, write_atomic

INDEX = "dataset.json"
FORMAT: Literal["emads-dataset/2"] = "emads-dataset/2"


class Shard(BaseModel):
    """One finished Parquet file.

    Example: Shard(path="cto/train-00000.parquet", family="cto", split="train", seed=0, difficulties=(1, 2),
                   generator="a1...", certified=True, start=0, stop=1001, num_scenarios=1000,
                   num_exact_repeats=0, num_near_repeats=1, num_rows=1000, sha256="5c...")
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    path: str
    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    generator: str  # digest of what the family's generator makes: see `compute_generator_digest`
    certified: bool  # every optimum was found again by a second method
    start: int  # first index that was drawn for it
    stop: int  # one after the last
    num_scenarios: int
    num_exact_repeats: int  # drawn and left out: equal to an earlier case up to names and order
    num_near_repeats: int  # drawn and left out: nearly equal to an earlier case
    num_rows: int  # five per scenario in the team family
    sha256: str


class DatasetIndex(BaseModel):
    """Content of dataset.json."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["emads-dataset/2"]
    shards: tuple[Shard, ...] = ()  # sorted by path


def read_index(folder: Path) -> DatasetIndex:
    """The finished shards of a folder; none where there is no dataset.json.

    Raises:
        UserError: a damaged dataset.json, or one of another format.
    """
    try:
        return DatasetIndex.model_validate_json((folder / INDEX).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return DatasetIndex(format=FORMAT)
    except OSError as error:
        raise UserError(f"cannot read {folder / INDEX}: {error.strerror}") from None
    except ValidationError:
        raise UserError(
            f"{folder / INDEX} is damaged or of another version; delete it to have its shards made again"
        ) from None


def write_index(folder: Path, shards: Mapping[str, Shard]) -> None:
    """Replace dataset.json by these shards (by path), atomically."""
    index = DatasetIndex(format=FORMAT, shards=tuple(shards[path] for path in sorted(shards)))
    write_atomic(folder / INDEX, encode_json(index.model_dump(mode="json")))
