"""Writes the Markdown page of results from run folders and ablations; nothing on it is typed by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.comparison.ablations import MARKDOWN_FILE
from evaluation.comparison.seeds import read_seed_comparison, seed_comparison_tables
from evaluation.pages import write_page
from evaluation.probes.diagnostics import read_diagnostics
from evaluation.report.conclusions import list_findings, write_conclusion
from evaluation.summary.plays import read_details
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_tables import (
    category_table,
    diagnostic_tables,
    fault_table,
    joint_tables,
    markdown,
    process_table,
    seeds_joint_table,
    way_of_play,
)
from evaluation.summary.tables import PlainTable, change_cell, stage_title, trained_stages, write_markdown
from roles.errors import UserError

NOTE = """Intervals are 95 %: percentile bootstrap over scenarios for one run; for several, a hierarchical
bootstrap over seeds and scenarios at the width of the t distribution. Changes are paired on the same
scenarios; p by sign-flip permutation, Holm-adjusted over the roles, or over the team's comparisons."""


def write_results_page(
    path: Path, runs: Sequence[Path], *, ablations: Path | None = None, command: str
) -> Path:
    """Write the page, all or nothing.

    Raises:
        UserError: a run without summary, a damaged file, or a folder without ablations.
    """
    return write_page(path, results_page(runs, ablations=ablations, command=command))


def results_page(runs: Sequence[Path], *, ablations: Path | None, command: str) -> str:
    """Return the page as text.

    Raises:
        UserError: as write_results_page.
    """
    blocks = [f"# Results\n\nMade by `{command}` from run folders; no figure is typed by hand."]
    if runs:
        blocks += _run_blocks(runs)
    if ablations is not None:
        pages = sorted(ablations.glob(f"*/{MARKDOWN_FILE}"))
        if not pages:
            make = f"make one with `emads ablate --config FILE --out {ablations}`"
            raise UserError(f"no ablation in {ablations}; {make}")
        blocks += ["## Ablations", *(page.read_text(encoding="utf-8").rstrip() for page in pages)]
    blocks.append(f"## How to read it\n\n{NOTE}")
    return "\n\n".join(blocks) + "\n"


def _run_blocks(runs: Sequence[Path]) -> list[str]:
    summaries = [read_summary(path) for path in runs]
    first, comparison = summaries[0], read_seed_comparison(runs[0])
    findings = [f"**{write_conclusion(first)[0]}**", "\n".join(f"- {one}" for one in list_findings(first))]
    joint = _say_joint_change(comparison, first)
    blocks = [f"**{joint}**"] if joint else findings
    blocks += ["## Runs", write_markdown(_make_run_table(runs, summaries))]
    compared = seed_comparison_tables(comparison)
    if compared:
        blocks += [f"## {compared[0].title}", *map(write_markdown, compared), f"{compared[0].caption}."]
    by_seed = seeds_joint_table(summaries)
    if by_seed.rows:
        blocks += _table_blocks(by_seed, "##")
    blocks += [f"## Seed {first['seed']} in full", *(findings if joint else []), markdown(first).rstrip()]
    for table in joint_tables(first):
        blocks += _table_blocks(table, "###")
    details, diagnostics = read_details(runs[0]), read_diagnostics(runs[0])
    if details:
        trained = trained_stages(first["roles"].values())
        faults = fault_table(details, trained)
        categories = [category_table(details, name, trained[-1]) for name in ("difficulty", "sector")]
        blocks += ["## Steps, tokens, tools and format", f"Means per play {way_of_play(first)}."]
        blocks += [write_markdown(process_table(details)), f"## {faults.title}", write_markdown(faults)]
        blocks += [f"## Reward by difficulty and sector, {stage_title(trained[-1])}"]
        blocks += map(write_markdown, categories)
    if diagnostics:
        blocks.append(f"## Team diagnostics ({diagnostics['stage']} team)")
        for table in diagnostic_tables(diagnostics):
            blocks += [f"### {table.title}", write_markdown(table)]
    return blocks


def _table_blocks(table: PlainTable, heading: str) -> list[str]:
    return [f"{heading} {table.title}", write_markdown(table), f"{table.caption}."]


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


def _make_run_table(runs: Sequence[Path], summaries: Sequence[Mapping[str, Any]]) -> PlainTable:
    rows = []
    for path, summary in zip(runs, summaries, strict=True):
        passed = sum(gate["passed"] is True for gate in summary["gates"])
        red = ", ".join(gate["name"] for gate in summary["gates"] if gate["passed"] is False) or "none"
        counts = [row["n"] for row in summary["team"].values() if isinstance(row, dict) and "n" in row]
        minutes = f"{summary['wall_s'] / 60:.1f} min"
        gates = f"{passed} of {len(summary['gates'])}"
        rows.append((path.name, str(summary["seed"]), minutes, str(min(counts, default=0)), gates, red))
    titles = ("run", "seed", "wall time", "team cases", "gates passed", "red")
    return PlainTable("Runs", titles, list(rows))
