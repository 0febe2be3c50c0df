"""Charts of the report as self-contained SVG images: bars with intervals and curves.

Colours are those of the pages (`evaluation.pages.PALETTE`); lines also differ by dash and carry their names.
Every axis has a label with its unit and n, every image its numbers as alternative text.
"""

import base64
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from evaluation.pages import PALETTE
from evaluation.scoring.outcomes import TEAM
from evaluation.summary.run_summary import is_on_front
from evaluation.summary.run_tables import least_n, list_teams
from evaluation.summary.tables import (
    STAGE_TITLES,
    TEAM_TITLES,
    list_stages,
    role_title,
    stage_title,
    team_title,
)

INK, MUTED, GRID = (PALETTE[name] for name in ("ink", "muted", "line"))
LINE_STYLES = (  # of roles; each colour goes with another dash
    (PALETTE["grpo"], "-"),
    (PALETTE["marl"], "--"),
    (PALETTE["corrections"], "-."),
    (PALETTE["dpo"], (0, (5, 1))),
    (PALETTE["ppo"], (0, (2, 1))),
    (PALETTE["sft"], (0, (6, 2, 1, 2, 1, 2))),
    (INK, ":"),
)
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "emads",
    "text.parse_math": False,
    "svg.fonttype": "none",  # text stays text: small files, sharp at any size
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A chart for an <img> element."""

    uri: str  # data:image/svg+xml;base64,...
    alt: str
    title: str


@contextmanager
def _draw(width_in: float, height_in: float, *, grid: str = "both") -> Iterator[tuple[Figure, Axes]]:
    """Axes in the report's style; `grid`: "x", "both", or "" for none."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        axes = figure.add_subplot()
        axes.tick_params(length=0)
        axes.set_axisbelow(True)
        if grid == "x":
            axes.spines["left"].set_visible(False)
            axes.grid(axis="x", color=GRID, linewidth=0.7)
        elif grid:
            axes.grid(color=GRID, linewidth=0.7)
        yield figure, axes


def as_uri(figure: Figure) -> str:
    """Return the figure as a data URI of an SVG; the same figure gives the same text."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def draw_bars(
    title: str, section: Mapping[str, Any], labels: Mapping[str, str], *, axis: str, width_in: float
) -> Image:
    """Horizontal bars with 95 % intervals, the greedy score as a diamond, the oracle's as a dashed line.

    `section`: stage -> mean, low, high, greedy; `labels`: shown stage -> its name.
    """
    row_in = 0.36 if any("\n" in label for label in labels.values()) else 0.29
    rows = [section[stage] for stage in labels]
    with _draw(width_in, 0.62 + row_in * len(rows), grid="x") as (figure, axes):
        right = max([1.0, *(row["high"] for row in rows)])
        for y, (stage, row) in enumerate(zip(labels, rows, strict=True)):
            _draw_bar(axes, y, stage, row, right)
        axes.set_yticks(range(len(rows)), list(labels.values()), linespacing=0.95)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(min([0.0, *(row["low"] for row in rows)]), right * 1.22)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.set_xlabel(axis)
        if "oracle" in section:  # under the bars
            ceiling = section["oracle"]["mean"]
            axes.axvline(ceiling, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9)
    numbers = "; ".join(
        f"{' '.join(label.split())} {row['mean']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        for label, row in zip(labels.values(), rows, strict=True)
    )
    oracle = f"; oracle {section['oracle']['mean']:.2f}" if "oracle" in section else ""
    return Image(uri=as_uri(figure), alt=f"Bar chart, {title}, {axis}: {numbers}{oracle}.", title=title)


def _draw_bar(axes: Axes, y: int, stage: str, row: Mapping[str, Any], right: float) -> None:
    axes.barh(y, row["mean"], height=0.62, color=PALETTE.get(stage, PALETTE["baseline"]))
    axes.plot([row["low"], row["high"]], [y, y], color=INK, linewidth=1.3, solid_capstyle="butt")
    for end in (row["low"], row["high"]):
        axes.plot([end, end], [y - 0.14, y + 0.14], color=INK, linewidth=1.3)
    if row["greedy"] is not None:
        axes.plot(row["greedy"], y, marker="D", markersize=4.6, color="white", markeredgecolor=INK, zorder=5)
    weight = "bold" if stage in PALETTE and stage != "untrained" else "normal"
    number = f"{row['mean']:.2f}".replace("-", "\N{MINUS SIGN}")
    axes.text(right * 1.21, y, number, va="center", ha="right", fontsize=9, fontweight=weight)


def team_chart(team: Mapping[str, Any]) -> Image | None:
    """Draw the team reward of every stage, baseline and control; None without any."""
    stages = list_stages([team], TEAM_TITLES)
    labels = {stage: team_title(stage).replace(", ", ",\n") for stage in stages if stage != "oracle"}
    if not labels:
        return None
    axis = f"team reward R (n = {least_n(team)})"
    return draw_bars("Team reward by stage", team, labels, axis=axis, width_in=5.4)


def words_chart(details: Mapping[str, Any]) -> Image | None:
    """Draw every trained team's reward over its largest context; None of a run without a team.

    The mark of a team on the front of reward, context, tokens in sequence and tokens of all is filled.
    """
    found = list_teams(details)
    if not found:
        return None
    title, said = "Team reward over the largest context", []
    with _draw(5.4, 2.6) as (figure, axes):
        for stage, one in found.items():
            color = PALETTE.get(stage, PALETTE["baseline"])
            is_best = is_on_front(one, found.values())
            place = (one["context"], one["reward"])
            axes.plot(*place, "o", color=color, markerfacecolor=color if is_best else "white")
            words = f"{team_title(stage)}, {one['sequential']:.0f} in sequence, {one['tokens']:.0f} in all"
            axes.annotate(words, place, (6, 3), textcoords="offset points", fontsize=8)
            said.append(f"{words}: {one['reward']:.2f} at {one['context']:.0f}")
        axes.set_xlim(0, 2.2 * max(one["context"] for one in found.values()))  # room for names at the right
        axes.set_xlabel("largest context of one agent, tokens")
        axes.set_ylabel("team reward R")
    return Image(uri=as_uri(figure), alt=f"Scatter chart, {title}: {'; '.join(said)}.", title=title)


def role_chart(role: str, section: Mapping[str, Any]) -> Image:
    """Draw a role's own reward at every stage, baseline and control."""
    labels = {one: stage_title(one) for one in list_stages([section], STAGE_TITLES) if one != "oracle"}
    axis = f"verified reward, 0 to 1 (n = {least_n(section)})"
    return draw_bars(role_title(role), section, labels, axis=axis, width_in=3.5)


