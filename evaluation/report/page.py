"""Pages about runs: the report of one, with charts and transcripts, and the Markdown page of results.

The report is one self-contained HTML file. No script, no network: the page's own policy forbids both.
Everything from the run folder is escaped.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evaluation.minutes.transcript import load_case, render_side_by_side_html
from evaluation.minutes.words import join_words
from evaluation.pages import load_template, write_page
from evaluation.probes.diagnostics import read_diagnostics
from evaluation.report import charts
from evaluation.summary import run_tables
from evaluation.summary.comparison import read_seed_comparison, seed_comparison_tables
from evaluation.summary.gates import failed_gates, unjudged_gates
from evaluation.summary.run_summary import read_summary
from evaluation.summary.run_tables import way_of_play
from evaluation.summary.tables import TEAM_TITLES, change_cell, percent, role_title, write_section

Tone = Literal["good", "bad", "neutral"]
Summary = Mapping[str, Any]
Change = Mapping[str, float]
SINGLES = ("single", "single_sft", "single_grpo")  # stages of a player that sees every brief


class Card(NamedTuple):
    """One number with its meaning. Example: Card("9 of 9", "gates passed", "none failed", "good")"""

    value: str
    label: str
    note: str
    tone: Tone


class _RoleChanges(NamedTuple):
    """The roles' paired changes of one comparison."""

    share: str  # of the roles that are better: "4 of 5"
    mean: float
    tone: Tone
    summary: str  # "1 of 5 roles better, none worse, mean +0.010, lowest Cost, +0.004 [-0.007, +0.015]"


def _role_changes(summary: Summary, name: str) -> _RoleChanges | None:
    """Return the changes of one comparison; None where it was not made."""
    sections = {role: section.get("paired", {}) for role, section in summary["roles"].items()}
    found: dict[str, Change] = {role: one[name] for role, one in sections.items() if name in one}
    if not found:
        return None
    num_better = sum(change["low"] > 0 for change in found.values())
    worse = ", ".join(role_title(role) for role, change in found.items() if change["high"] < 0) or "none"
    mean = statistics.fmean(change["mean"] for change in found.values())
    lowest = min(found, key=lambda role: found[role]["mean"])
    share = f"{num_better} of {len(found)}"
    said = f"{share} roles better, {worse} worse, mean {mean:+.3f}, lowest {role_title(lowest)},"
    tone: Tone = "good" if num_better == len(found) else "neutral"
    return _RoleChanges(share, mean, tone, f"{said} {_said(found[lowest])}")


def _team_change(summary: Summary, name: str) -> Change | None:
    change: Change | None = summary["team"].get("paired", {}).get(name)
    return change


def _tone(change: Change) -> Tone:
    if change["low"] > 0:
        return "good"
    return "bad" if change["high"] < 0 else "neutral"


def _said(change: Change) -> str:
    return f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"


def write_conclusion(summary: Summary) -> tuple[str, Tone]:
    """Return the verdict in one sentence, by the furthest stage that was run."""
    team, change = summary["team"], _team_change(summary, "marl-grpo")
    if change is not None:
        scores = f"team reward {team['grpo']['mean']:.2f} to {team['marl']['mean']:.2f}"
        tone = _tone(change)
        words = {"good": "made the team better", "bad": "made the team worse"}
        return f"Joint training {words.get(tone, 'made no measurable difference')}: {scores}.", tone
    for name, verb in (("grpo-sft", "GRPO"), ("sft-untrained", "SFT")):
        if changes := _role_changes(summary, name):
            return f"{verb} made {changes.share} roles better.", changes.tone
    return "Nothing was trained in this run: baselines only.", "neutral"


def make_cards(summary: Summary) -> list[Card]:
    """Return the numbers that a reader wants first; a stage that was not run has no card."""
    cards = []
    if gain := _team_change(summary, "marl-grpo"):
        note = f"95 % interval {gain['low']:+.3f} to {gain['high']:+.3f}"
        what = "team reward, change by joint training"
        cards.append(Card(f"{gain['mean']:+.3f}", what, note, _tone(gain)))
    stage, singles = _find_singles(summary)
    if stage is not None and singles:
        best = max(singles, key=lambda name: summary["team"][name]["mean"])
        value = f"{summary['team'][stage]['mean']:.2f} / {summary['team'][best]['mean']:.2f}"
        what = "team reward of the team / of one player that sees all facts"
        cards.append(Card(value, what, f"{TEAM_TITLES[stage]} / {TEAM_TITLES[best]}", "neutral"))
    for name, label in (
        ("marl-heuristic", "roles above their rule of thumb"),
        ("grpo-sft", "roles better after GRPO"),
        ("sft-untrained", "roles better after SFT"),
    ):
        if changes := _role_changes(summary, name):
            cards.append(Card(changes.share, label, f"mean change {changes.mean:+.3f}", changes.tone))
    seeds = summary.get("seeds") or [summary]
    failed, unjudged = failed_gates(summary), unjudged_gates(summary)
    num_gates = sum(len(one["gates"]) for one in seeds) - len(unjudged)
    note = f"failed: {', '.join(failed)}" if failed else "none failed"
    if unjudged:
        note += f"; {len(unjudged)} not judged: too few scenarios"
    label = "gates passed" if len(seeds) == 1 else f"gates passed over {len(seeds)} seeds"
    tone: Tone = "bad" if failed else "neutral" if unjudged else "good"
    cards.append(Card(f"{num_gates - len(failed)} of {num_gates}", label, note, tone))
    return [*cards, Card(f"{summary['wall_s'] / 60:.1f} min", "wall time, all stages", "", "neutral")]


