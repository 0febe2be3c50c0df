"""Shared by the tests of data folders: reading, hashing and spoiling them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from training.data.folders.rows import encode_shard


def hash_folder(folder: Path) -> dict[str, str]:
    """sha256 of every file, by path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a shard as a faulty program would: the Parquet file itself stays sound."""
    rows = read_rows(path)
    change(rows)
    path.write_bytes(encode_shard(rows))
