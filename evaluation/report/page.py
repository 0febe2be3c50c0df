"""The report of a run: one self-contained HTML file with charts, tables, gates, transcripts and provenance.

No script, no network: the page's own policy forbids both. Everything from the run folder is escaped.
"""

import json
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from evaluation.comparison.seeds import read_seed_comparison, seed_comparison_tables
from evaluation.minutes.episode_in_words import join_words
from evaluation.minutes.stages_side_by_side import (
    SIDE_BY_SIDE_FILE,
    read_side_by_side,
    render_side_by_side_html,
    say_rule,
    say_title,
)
from evaluation.report.charts import (
    CURVE_CHARTS,
    METRICS_FILE,
    Bar,
    Image,
    draw_bars,
    draw_curves,
    find_curves,
    read_metrics,
)
from evaluation.report.conclusions import list_findings, make_cards, write_conclusion
from evaluation.report.detail_charts import (
    category_table,
    difficulty_charts,
    fault_table,
    offer_table,
    part_charts,
    swap_chart,
    team_parts_chart,
)
from evaluation.report.diagnostic_table import diagnostic_tables, read_diagnostics
from evaluation.summary.details import process_table, read_details
from evaluation.summary.joint_table import joint_tables, p_cell
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_table import (
    STAGE_TITLES,
    TEAM_TITLES,
    baseline_table,
    change_cell,
    comparison_title,
    exact_table,
    role_title,
    score_cell,
    score_table,
    team_rows,
    team_table,
    trained_stages,
    way_of_play,
)
from evaluation.summary.tables import PlainTable
from roles.errors import UserError
from scenarios.written.strict_yaml import parse_yaml
from simulator.export.atomic_files import write_atomic
from simulator.reward import TeamRewardWeights

REPORT_FILE = "report.html"
TEMPLATE_FILE = "report_template.html"


def write_report(run_path: Path) -> Path:
    """Write report.html into the run folder and return its path; a missing part says how to make it.

    Raises:
        UserError: no summary.json, or a damaged file; names it and the remedy.
    """
    page = render_report(run_path)
    path = run_path / REPORT_FILE
    write_atomic(path, page)
    return path


def render_report(run_path: Path) -> str:
    """Return the page as text.

    Raises:
        UserError: as write_report.
    """
    summary = read_summary(run_path)
    cases = read_side_by_side(run_path)
    rows, num_bad_lines = read_metrics(run_path)
    conclusion, tone = write_conclusion(summary)
    trained = trained_stages(summary["roles"].values())
    details, diagnostics = read_details(run_path), read_diagnostics(run_path)
    newest = trained[-1] if trained else "untrained"
    template = files("evaluation.report").joinpath(TEMPLATE_FILE).read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        name=run_path.resolve().name,
        conclusion=conclusion,
        tone=tone,
        cards=make_cards(summary),
        findings=list_findings(summary),
        n=_count_scenarios(summary),
        seed=summary["seed"],
        team_chart=_team_chart(summary),
        team_table=team_table(summary),
        joint_tables=joint_tables(summary),
        role_charts=[_role_chart(role, section) for role, section in summary["roles"].items()],
        role_tables=[score_table(summary), baseline_table(summary), exact_table(summary)],
        role_changes=_role_changes(summary),
        seeds_table=_seeds_table(summary.get("seeds", [])),
        curves=_curve_charts(rows, list(summary["roles"])),
        num_bad_lines=num_bad_lines,
        gates=summary["gates"],
        transcripts=[(say_title(case), render_side_by_side_html(case.plays)) for case in cases],
        choice_rule=say_rule(cases[0]) if cases else "",
        shown_stages=join_words([play.label for play in cases[0].plays]) if cases else "",
        has_details=bool(details),
        parts_chart=team_parts_chart(summary["team"], trained, _reward_weights(run_path / "config.yaml")),
        offers=offer_table(details, newest),
        difficulty=difficulty_charts(details),
        parts=part_charts(details),
        process=process_table(details),
        way_of_play=way_of_play(summary),
        faults=fault_table(details, trained),
        by_sector=category_table(details, "sector", newest),
        swaps=swap_chart(diagnostics),
        diagnostics=diagnostic_tables(diagnostics),
        seed_comparison=seed_comparison_tables(read_seed_comparison(run_path)),
        config=_read_text(run_path / "config.yaml"),
        provenance=_provenance(run_path / "provenance.json", summary),
        missing=_missing(run_path),
    )


def _missing(run_path: Path) -> dict[str, Markup]:
    """Say for each absent file what it would show and which command makes it, by section."""
    wanted = {
        "curves": (METRICS_FILE, "the learning curves", f"emads demo {run_path}"),
        "transcripts": (SIDE_BY_SIDE_FILE, "episodes side by side", f"emads evaluate {run_path}"),
        "details": ("details.json", "what each play took", f"emads evaluate {run_path}"),
        "diagnostics": ("diagnostics.json", "team diagnostics", f"emads diagnose {run_path}"),
        "config": ("config.yaml", "the resolved configuration", f"emads demo {run_path}"),
        "provenance": ("provenance.json", "versions, revision and seeds", f"emads demo {run_path}"),
    }
    note = Markup("No <code>{}</code> in this run, so {} cannot be shown. Make it with <code>{}</code>.")
    return {
        section: note.format(name, what, command)
        for section, (name, what, command) in wanted.items()
        if not (run_path / name).is_file()
    }


