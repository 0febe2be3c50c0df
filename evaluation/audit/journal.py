"""Keeps the rows of an audit on disk, so that a stopped audit can go on.

One JSON line per row. A row counts again only for the same tier, seed and source code.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path

from evaluation.audit.records import Row
from roles.errors import UserError
from simulator.line_files import LineFile, read_lines

ROOT = Path(__file__).parents[2]
AUDITED = ("roles", "scenarios", "evaluation/audit/free_riders.py", "simulator/reward.py")


@cache
def hash_sources() -> str:
    """Of everything that decides what an audit finds."""
    digest = sha256()
    for place in AUDITED:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(ROOT).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


class AuditJournal:
    """Rows found so far, by (family, probe); each new one is on disk before it is shown.

    Raises:
        UserError: `path` holds something else.
    """

    def __init__(self, path: Path, *, tier: str, seed: int) -> None:
        self._path = path
        self._head = {"tier": tier, "seed": seed, "sources": hash_sources()}
        self._rows = {(row.family, row.probe): row for row in self._read()}

    def find(self, family: str, probe: str) -> Row | None:
        """Return the row that an earlier run kept, or None."""
        return self._rows.get((family, probe))

    def keep(self, row: Row) -> None:
        """Append a row."""
        with LineFile(self._path) as file:
            file.add(json.dumps({**self._head, **asdict(row)}).encode())

    def _read(self) -> Iterator[Row]:
        for number, line in enumerate(read_lines(self._path), start=1):
            try:
                found = json.loads(line)
                head = {name: found.pop(name) for name in self._head}
                row = Row(**found)
            except (ValueError, TypeError, AttributeError, KeyError):
                what = f"{self._path}: line {number} is no row of an audit"
                raise UserError(f"{what}; name another file") from None
            if head == self._head:
                yield row
