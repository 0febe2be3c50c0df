"""Runs an audit: every verifier's probes, V9 and V10, in this process or in several, and prints its table.

Rows are kept on disk, so that a stopped audit can go on; a kept row counts again only for the same tier,
seed and source code.
"""

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.cheats import probe_honesty
from evaluation.audit.free_riders import probe_free_riders
from evaluation.audit.probe_list import DERIVED_PROBES, PROBES, TEAM, TIERS, choose_subjects, choose_tier
from evaluation.audit.records import Row, Tier
from evaluation.audit.registry import SUBJECTS, list_subjects
from roles.errors import UserError, unknown
from simulator.line_files import LineFile, read_lines

TEAM_PROBES: Mapping[str, Callable[[Tier, int], Row]] = {"V9": probe_free_riders, "V10": probe_honesty}
Cell = tuple[str, str]  # (family, probe)


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


def list_cells(families: Sequence[str], probes: Sequence[str]) -> list[Cell]:
    """(family, probe) of every row, in the table's order; all families and all probes for none.

    Raises:
        UserError: unknown family or probe.
    """
    known = [*PROBES, *TEAM_PROBES]
    for probe in probes:
        if probe not in known:
            raise unknown("probe", probe, known)
    cells = [
        (subject.family.name, probe)
        for subject in choose_subjects(families)
        for probe in (PROBES if subject.family.name in SUBJECTS else DERIVED_PROBES)
    ]
    if not families or TEAM in families:
        cells += [(TEAM, probe) for probe in TEAM_PROBES]
    return [cell for cell in cells if not probes or cell[1] in probes]


@cache
def _draw_sample(name: str, seed: int, constant_cases: int) -> CaseSample:
    return CaseSample(list_subjects()[name], seed, constant_cases)


def probe_cell(cell: Cell, tier_name: str, seed: int) -> Row:
    """One row. Worker processes keep the cases that they drew for the next row."""
    (name, probe), tier = cell, TIERS[tier_name]
    if name == TEAM:
        return TEAM_PROBES[probe](tier, seed)
    return PROBES[probe](_draw_sample(name, seed, tier.constant_cases), tier)


def audit(
    tier_name: str,
    families: Sequence[str],
    seed: int,
    *,
    probes: Sequence[str] = (),
    processes: int = 1,
    journal: AuditJournal | None = None,
) -> Iterator[Row]:
    """Yield the rows of an audit, in order, each as soon as it and all before are known.

    What the journal has is not probed again.

    Raises:
        UserError: unknown tier, family or probe.
    """
    choose_tier(tier_name)
    cells = list_cells(families, probes)
    rows = {cell: row for cell in cells if journal and (row := journal.find(*cell))}
    shown = 0
    missing = [cell for cell in cells if cell not in rows]
    for row in _probe_all(missing, tier_name, seed, processes):
        rows[row.family, row.probe] = row
        if journal:
            journal.keep(row)
        while shown < len(cells) and cells[shown] in rows:
            yield rows[cells[shown]]
            shown += 1
    yield from (rows[cell] for cell in cells[shown:])


def _probe_all(cells: Sequence[Cell], tier_name: str, seed: int, processes: int) -> Iterator[Row]:
    """Rows as they come."""
    if processes == 1 or len(cells) < 2:
        _draw_sample.cache_clear()
        for cell in cells:
            yield probe_cell(cell, tier_name, seed)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures: list[Future[Row]] = [pool.submit(probe_cell, cell, tier_name, seed) for cell in cells]
        for future in as_completed(futures):
            yield future.result()


def show_audit(
    tier_name: str,
    families: Sequence[str],
    seed: int,
    show: Callable[[str], None],
    *,
    probes: Sequence[str] = (),
    processes: int = 1,
    keep: Path | None = None,
) -> list[str]:
    """Show the table as it grows, then what broke; returns what broke, a line each.

    With `keep`, rows are written to that file and those that stand there already are not probed again.

    Raises:
        UserError: unknown tier, family or probe, or `keep` holds something else.
    """
    choose_tier(tier_name)
    journal = AuditJournal(keep, tier=tier_name, seed=seed) if keep else None
    rows: list[Row] = []
    for row in audit(tier_name, families, seed, probes=probes, processes=processes, journal=journal):
        if not rows:
            show(render_heading())
        rows.append(row)
        show(render_row(row))
    broken = render_breaches(rows)
    for line in broken:
        show(line)
    return broken


COLUMNS = ("probe", "family", "counts", "worst figure", "result")
MOST_SHOWN = 5  # breaches of a row that are shown


def render_heading() -> str:
    """Return the head of the table, in Markdown."""
    return f"{render_cells(COLUMNS)}\n{render_cells(['---'] * len(COLUMNS))}"


def render_row(row: Row) -> str:
    """One line of the table."""
    result = "pass" if not row.breaches else f"BREACH ({len(row.breaches)})"
    return render_cells((row.probe, row.family, row.counts, row.worst, result))


def render_cells(cells: Sequence[str]) -> str:
    """Cells between bars."""
    return f"| {' | '.join(cells)} |"


def render_breaches(rows: Sequence[Row]) -> list[str]:
    """Return the first breaches of every row, a line each, on one line even where they quote other lines."""
    lines = []
    for row in rows:
        shown = [" ".join(breach.split()) for breach in row.breaches[:MOST_SHOWN]]
        lines += [f"{row.probe} {row.family}: {breach}" for breach in shown]
        if len(row.breaches) > MOST_SHOWN:
            lines.append(f"{row.probe} {row.family}: and {len(row.breaches) - MOST_SHOWN} more")
    return lines
