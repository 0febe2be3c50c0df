"""A data folder of the rows that passed validation, with an index and a card of its own."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors, write_atomic
from training.data.folders.card import write_card
from training.data.folders.columns import encode_shard
from training.data.folders.index import DatasetIndex, OracleShard
from training.data.folders.requests import compute_generator_digest

REJECTED = "rejected.jsonl"


class CleanFolder:
    """Takes the clean rows file by file; `emads generate` fills the gaps of such a folder again."""

    def __init__(self, path: Path) -> None:
        """Make the folder.

        Raises:
            UserError: it holds something already, or cannot be written.
        """
        with explain_os_errors("write data folder", path):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UserError(f"--keep {path} is not empty; choose a new folder")
            path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._shards: dict[str, OracleShard] = {}

    def add(self, file: str, table: pa.Table, source: OracleShard | None) -> None:
        """Write the clean rows of one file; `source` is what dataset.json says of it, if anything."""
        content = encode_shard(table.to_pylist())
        path = self._path / file
        with explain_os_errors("write", path):
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, content)
        rows_per_key = Counter(table["key"].to_pylist())
        whole = max(rows_per_key.values())
        shard = source or _describe(file, table.to_pylist())
        self._shards[file] = shard.model_copy(
            update={
                "num_scenarios": sum(count == whole for count in rows_per_key.values()),
                "num_rows": table.num_rows,
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )

    def finish(self, problems: Sequence[Mapping[str, Any]]) -> None:
        """Write index, card and the list of what was left out."""
        lines = "".join(f"{json.dumps(problem)}\n" for problem in problems)
        with explain_os_errors("write data folder", self._path):
            write_atomic(self._path / REJECTED, lines.encode())
            index = DatasetIndex(format=DatasetIndex.FORMAT).with_shards(self._shards)
            index.write(self._path)
            write_card(self._path, index, num_rejected=len(problems))


def _describe(file: str, rows: Sequence[Mapping[str, Any]]) -> OracleShard:
    """Describe a file that dataset.json does not list, from its rows."""
    first = rows[0]
    difficulties = tuple(sorted({row["difficulty"] for row in rows}))
    return OracleShard(
        path=file,
        family=first["family"],
        split=first["split"],
        seed=first["seed"],
        difficulties=difficulties,
        generator=compute_generator_digest(first["family"], difficulties),
        certified=False,
        start=min(row["index"] for row in rows),
        stop=max(row["index"] for row in rows) + 1,
        num_scenarios=len(rows),
        num_exact_repeats=0,
        num_near_repeats=0,
        num_rows=len(rows),
        sha256="",
    )
