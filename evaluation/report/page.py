"""Pages about runs: the report of one, with charts and transcripts, and the Markdown page of results.

The report is one self-contained HTML file. No script, no network: the page's own policy forbids both.
Everything from the run folder is escaped.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from evaluation.minutes.transcript import load_case, render_side_by_side_html
from evaluation.minutes.words import join_words
from evaluation.pages import load_template, write_page
from evaluation.probes.diagnostics import DIAGNOSTICS_FILE, read_diagnostics
from evaluation.report.charts import (
    METRICS_FILE,
    curve_charts,
    read_metrics,
    role_chart,
    team_chart,
    words_chart,
)
from evaluation.report.conclusions import list_findings, make_cards, write_conclusion
from evaluation.summary.comparison import read_seed_comparison, seed_comparison_tables
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_tables import (
    detail_tables,
    diagnostic_tables,
    least_n,
    role_tables,
    run_table,
    team_tables,
    way_of_play,
)
from evaluation.summary.tables import change_cell, write_section

REPORT_FILE = "report.html"


def write_report(run_path: Path) -> Path:
    """Write report.html into the run folder and return its path; a missing part says how to make it.

    Raises:
        UserError: no summary.json, or a damaged file; names it and the remedy.
    """
    return write_page(run_path / REPORT_FILE, render_report(run_path))


def render_report(run_path: Path) -> str:
    """Return the page as text.

    Raises:
        UserError: as write_report.
    """
    summary = read_summary(run_path)
    cases = [load_case(one) for one in summary.get("cases", ())]
    rows = read_metrics(run_path)
    conclusion, tone = write_conclusion(summary)
    roles, team = summary["roles"], summary["team"]
    details, diagnostics = summary.get("details", {}), read_diagnostics(run_path)
    num_role = min(map(least_n, roles.values()), default=0)
    seeds = summary.get("seeds", [])
    return load_template("report.html").render(
        name=run_path.resolve().name,
        conclusion=conclusion,
        tone=tone,
        cards=make_cards(summary),
        findings=list_findings(summary),
        n=f"{num_role} per role, {least_n(team)} for the team",
        seed=summary["seed"],
        way_of_play=way_of_play(summary),
        team_chart=team_chart(team),
        team_tables=team_tables(summary),
        words_chart=words_chart(details),
        role_charts=[role_chart(role, section) for role, section in roles.items()],
        role_tables=role_tables(summary),
        runs=run_table([f"seed {one['seed']}" for one in seeds], seeds),
        seed_comparison=seed_comparison_tables(read_seed_comparison(run_path)),
        curves=curve_charts(rows, list(roles)),
        gates=summary["gates"],
        transcripts=[(case.title, render_side_by_side_html(case.plays)) for case in cases],
        choice_rule=cases[0].rule if cases else "",
        shown_stages=join_words([play.label for play in cases[0].plays]) if cases else "",
        plays=detail_tables(details),
        diagnostics=diagnostic_tables(diagnostics),
        config=_read_text(run_path / "config.yaml"),
        provenance=_list_provenance(run_path / "provenance.json", summary),
        missing=_list_missing(run_path),
    )


def _list_missing(run_path: Path) -> dict[str, Markup]:
    """Say for each absent file what it would show and which command makes it, by section."""
    wanted = {
        "curves": (METRICS_FILE, "the learning curves", "demo"),
        "diagnostics": (DIAGNOSTICS_FILE, "team diagnostics", "diagnose"),
        "config": ("config.yaml", "the resolved configuration", "demo"),
        "provenance": ("provenance.json", "versions, revision and seeds", "demo"),
    }
    note = Markup(
        "No <code>{}</code> in this run, so {} cannot be shown. Make it with <code>emads {} {}</code>."
    )
    return {
        section: Markup(note).format(name, what, verb, run_path)
        for section, (name, what, verb) in wanted.items()
        if not (run_path / name).is_file()
    }


def _list_provenance(path: Path, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) of all that provenance.json says; seed and versions of the summary without it."""
    found = {"seed": summary["seed"], **{f"version {k}": v for k, v in summary["versions"].items()}}
    if path.is_file():
        try:
            found = dict(_list_leaves(json.loads(path.read_text(encoding="utf-8")), ""))
        except ValueError:
            found["provenance.json"] = "not readable as JSON"
    return [(name, _say_value(name, value)) for name, value in found.items() if value is not None]


def _list_leaves(tree: Any, prefix: str) -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [
            leaf for key, value in tree.items() for leaf in _list_leaves(value, f"{prefix} {key}".strip())
        ]
    return [(prefix, tree)]


def _say_value(name: str, value: Any) -> str:
    if name == "created_s" and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
    return value if isinstance(value, str) else json.dumps(value)


def _read_text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def write_results_page(path: Path, runs: Sequence[Path], *, command: str) -> Path:
    """Write the Markdown page of results, all or nothing; nothing on it is typed by hand.

    Raises:
        UserError: a run without summary, or a damaged file.
    """
    return write_page(path, results_page(runs, command=command))


def results_page(runs: Sequence[Path], *, command: str) -> str:
    """Return the Markdown page: all runs, then the first one in full.

    Raises:
        UserError: as write_results_page.
    """
    summaries = [read_summary(path) for path in runs]
    first, diagnostics = summaries[0], read_diagnostics(runs[0])
    comparison = read_seed_comparison(runs[0])
    page = load_template("results.md").render(
        command=command,
        joint=_say_joint_change(comparison, first),
        conclusion=write_conclusion(first)[0],
        found=list_findings(first),
        runs=run_table([path.name for path in runs], summaries),
        seeds=seed_comparison_tables(comparison),
        seed=first["seed"],
        tables=[*role_tables(first), *team_tables(first), *detail_tables(first.get("details", {}))],
        diagnostics=diagnostics,
        diagnostic_tables=diagnostic_tables(diagnostics),
        write_section=write_section,
    )
    return page.rstrip() + "\n"


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
