"""Writes the Markdown page of results from run folders and ablations; nothing on it is typed by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.comparison.ablations import MARKDOWN_FILE
from evaluation.comparison.seeds import read_seed_comparison, seed_comparison_tables
from evaluation.report.conclusions import list_findings, write_conclusion
from evaluation.report.detail_charts import category_table, fault_table
from evaluation.report.diagnostic_table import diagnostic_tables, read_diagnostics
from evaluation.summary.details import process_table, read_details
from evaluation.summary.joint_table import joint_tables, seeds_joint_table
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_table import STAGE_TITLES, change_cell, markdown, trained_stages, way_of_play
from evaluation.summary.tables import PlainTable, write_markdown
from roles.errors import UserError
from simulator.export.atomic_files import write_atomic

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
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, results_page(runs, ablations=ablations, command=command))
    return path


def results_page(runs: Sequence[Path], *, ablations: Path | None, command: str) -> str:
    """Return the page as text.

    Raises:
        UserError: as write_results_page.
    """
    blocks = [f"# Results\n\nMade by `{command}` from run folders; no figure is typed by hand."]
    if runs:
        blocks += _run_blocks(runs)
    if ablations is not None:
        blocks += _ablation_blocks(ablations)
    blocks.append(f"## How to read it\n\n{NOTE}")
    return "\n\n".join(blocks) + "\n"


def _write_joint_change(comparison: Mapping[str, Any], first: Mapping[str, Any]) -> str:
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


def _run_blocks(runs: Sequence[Path]) -> list[str]:
    first = read_summary(runs[0])
    comparison = read_seed_comparison(runs[0])
    findings = [f"**{write_conclusion(first)[0]}**", "\n".join(f"- {one}" for one in list_findings(first))]
    joint = _write_joint_change(comparison, first)
    blocks = [f"**{joint}**"] if joint else findings
    blocks += ["## Runs", write_markdown(_run_table(runs))]
    compared = seed_comparison_tables(comparison)
    for place, table in enumerate(compared):
        blocks += [*([f"## {table.title}"] if place == 0 else []), write_markdown(table)]
    if compared:
        blocks.append(f"{compared[0].caption}.")
    by_seed = seeds_joint_table([read_summary(path) for path in runs])
    if by_seed.rows:
        blocks += [f"## {by_seed.title}", write_markdown(by_seed), f"{by_seed.caption}."]
    blocks += [f"## Seed {first['seed']} in full", *(findings if joint else []), markdown(first).rstrip()]
    for table in joint_tables(first):
        blocks += [f"### {table.title}", write_markdown(table), f"{table.caption}."]
    details, diagnostics = read_details(runs[0]), read_diagnostics(runs[0])
    trained = trained_stages(first["roles"].values())
    if details:
        faults = fault_table(details, trained)
        categories = [category_table(details, name, trained[-1]) for name in ("difficulty", "sector")]
        blocks += ["## Steps, tokens, tools and format", f"Means per play {way_of_play(first)}."]
        blocks += [write_markdown(process_table(details)), f"## {faults.title}", write_markdown(faults)]
        blocks += [f"## Reward by difficulty and sector, {STAGE_TITLES[trained[-1]]}"]
        blocks += map(write_markdown, categories)
    if diagnostics:
        blocks.append(f"## Team diagnostics ({diagnostics['stage']} team)")
        for table in diagnostic_tables(diagnostics):
            blocks += [f"### {table.title}", write_markdown(table)]
    return blocks


def _run_table(runs: Sequence[Path]) -> PlainTable:
    rows = []
    for path in runs:
        summary = read_summary(path)
        passed = sum(gate["passed"] is True for gate in summary["gates"])
        red = ", ".join(gate["name"] for gate in summary["gates"] if gate["passed"] is False) or "none"
        counts = [row["n"] for row in summary["team"].values() if isinstance(row, dict) and "n" in row]
        rows.append(
            (
                path.name,
                str(summary["seed"]),
                f"{summary['wall_s'] / 60:.1f} min",
                str(min(counts, default=0)),
                f"{passed} of {len(summary['gates'])}",
                red,
            )
        )
    titles = ("run", "seed", "wall time", "team cases", "gates passed", "red")
    return PlainTable(title="Runs", titles=titles, rows=tuple(rows))


def _ablation_blocks(folder: Path) -> list[str]:
    pages = sorted(folder.glob(f"*/{MARKDOWN_FILE}"))
    if not pages:
        raise UserError(f"no ablation in {folder}; make one with `emads ablate --config FILE --out {folder}`")
    return ["## Ablations", *(page.read_text(encoding="utf-8").rstrip() for page in pages)]
