"""Writes the Markdown page of results from run folders; nothing on it is typed by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.pages import write_page
from evaluation.probes.diagnostics import read_diagnostics
from evaluation.report.conclusions import list_findings, write_conclusion
from evaluation.summary.comparison import read_seed_comparison, seed_comparison_tables
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_tables import (
    detail_tables,
    diagnostic_tables,
    role_tables,
    run_table,
    team_tables,
    way_of_play,
)
from evaluation.summary.tables import change_cell, write_section

NOTE = """Intervals are 95 %: percentile bootstrap over scenarios for one run; for several, a hierarchical
bootstrap over seeds and scenarios at the width of the t distribution. Changes are paired on the same
scenarios; p by sign-flip permutation, Holm-adjusted over the roles, or over the team's comparisons."""


def write_results_page(path: Path, runs: Sequence[Path], *, command: str) -> Path:
    """Write the page, all or nothing.

    Raises:
        UserError: a run without summary, or a damaged file.
    """
    return write_page(path, results_page(runs, command=command))


def results_page(runs: Sequence[Path], *, command: str) -> str:
    """Return the page as text.

    Raises:
        UserError: as write_results_page.
    """
    head = f"# Results\n\nMade by `{command}` from run folders; no figure is typed by hand."
    return "\n\n".join([head, *_run_blocks(runs), f"## How to read it\n\n{NOTE}"]) + "\n"


def _run_blocks(runs: Sequence[Path]) -> list[str]:
    summaries = [read_summary(path) for path in runs]
    first, comparison = summaries[0], read_seed_comparison(runs[0])
    findings = [f"**{write_conclusion(first)[0]}**", "\n".join(f"- {one}" for one in list_findings(first))]
    joint = _say_joint_change(comparison, first)
    details, diagnostics = first.get("details", {}), read_diagnostics(runs[0])
    return [
        *([f"**{joint}**"] if joint else findings),
        write_section(run_table([path.name for path in runs], summaries), "##"),
        *(write_section(table, "##") for table in seed_comparison_tables(comparison)),
        f"## Seed {first['seed']} in full",
        *(findings if joint else ()),
        *(write_section(table) for table in (*role_tables(first), *team_tables(first))),
        *(write_section(table) for table in detail_tables(details)),
        *([f"## Team diagnostics ({diagnostics['stage']} team)"] if diagnostics else ()),
        *(write_section(table) for table in diagnostic_tables(diagnostics)),
    ]


def _say_joint_change(comparison: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Return what joint training changed over all seeds, in a sentence; "" where it was not compared."""
    paired = comparison.get("owners", {}).get("team", {}).get("paired", {})
    changes = [
        f"{change_cell(paired[name]).removesuffix(' *')} {way}"
        for name, way in (("marl-grpo", way_of_play(first)), ("marl-grpo_greedy", "greedily"))
        if name in paired
    ]
    if not changes:
        return ""
    seeds = len(comparison["seeds"])
    return f"Over {seeds} seeds joint training changes the team reward by {' and '.join(changes)}."