def _reward_weights(path: Path) -> dict[str, float]:
    """Return the team reward's weights of the run's config, the defaults where it does not say."""
    weights = TeamRewardWeights().model_dump()
    try:
        given = parse_yaml(path.read_text(encoding="utf-8"), str(path))["team_reward"]
        return {name: float(given.get(name, value)) for name, value in weights.items()}
    except (OSError, UserError, KeyError, TypeError, ValueError, AttributeError):
        return weights


def _team_chart(summary: Mapping[str, Any]) -> Image | None:
    team = summary["team"]
    bars = [
        _bar(TEAM_TITLES[stage].replace(", ", ",\n"), stage, row)
        for stage, row in team_rows(team)
        if stage != "oracle"
    ]
    if not bars:
        return None
    axis = f"team reward R (n = {_least_n(team)})"
    return draw_bars("Team reward by stage", bars, axis=axis, ceiling=_ceiling(team), width_in=5.4)


def _role_chart(role: str, section: Mapping[str, Any]) -> Image:
    stages = [stage for stage in STAGE_TITLES if stage in section and stage != "oracle"]
    bars = [_bar(STAGE_TITLES[stage], stage, section[stage]) for stage in stages]
    axis = f"verified reward, 0 to 1 (n = {_least_n(section)})"
    return draw_bars(role_title(role), bars, axis=axis, ceiling=_ceiling(section), width_in=3.5)


def _bar(label: str, stage: str, row: Mapping[str, Any]) -> Bar:
    return Bar(
        label=label, stage=stage, mean=row["mean"], low=row["low"], high=row["high"], greedy=row["greedy"]
    )


def _ceiling(section: Mapping[str, Any]) -> float | None:
    return section["oracle"]["mean"] if "oracle" in section else None


def _least_n(section: Mapping[str, Any]) -> int:
    return min((row["n"] for stage, row in section.items() if stage != "paired"), default=0)


def _count_scenarios(summary: Mapping[str, Any]) -> str:
    """ "400 per role, 600 for the team", the smallest n of each."""
    role_n = min((_least_n(section) for section in summary["roles"].values()), default=0)
    return f"{role_n} per role, {_least_n(summary['team'])} for the team"


def _curve_charts(rows: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> list[Image]:
    found = ((panel, find_curves(rows, panel, roles)) for panel in CURVE_CHARTS)
    return [
        draw_curves(panel.title, [(role_title(curve.name), curve) for curve in curves], unit=panel.unit)
        for panel, curves in found
        if curves
    ]


def _role_changes(summary: Mapping[str, Any]) -> PlainTable:
    sections = summary["roles"]
    names = dict.fromkeys(name for section in sections.values() for name in section["paired"])
    rows = (
        (comparison_title(name), *(_change(section["paired"].get(name)) for section in sections.values()))
        for name in names
    )
    return PlainTable(
        title="Paired changes (* apart from 0, p by permutation, Holm-adjusted over roles)",
        titles=("paired change", *map(role_title, sections)),
        rows=tuple(rows),
    )


def _change(change: Mapping[str, float] | None) -> str:
    if change is None or "p" not in change:
        return change_cell(change)
    return f"{change_cell(change)}\np {p_cell(change['p'])}"


def _seeds_table(seeds: Sequence[Mapping[str, Any]]) -> PlainTable:
    rows = (
        (
            str(one["seed"]),
            *(score_cell(one["team"][stage]) if stage in one["team"] else "-" for stage in ("grpo", "marl")),
            change_cell(one["team"].get("paired", {}).get("marl-grpo")),
            f"{sum(gate['passed'] is True for gate in one['gates'])} of {len(one['gates'])}",
        )
        for one in seeds
    )
    return PlainTable(
        title="Every seed (the rest of this page is the first one)",
        titles=("seed", "team GRPO", "team MARL", "paired change", "gates passed"),
        rows=tuple(rows),
    )


def _provenance(path: Path, summary: Mapping[str, Any]) -> PlainTable:
    rows = {"seed": summary["seed"], **{f"version {k}": v for k, v in summary["versions"].items()}}
    if path.is_file():
        try:
            rows = dict(_leaves(json.loads(path.read_text(encoding="utf-8")), ""))
        except ValueError:
            rows["provenance.json"] = "not readable as JSON"
    shown = {name: _shown(name, value) for name, value in rows.items() if value is not None}
    return PlainTable(title="Provenance", titles=("what", "value"), rows=tuple(shown.items()))


def _leaves(tree: Any, prefix: str) -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{prefix} {key}".strip())]
    return [(prefix, tree)]


def _shown(name: str, value: Any) -> str:
    if name == "created_s" and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
    return value if isinstance(value, str) else json.dumps(value)


def _read_text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
