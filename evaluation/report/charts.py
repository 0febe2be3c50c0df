"""Charts of the report as self-contained SVG images: bars with intervals and curves.

Colours are Okabe and Ito's, safe for colour-blind readers; lines also differ by dash and carry their names.
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

from evaluation.scoring.outcomes import TEAM
from evaluation.summary.run_tables import least_n, list_sampled
from evaluation.summary.tables import (
    STAGE_TITLES,
    TEAM_TITLES,
    list_stages,
    role_title,
    stage_title,
    team_title,
)

INK, MUTED, GRID = "#1c2733", "#5d6b7a", "#dfe5eb"
BASELINE_COLOUR = "#b8c2cc"
STAGE_COLOURS = {
    "untrained": "#8b98a5",
    "sft": "#56b4e9",
    "sft_more": "#a6d5f3",
    "sft_own": "#7fbfe8",
    "grpo": "#0072b2",
    "corrections": "#009e73",
    "dpo": "#cc79a7",
    "kto": "#e69f00",
    "ppo": "#b07d00",
    "marl": "#d55e00",
}
LINE_STYLES = (
    ("#0072b2", "-"),
    ("#d55e00", "--"),
    ("#009e73", "-."),
    ("#cc79a7", (0, (5, 1))),
    ("#b07d00", (0, (2, 1))),
    ("#56b4e9", (0, (6, 2, 1, 2, 1, 2))),
    ("#1c2733", ":"),
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
    axes.barh(y, row["mean"], height=0.62, color=STAGE_COLOURS.get(stage, BASELINE_COLOUR))
    axes.plot([row["low"], row["high"]], [y, y], color=INK, linewidth=1.3, solid_capstyle="butt")
    for end in (row["low"], row["high"]):
        axes.plot([end, end], [y - 0.14, y + 0.14], color=INK, linewidth=1.3)
    if row["greedy"] is not None:
        axes.plot(row["greedy"], y, marker="D", markersize=4.6, color="white", markeredgecolor=INK, zorder=5)
    weight = "bold" if stage in STAGE_COLOURS and stage != "untrained" else "normal"
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


def role_chart(role: str, section: Mapping[str, Any]) -> Image:
    """Draw a role's own reward at every stage, baseline and control."""
    labels = {one: stage_title(one) for one in list_stages([section], STAGE_TITLES) if one != "oracle"}
    axis = f"verified reward, 0 to 1 (n = {least_n(section)})"
    return draw_bars(role_title(role), section, labels, axis=axis, width_in=3.5)


def difficulty_charts(details: Mapping[str, Any]) -> list[Image]:
    """Per owner the sampled reward by difficulty, a line per stage with 95 % intervals."""
    charts = []
    for owner in details:
        rows = {
            stage: sampled["difficulty"]
            for (_, stage), sampled in list_sampled({owner: details[owner]}).items()
            if not stage.startswith("single")
        }
        axis = "team reward R" if owner == TEAM else "verified reward, 0 to 1"
        charts.append(_draw_difficulty(role_title(owner), rows, axis))
    return charts


def _draw_difficulty(title: str, stages: Mapping[str, Mapping[str, Any]], axis: str) -> Image:
    said = []
    n = 0
    with _draw(3.6, 2.6) as (figure, axes):
        for number, (stage, rows) in enumerate(stages.items()):
            levels = sorted(rows, key=float)
            spots = [float(level) + 0.03 * (number - len(stages) / 2) for level in levels]
            means = [rows[level]["mean"] for level in levels]
            n = max(n, *(int(rows[level]["n"]) for level in levels))
            colour, label = STAGE_COLOURS.get(stage, MUTED), stage_title(stage)
            _, dash = LINE_STYLES[number % len(LINE_STYLES)]
            look: dict[str, Any] = {"linewidth": 1.7, "linestyle": dash, "marker": "o", "markersize": 4}
            axes.plot(spots, means, color=colour, label=label, **look)
            for spot, level in zip(spots, levels, strict=True):
                ends = [rows[level]["low"], rows[level]["high"]]
                axes.plot([spot, spot], ends, color=colour, linewidth=1.2)
            numbers = (f"{mean:.2f} at {level}" for level, mean in zip(levels, means, strict=True))
            said.append(f"{label}: {', '.join(numbers)}")
        axes.set_xlabel(f"difficulty, 1 to 10 (n = {n} each)")
        axes.set_ylabel(axis)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=8, frameon=False, loc="best")
    alt = f"Line chart, {title}, {axis} by difficulty. {'; '.join(said)}."
    return Image(uri=as_uri(figure), alt=alt, title=title)


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


def read_metrics(run_path: Path) -> tuple[list[dict[str, Any]], int]:
    """Flat metric rows in order, and the number of lines that are not such rows; no file gives no rows."""
    path = run_path / METRICS_FILE
    if not path.is_file():
        return [], 0
    parsed = [_parse_row(line) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    rows = [row for row in parsed if row is not None]
    return rows, len(parsed) - len(rows)


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


def _parse_row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("stage"), str) or type(row.get("step")) is not int:
        return None
    metrics = row.get("metrics")
    if not isinstance(metrics, dict):
        return None
    numbers = {
        key: float(value)
        for key, value in metrics.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
    return numbers | {"stage": row["stage"], "step": row["step"]}