METRICS_FILE = "metrics.jsonl"


class Curve(NamedTuple):
    """One line of a chart.

    Example: Curve("cto", steps=(0, 20, 40), values=(3.1, 0.9, 0.4))
    """

    name: str  # role, or "team"
    steps: tuple[int, ...]
    values: tuple[float, ...]


class CurveChart(NamedTuple):
    """One chart: what it shows and where its numbers stand in the metrics.

    Example: CurveChart("SFT: loss", "sft", "loss", "loss (nats per token)")
    """

    title: str
    stage: str  # "sft" holds the stages "sft/cto", "sft/coo", ...
    metric: str  # logged as METRIC/ROLE, or as METRIC of the weights that the stage names
    unit: str


CURVE_CHARTS = (
    CurveChart("SFT: loss", "sft", "loss", "loss (nats per token)"),
    CurveChart("GRPO: verified reward", "grpo", "verified", "verified reward (0 to 1)"),
    CurveChart("MARL: team reward", "marl", "team_reward", "team reward R"),
    CurveChart("GRPO: entropy", "grpo", "entropy", "nats per token"),
    CurveChart("GRPO: KL to the SFT policy", "grpo", "kl_to_start", "nats per token"),
    CurveChart("MARL: own score by role", "marl", "own_score", "own verified reward (0 to 1)"),
    CurveChart("MARL: entropy by role", "marl", "entropy", "nats per token"),
    CurveChart("MARL: KL to the GRPO team", "marl", "kl", "nats per token"),
)


def curve_charts(rows: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> list[Image]:
    """Every chart of the training log that has a line."""
    found = ((panel, find_curves(rows, panel, roles)) for panel in CURVE_CHARTS)
    return [draw_curves(panel.title, curves, unit=panel.unit) for panel, curves in found if curves]


def draw_curves(title: str, curves: Sequence[Curve], *, unit: str) -> Image:
    """Raw values faint, a moving average on top."""
    with _draw(4.0, 2.7) as (figure, axes):
        for number, curve in enumerate(curves):
            colour, dash = LINE_STYLES[number % len(LINE_STYLES)]
            smoothed = smooth(curve.values, window=max(1, len(curve.values) // 8))
            axes.plot(curve.steps, curve.values, color=colour, linewidth=0.8, alpha=0.22)
            look: dict[str, Any] = {"linewidth": 1.7, "linestyle": dash, "label": role_title(curve.name)}
            marker = "o" if len(curve.steps) == 1 else ""
            axes.plot(curve.steps, smoothed, color=colour, marker=marker, markersize=4, **look)
        axes.legend(fontsize=8, frameon=False, loc="best")
        points = max(len(curve.steps) for curve in curves)
        axes.set_xlabel(f"optimizer step (n = {points} logged points per line)")
        axes.set_ylabel(unit)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    spans = "; ".join(
        f"{role_title(one.name)} from {one.values[0]:.3g} to {one.values[-1]:.3g} over {one.steps[-1]} steps"
        for one in curves
    )
    return Image(uri=as_uri(figure), alt=f"Line chart, {title}, {unit}: {spans}.", title=title)


def smooth(values: Sequence[float], *, window: int) -> list[float]:
    """Centred moving average over `window` values, shorter at the ends."""
    half = window // 2
    spans = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def read_metrics(run_path: Path) -> list[dict[str, Any]]:
    """Return rows of numbers with their stage and step; lines that a kill cut short are left out."""
    path = run_path / METRICS_FILE
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            numbers = {
                key: float(value)
                for key, value in row["metrics"].items()
                if type(value) in (int, float) and math.isfinite(value)
            }
            rows.append({**numbers, "stage": str(row["stage"]), "step": int(row["step"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return rows


def find_curves(rows: Iterable[Mapping[str, Any]], panel: CurveChart, roles: Sequence[str]) -> list[Curve]:
    """Return the chart's lines: one per role where logged by role, else one per trained weights.

    A stage that was started again logs its steps again: the later row counts.
    """
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        stage, _, owner = row["stage"].partition("/")
        by_role = {role: row[key] for role in roles if (key := f"{panel.metric}/{role}") in row}
        if panel.metric in row and not by_role:
            by_role = {owner or TEAM: row[panel.metric]}
        for name, value in by_role.items() if stage == panel.stage else ():
            lines.setdefault(name, {})[row["step"]] = value
    order = [*(role for role in roles if role in lines), *(name for name in lines if name not in roles)]
    return [Curve(name, *zip(*sorted(lines[name].items()), strict=True)) for name in order]
