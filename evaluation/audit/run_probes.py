"""Runs an audit: every verifier's probes, V9 and V10, in this process or in several, and prints its table."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

from evaluation.audit.answers import AuditRow, CaseSample, Tier
from evaluation.audit.probes import (
    probe_blind,
    probe_hacks,
    probe_hostile_outputs,
    probe_optimum,
    probe_rewrites,
    probe_search,
)
from evaluation.audit.subjects import SUBJECTS, choose_subjects, list_subjects
from evaluation.audit.team_cheats import TEAM, probe_free_riders, probe_honesty
from roles.errors import unknown

PROBES: Mapping[str, Callable[[CaseSample, Tier], AuditRow]] = {
    "V1": probe_hostile_outputs,
    "V2": probe_rewrites,
    "V3": probe_hacks,
    "V4": probe_optimum,
    "V5": probe_blind,
    "V6": probe_search,
}
DERIVED_PROBES = ("V1", "V4")  # of a family without a subject of its own
TEAM_PROBES: Mapping[str, Callable[[Tier, int], AuditRow]] = {"V9": probe_free_riders, "V10": probe_honesty}
TIERS: dict[str, Tier] = {
    "pr": Tier(
        hostile_outputs=1000,
        rewrites=300,
        hack_cases=80,
        hack_seeds=1,
        optima=50,
        blind_cases=500,
        constant_cases=60,
        search_calls=500,
        calls_per_case=50,
        team_episodes=100,
        blind_difficulties=(1, 5),
    ),
    "full": Tier(
        hostile_outputs=20_000,
        rewrites=10_000,
        hack_cases=100,
        hack_seeds=5,
        optima=2000,
        blind_cases=5000,
        constant_cases=500,
        search_calls=20_000,
        calls_per_case=200,
        team_episodes=5000,
        blind_difficulties=(1, 5, 8, 10),
    ),
}
ProbeCell = tuple[str, str]  # (family, probe)


def list_cells(families: Sequence[str], probes: Sequence[str]) -> list[ProbeCell]:
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


def probe_cell(cell: ProbeCell, tier_name: str, seed: int) -> AuditRow:
    """One row. Worker processes keep the cases that they drew for the next row."""
    (name, probe), tier = cell, TIERS[tier_name]
    if probe in TEAM_PROBES:
        return TEAM_PROBES[probe](tier, seed)
    return PROBES[probe](_draw_sample(name, seed, tier.constant_cases), tier)


def audit(
    tier_name: str, families: Sequence[str], seed: int, *, probes: Sequence[str] = (), processes: int = 1
) -> Iterator[AuditRow]:
    """Yield the rows of an audit in order.

    Raises:
        UserError: unknown tier, family or probe.
    """
    if tier_name not in TIERS:
        raise unknown("tier", tier_name, list(TIERS))
    cells, probe = list_cells(families, probes), partial(probe_cell, tier_name=tier_name, seed=seed)
    if processes == 1:
        _draw_sample.cache_clear()
        yield from map(probe, cells)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(probe, cells)


COLUMNS = ("probe", "family", "counts", "worst figure", "result")
MOST_SHOWN = 5  # breaches of a row that are shown


def show_audit(
    tier_name: str,
    families: Sequence[str],
    seed: int,
    show: Callable[[str], None],
    *,
    probes: Sequence[str] = (),
) -> list[str]:
    """Show the Markdown table as it grows, then what broke; returns what broke, a line each.

    The full tier runs on all cores.

    Raises:
        UserError: unknown tier, family or probe.
    """
    rows: list[AuditRow] = []
    processes = len(os.sched_getaffinity(0)) if tier_name == "full" else 1
    for row in audit(tier_name, families, seed, probes=probes, processes=processes):
        if not rows:
            show(f"{_render_cells(COLUMNS)}\n{_render_cells(['---'] * len(COLUMNS))}")
        rows.append(row)
        result = "pass" if not row.breaches else f"BREACH ({len(row.breaches)})"
        show(_render_cells((row.probe, row.family, row.counts, row.worst, result)))
    broken = list_breaches(rows)
    for line in broken:
        show(line)
    return broken


def _render_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def list_breaches(rows: Sequence[AuditRow]) -> list[str]:
    """Return the first breaches of every row, a line each, on one line even where they quote other lines."""
    lines = []
    for row in rows:
        shown = [" ".join(breach.split()) for breach in row.breaches[:MOST_SHOWN]]
        lines += [f"{row.probe} {row.family}: {breach}" for breach in shown]
        if len(row.breaches) > MOST_SHOWN:
            lines.append(f"{row.probe} {row.family}: and {len(row.breaches) - MOST_SHOWN} more")
    return lines