# (comparison, what it compares); each becomes a sentence where it was made
ROLE_QUESTIONS = (
    ("sft-untrained", "SFT against the untrained model"),
    ("marl-heuristic", "After joint training, against the rule of thumb of the family"),
    ("grpo-sft", "GRPO on the verified reward against SFT"),
    ("grpo-sft_more", "GRPO against SFT on as many transcripts"),
    ("marl-grpo", "Joint training, each role's own score"),
)
NO_CONTROL = "The control (SFT on as many transcripts as GRPO) was not run: more SFT might do as well."


def list_findings(summary: Summary) -> list[str]:
    """State the findings, one sentence each; controls and losses included."""
    found = {name: changes for name, _ in ROLE_QUESTIONS if (changes := _role_changes(summary, name))}
    said = [f"{what}: {found[name].summary}." for name, what in ROLE_QUESTIONS if name in found]
    if "grpo-sft" in found and "grpo-sft_more" not in found:
        said.append(NO_CONTROL)
    return [*said, *_say_team(summary), *_say_singles(summary), *_say_agreement(summary)]


def _say_team(summary: Summary) -> list[str]:
    sampled, greedy = (_team_change(summary, name) for name in ("marl-grpo", "marl-grpo_greedy"))
    if sampled is None:
        return []
    also = f" and by {_said(greedy)} greedy" if greedy else ""
    return [f"On joint episodes the team reward moves by {_said(sampled)} {way_of_play(summary)}{also}."]


def _find_singles(summary: Summary) -> tuple[str | None, list[str]]:
    """Return the team's last stage, and the players that see every seat's brief at once."""
    team = summary["team"]
    stage = next((name for name in ("marl", "grpo", "sft") if name in team), None)
    return stage, [name for name in SINGLES if name in team]


def _say_singles(summary: Summary) -> list[str]:
    """Set the trained team beside the players that see every seat's brief at once."""
    team, (stage, singles) = summary["team"], _find_singles(summary)
    if stage is None or not singles:
        return []
    finding = f"The {TEAM_TITLES[stage]} team, in which no seat sees it all, earns {team[stage]['mean']:.2f}"
    for name in singles:
        change = _team_change(summary, f"{stage}-{name}")
        finding += f"; {TEAM_TITLES[name]}: {team[name]['mean']:.2f}"
        finding += f" (the team against it: {_said(change)})" if change else ""
    return [f"{finding}."]


def _say_agreement(summary: Summary) -> list[str]:
    before, after = (summary["team"].get(stage, {}).get("agreement_when_wrong") for stage in ("grpo", "marl"))
    if before is None or after is None:
        return []
    return [
        f"Of decisions that are worth nothing, specialists accept {percent(before)} before joint training "
        f"and {percent(after)} after it."
    ]


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
    summary, config = read_summary(run_path), run_path / "config.yaml"
    conclusion, tone = write_conclusion(summary)
    num_role = min(map(run_tables.least_n, summary["roles"].values()), default=0)
    seeds = summary.get("seeds", [])
    return load_template("report.html").render(
        run_path=run_path,
        name=run_path.resolve().name,
        files={path.name for path in run_path.iterdir() if path.is_file()},
        summary=summary,
        details=summary.get("details", {}),
        conclusion=conclusion,
        tone=tone,
        cards=make_cards(summary),
        findings=list_findings(summary),
        n=f"{num_role} per role, {run_tables.least_n(summary['team'])} for the team",
        runs=run_tables.run_table([f"seed {one['seed']}" for one in seeds], seeds),
        seed_comparison=seed_comparison_tables(read_seed_comparison(run_path)),
        cases=[load_case(one) for one in summary.get("cases", ())],
        diagnostics=read_diagnostics(run_path),
        config=config.read_text(encoding="utf-8", errors="replace") if config.is_file() else "",
        provenance=_list_provenance(run_path / "provenance.json", summary),
        tables=run_tables,
        charts=charts,
        join_words=join_words,
        render_side_by_side=render_side_by_side_html,
    )


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
    first, comparison = summaries[0], read_seed_comparison(runs[0])
    page = load_template("results.md").render(
        command=command,
        joint=_say_joint_change(comparison, first),
        conclusion=write_conclusion(first)[0],
        found=list_findings(first),
        runs=run_tables.run_table([path.name for path in runs], summaries),
        seeds=seed_comparison_tables(comparison),
        first=first,
        tables=run_tables,
        diagnostics=read_diagnostics(runs[0]),
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
