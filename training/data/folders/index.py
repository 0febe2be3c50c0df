"""The index of a data folder: its finished shards in one JSON file, by the oracle or by a teacher."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import ValidationError

from roles.errors import UserError
from scenarios.base import Split
from simulator.export.atomic_files import encode_json, write_atomic
from training.config.section import StrictRecord


class ParquetShard(StrictRecord):
    """One finished Parquet file."""

    path: str  # inside the folder, with "/"
    family: str
    split: Split
    num_rows: int
    sha256: str

    def is_sound(self, folder: Path) -> bool:
        """Return whether the file is there with these bytes."""
        file = folder / self.path
        return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == self.sha256


AnyShard = TypeVar("AnyShard", bound=ParquetShard)


class FolderIndex(StrictRecord, Generic[AnyShard]):
    """Content of an index file; a subclass names the file, its format and its kind of shards."""

    FILE: ClassVar[str]
    FORMAT: ClassVar[str]
    REMEDY: ClassVar[str]  # for a damaged file

    format: str
    shards: tuple[AnyShard, ...] = ()  # sorted by path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The index of a folder; an empty one where there is no such file.

        Raises:
            UserError: a damaged file, or one of another format.
        """
        found = cls.find(folder)
        return cls(format=cls.FORMAT) if found is None else found

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The index of a folder, or None; raises as `read`."""
        path = folder / cls.FILE
        try:
            found = cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        except ValidationError:
            raise UserError(f"{path} is damaged or of another version; {cls.REMEDY}") from None
        if found.format != cls.FORMAT:
            raise UserError(f"{path} is damaged or of another version; {cls.REMEDY}")
        return found

    @classmethod
    def of(cls, shards: Mapping[str, AnyShard]) -> Self:
        """An index of these shards, by path."""
        return cls(format=cls.FORMAT).with_shards(shards)

    def with_shards(self, shards: Mapping[str, AnyShard]) -> Self:
        """This index with other shards, by path."""
        return self.model_copy(update={"shards": tuple(shards[path] for path in sorted(shards))})

    def write(self, folder: Path) -> None:
        """Replace the folder's index file, atomically."""
        content: dict[str, Any] = self.model_dump(mode="json")
        write_atomic(folder / self.FILE, encode_json(content))

    def by_path(self) -> dict[str, AnyShard]:
        """The shards by path."""
        return {shard.path: shard for shard in self.shards}


class OracleShard(ParquetShard):
    """One Parquet file of generated demonstrations.

    Example: OracleShard(path="cto/train-00000.parquet", family="cto", split="train", seed=0,
                         difficulties=(1, 2), generator="a1...", start=0, stop=1001,
                         num_scenarios=1000, num_exact_repeats=0, num_near_repeats=1, num_rows=1000,
                         sha256="5c...")
    """

    seed: int
    difficulties: tuple[int, ...]
    generator: str  # digest of what the family's generator makes: see `compute_generator_digest`
    sector: str | None = None  # the only one whose cases were taken; None: all
    start: int  # first index that was drawn for it
    stop: int  # one after the last
    num_scenarios: int  # of five rows each in the team family
    num_exact_repeats: int  # drawn and left out: equal to an earlier case up to names and order
    num_near_repeats: int  # drawn and left out: nearly equal to an earlier case


class DatasetIndex(FolderIndex[OracleShard]):
    """Content of dataset.json."""

    FILE = "dataset.json"
    FORMAT = "emads-dataset/5"
    REMEDY = "delete it to have its shards made again"


class TeacherShard(ParquetShard):
    """One Parquet file of a teacher's rows.

    Example: TeacherShard(path="cto/train-00000.parquet", family="cto", split="train", author="teacher:qwen",
                          seed=0, difficulties=(1, 2), min_reward=1.0, num_scenarios=1000, num_rows=812,
                          rejected={"answer": 170, "chain": 18}, num_unfinished=0, cost=1.42,
                          prompt_tokens=4000000, completion_tokens=310000, sha256="5c...")
    """

    author: str
    seed: int
    difficulties: tuple[int, ...]
    min_reward: float  # of its rows' answers
    num_scenarios: int  # asked for
    rejected: dict[str, int]  # by reason
    num_unfinished: int  # not played to their end yet: a failure, a limit
    cost: float  # in the currency of the prices, all runs together
    prompt_tokens: int  # as far as the endpoint said
    completion_tokens: int


class TeacherIndex(FolderIndex[TeacherShard]):
    """Content of teacher.json."""

    FILE = "teacher.json"
    FORMAT = "emads-teacher/2"
    REMEDY = "delete it to have it made again from the journals"
