"""Writes and reads diagnostics.json of `emads diagnose`, and makes its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluation.probes.diagnostics import MIN_CASES, OCCASIONS, Finding, TeamProbe
from evaluation.summary.details import owner_title, stage_title
from evaluation.summary.run_table import change_cell, interval_cell, short
from evaluation.summary.tables import PlainTable
from simulator.export.atomic_files import read_document, write_document

DIAGNOSTICS_FILE = "diagnostics.json"
FINDING_TITLES = {
    "free_rider": "free rider: hardly any offer of it stands",
    "hoarder": "keeps worthwhile parts to itself",
    "false_claims": "states false figures or limits",
    "silent_on_limits": "does not name its own hard limits",
    "ignored": "ReconcileGPT ignores its offers",
    "yes_sayer": "accepts what breaks its own hard limit",
    "objector": "objects to sound decisions",
    "collusion": "the team agrees on bad decisions",
}


def describe_diagnostics(
    stage: str,
    probe: TeamProbe,
    findings: Sequence[Finding],
    swaps: Mapping[str, Any],
    substitutes: Mapping[str, Any],
    num_cases: int,
) -> dict[str, Any]:
    """Everything that one diagnosis found, as JSON values."""
    return {
        "stage": stage,
        "n": num_cases,
        "probe": probe.as_dict(),
        "findings": [asdict(finding) for finding in findings],
        "swaps": swaps,
        "substitutes": substitutes,
    }


def write_diagnostics(run_path: Path, diagnostics: Mapping[str, Any]) -> Path:
    """Write diagnostics.json into the run folder, all or nothing."""
    return write_document(run_path / DIAGNOSTICS_FILE, diagnostics)


def read_diagnostics(run_path: Path) -> dict[str, Any]:
    """Return what `write_diagnostics` stored; empty where nothing is."""
    return read_document(run_path / DIAGNOSTICS_FILE, f"run `emads diagnose {run_path}` again")


def role_rows(diagnostics: Mapping[str, Any]) -> list[list[str]]:
    """Per specialist: offers made, efficient ones, false claims, limits named, value, use, votes."""
    rows = []
    for role, probe in diagnostics["probe"]["roles"].items():
        rows.append(
            [
                owner_title(role),
                _share(probe["offered"]),
                _share(probe["efficient"]),
                _share(probe["false_claims"]),
                _share(probe["limits_named"]),
                change_cell(probe["marginal_value"]),
                _share(probe["used"]),
                _share(probe["accepts_broken"]),
                _share(probe["objects_sound"]),
            ]
        )
    return rows


def finding_rows(diagnostics: Mapping[str, Any]) -> list[list[str]]:
    """(finding, who, numbers): what was found, then what there were too few cases to find."""
    rows = [
        [FINDING_TITLES[one["kind"]], owner_title(one["role"] or "team"), one["evidence"]]
        for one in diagnostics["findings"]
    ]
    unchecked = _list_unchecked(diagnostics)
    if not rows:
        what = "none in what could be checked" if unchecked else "none"
        rows.append([what, "-", f"{diagnostics['n']} cases"])
    return rows + unchecked


def _list_unchecked(diagnostics: Mapping[str, Any]) -> list[list[str]]:
    """Checks that fewer than `MIN_CASES` occasions leave open, with the cases that would do."""
    rows = []
    for kind, field in OCCASIONS.items():
        counts = {role: probe[field]["n"] for role, probe in diagnostics["probe"]["roles"].items()}
        few = {role: count for role, count in counts.items() if count < MIN_CASES}
        if not few:
            continue
        least = min(few.values())
        needed = f"about {-(-diagnostics['n'] * MIN_CASES // least)}" if least else "many more"
        said = f"{least} of {MIN_CASES} occasions in {diagnostics['n']} cases; {needed} cases are needed"
        who = ", ".join(map(owner_title, few))
        rows.append([f"too few cases to tell: {FINDING_TITLES[kind]}", who, said])
    return rows


FINDING_TITLES_ROW = ("finding", "who", "numbers")
ROLE_TITLES_ROW = (
    "role",
    "offers made",
    "efficient",
    "false claims",
    "names own limits",
    "marginal value",
    "offers used",
    "accepts broken limit",
    "objects to sound",
)


def diagnostic_tables(diagnostics: Mapping[str, Any]) -> list[PlainTable]:
    """Roles, swaps, substitutes and findings; none without diagnostics."""
    if not diagnostics:
        return []
    n, swaps = diagnostics["n"], diagnostics["swaps"]
    seats = list(dict.fromkeys(role for cells in diagnostics["substitutes"].values() for role in cells))
    return [
        PlainTable(
            title=f"{diagnostics['stage']} team, role by role ({n} cases, greedy)",
            titles=ROLE_TITLES_ROW,
            rows=tuple(map(tuple, role_rows(diagnostics))),
            caption="marginal value: what the decision's value falls by without the report;\n"
            "offers made: share of the options on which it could gain something;\n"
            "offers used: share of the decisions that should pay its part",
        ),
        PlainTable(
            title=f"Team reward, greedy, {n} cases: specialists of the row, ReconcileGPT of the column",
            titles=("specialists", *swaps),
            rows=tuple(
                (row, *(interval_cell(cells[column]) for column in swaps)) for row, cells in swaps.items()
            ),
            caption="mean [95 % interval]",
        ),
        PlainTable(
            title=f"Change of the team reward when another player takes one seat ({n} cases)",
            titles=("player", *map(owner_title, seats)),
            rows=tuple(
                (stage_title(name), *(change_cell(cells.get(role)) for role in seats))
                for name, cells in diagnostics["substitutes"].items()
            ),
            caption="mean [95 % interval], * apart from 0",
        ),
        PlainTable(
            title="Findings", titles=FINDING_TITLES_ROW, rows=tuple(map(tuple, finding_rows(diagnostics)))
        ),
    ]


def _share(count: Mapping[str, int]) -> str:
    return f"{short(count['hits'] / count['n'])} of {count['n']}" if count["n"] else "-"
