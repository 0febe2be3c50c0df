"""A data folder of the rows that passed validation, with an index and a card of its own."""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from roles.errors import UserError
from training.data.card import write_card
from training.data.datasets import compute_generator_digest
from training.data.index import Shard, read_index, write_index
from training.runs.atomic_files import explain_os_errors, write_atomic

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
        self._shards: dict[str, Shard] = {}

    def add(self, file: str, table: pa.Table, source: Shard | None) -> None:
        """Write the clean rows of one file; `source` is what dataset.json says of it, if anything."""
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
        path = self._path / file
        with explain_os_errors("write", path):
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, buffer.getvalue())
        rows_per_key = Counter(table["key"].to_pylist())
        whole = max(rows_per_key.values())
        shard = source or _describe(file, table.to_pylist())
        self._shards[file] = shard.model_copy(
            update={
                "num_scenarios": sum(count == whole for count in rows_per_key.values()),
                "num_rows": table.num_rows,
                "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
            }
        )

    def finish(self, problems: Sequence[Mapping[str, Any]]) -> None:
        """Write index, card and the list of what was left out."""
        lines = "".join(f"{json.dumps(problem)}\n" for problem in problems)
        with explain_os_errors("write data folder", self._path):
            write_atomic(self._path / REJECTED, lines.encode())
            write_index(self._path, self._shards)
            write_card(self._path, read_index(self._path), num_rejected=len(problems))


def _describe(file: str, rows: Sequence[Mapping[str, Any]]) -> Shard:
    """What can be told of a file that dataset.json does not know."""
    first = rows[0]
    difficulties = tuple(sorted({row["difficulty"] for row in rows}))
    return Shard(
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
