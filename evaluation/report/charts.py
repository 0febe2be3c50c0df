"""Charts of the report as self-contained SVG images: bars with intervals, and curves of the training log.

Colours are Okabe and Ito's, safe for colour-blind readers; lines also differ by dash and carry their names.
"""

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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
class Bar:
    """One bar: a mean with its interval, and the greedy score as a diamond.

    Example: Bar(label="GRPO", stage="grpo", mean=0.71, low=0.68, high=0.74, greedy=0.78)
    """

    label: str
    stage: str  # gives the colour
    mean: float
    low: float
    high: float
    greedy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A chart for an <img> element."""

    uri: str  # data:image/svg+xml;base64,...
    alt: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart.

    Example: Curve(name="cto", steps=(0, 20, 40), values=(3.1, 0.9, 0.4))
    """

    name: str  # role, or "team"
    steps: tuple[int, ...]
    values: tuple[float, ...]


def draw_bars(title: str, bars: Sequence[Bar], *, axis: str, ceiling: float | None, width_in: float) -> Image:
    """Horizontal bars with 95 % intervals; `ceiling` (the oracle's score) is a dashed line."""
    with mpl.rc_context(STYLE):
        row_in = 0.36 if any("\n" in bar.label for bar in bars) else 0.29
        figure = Figure(figsize=(width_in, 0.62 + row_in * len(bars)), layout="constrained")
        axes = figure.add_subplot()
        right = max([1.0, *(bar.high for bar in bars)])
        for row, bar in enumerate(bars):
            _draw_bar(axes, row, bar, right)
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars], linespacing=0.95)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(min([0.0, *(bar.low for bar in bars)]), right * 1.22)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.set_xlabel(axis)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        if ceiling is not None:
            axes.axvline(
                ceiling, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9
            )  # under the bars
    numbers = "; ".join(
        f"{' '.join(bar.label.split())} {bar.mean:.2f} ({bar.low:.2f} to {bar.high:.2f})" for bar in bars
    )
    oracle = "" if ceiling is None else f"; oracle {ceiling:.2f}"
    return Image(uri=as_uri(figure), alt=f"Bar chart, {title}, {axis}: {numbers}{oracle}.", title=title)


def draw_curves(title: str, curves: Sequence[tuple[str, Curve]], *, unit: str) -> Image:
    """Raw values faint, a moving average on top, each line named at its end."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.0, 2.7), layout="constrained")
        axes = figure.add_subplot()
        ends = []
        for (name, curve), (colour, dash) in zip(curves, _cycled(len(curves)), strict=True):
            smoothed = smooth(curve.values, window=max(1, len(curve.values) // 8))
            axes.plot(curve.steps, curve.values, color=colour, linewidth=0.8, alpha=0.22)
            axes.plot(curve.steps, smoothed, color=colour, linewidth=1.7, linestyle=dash)
            if len(curve.steps) == 1:
                axes.plot(curve.steps, smoothed, color=colour, marker="o", markersize=4)
            ends.append((smoothed[-1], name, colour))
        _name_ends(axes, ends)
        points = max(len(curve.steps) for _, curve in curves)
        axes.set_xlabel(f"optimizer step (n = {points} logged points per line)")
        axes.set_ylabel(unit)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.tick_params(length=0)
        axes.set_axisbelow(True)
        axes.grid(color=GRID, linewidth=0.7)
    spans = "; ".join(
        f"{name} from {curve.values[0]:.3g} to {curve.values[-1]:.3g} over {curve.steps[-1]} steps"
        for name, curve in curves
    )
    return Image(uri=as_uri(figure), alt=f"Line chart, {title}, {unit}: {spans}.", title=title)


def _draw_bar(axes: Axes, row: int, bar: Bar, right: float) -> None:
    axes.barh(row, bar.mean, height=0.62, color=STAGE_COLOURS.get(bar.stage, BASELINE_COLOUR))
    axes.plot([bar.low, bar.high], [row, row], color=INK, linewidth=1.3, solid_capstyle="butt")
    for end in (bar.low, bar.high):
        axes.plot([end, end], [row - 0.14, row + 0.14], color=INK, linewidth=1.3)
    if bar.greedy is not None:
        axes.plot(bar.greedy, row, marker="D", markersize=4.6, color="white", markeredgecolor=INK, zorder=5)
    weight = "bold" if bar.stage in STAGE_COLOURS and bar.stage != "untrained" else "normal"
    number = f"{bar.mean:.2f}".replace("-", "\N{MINUS SIGN}")
    axes.text(right * 1.21, row, number, va="center", ha="right", fontsize=9, fontweight=weight)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right end of the lines (value, name, colour), pushed apart so that none covers another."""
    (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()
    heights = spread([value for value, _, _ in sorted(ends)], low=low, high=high, gap=(high - low) * 0.08)
    for height, (_, name, colour) in zip(heights, sorted(ends), strict=True):
        axes.annotate(
            name,
            xy=(right, height),
            xytext=(3, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=8.5,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def spread(heights: Sequence[float], *, low: float, high: float, gap: float) -> list[float]:
    """Ascending heights moved as little as needed to stand `gap` apart, from the top of [low, high] down."""
    placed = list(heights)
    for index in range(1, len(placed)):
        placed[index] = max(placed[index], placed[index - 1] + gap)
    ceiling = high
    for index in reversed(range(len(placed))):
        placed[index] = max(low, min(placed[index], ceiling))
        ceiling = placed[index] - gap
    return placed


def _cycled(count: int) -> list[tuple[str, object]]:
    return [LINE_STYLES[index % len(LINE_STYLES)] for index in range(count)]


def as_uri(figure: Figure) -> str:
    """Return the figure as a data URI of an SVG; the same figure gives the same text."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


METRICS_FILE = "metrics.jsonl"
_COORDINATES = ("stage", "step", "time_s", "wall_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """One chart: what it shows and where its numbers stand in the metrics.

    Example: CurveChart(title="SFT loss", stage="sft", metrics=("loss",), unit="nats per token")
    """

    title: str
    stage: str  # "sft" holds the stages "sft/cto", "sft/coo", ...
    metrics: tuple[str, ...]  # names to look for, the first one logged is shown
    unit: str


CURVE_CHARTS = (
    CurveChart(title="SFT: loss", stage="sft", metrics=("loss",), unit="loss (nats per token)"),
    CurveChart(
        title="GRPO: verified reward",
        stage="grpo",
        metrics=("verified", "reward/total", "reward"),
        unit="verified reward (0 to 1)",
    ),
    CurveChart(
        title="MARL: team reward",
        stage="marl",
        metrics=("team_reward", "reward/team", "reward/total", "reward", "reward_mean"),
        unit="team reward R",
    ),
    CurveChart(title="GRPO: entropy", stage="grpo", metrics=("entropy",), unit="nats per token"),
    CurveChart(title="GRPO: KL to the SFT policy", stage="grpo", metrics=("kl",), unit="nats per token"),
    CurveChart(
        title="MARL: own score by role",
        stage="marl",
        metrics=("own_score", "own", "own_reward", "verified"),
        unit="own verified reward (0 to 1)",
    ),
    CurveChart(title="MARL: entropy by role", stage="marl", metrics=("entropy",), unit="nats per token"),
    CurveChart(title="MARL: KL to the GRPO team", stage="marl", metrics=("kl",), unit="nats per token"),
)


def read_metrics(run_path: Path) -> tuple[list[dict[str, Any]], int]:
    """Flat metric rows in order, and the number of lines that are not such rows; no file gives no rows."""
    path = run_path / METRICS_FILE
    if not path.is_file():
        return [], 0
    rows, num_bad = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        row = _parse_row(line)
        if row is None:
            num_bad += 1
        else:
            rows.append(row)
    return rows, num_bad


def find_curves(rows: Iterable[Mapping[str, Any]], panel: CurveChart, roles: Sequence[str]) -> list[Curve]:
    """Return the chart's curves: one per role where logged by role, else one named "team"."""
    of_stage = [row for row in rows if row["stage"].split("/")[0] == panel.stage]
    for metric in panel.metrics:
        curves = [_curve(role, [(row, _keys(row, metric, role)) for row in of_stage]) for role in roles]
        curves = [curve for curve in curves if curve.steps]
        if not curves:
            curves = [_curve("team", [(row, [metric]) for row in of_stage if row["stage"] == panel.stage])]
        is_off = metric == "kl" and not any(value for curve in curves for value in curve.values)
        if any(curve.steps for curve in curves) and not is_off:  # 0 throughout: nobody measured it
            return curves
    return []


def smooth(values: Sequence[float], *, window: int) -> list[float]:
    """Centred moving average over `window` values, shorter at the ends."""
    half = window // 2
    spans = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def _keys(row: Mapping[str, Any], metric: str, role: str) -> list[str]:
    """List the keys of a role's metric in a row: its name in the role's own stage, else role and name."""
    _, _, owner = row["stage"].partition("/")
    if owner:
        return [metric] if owner == role else []
    return [f"{metric}/{role}", f"{role}/{metric}", f"{metric}_{role}", f"{role}_{metric}"]


def _curve(name: str, rows: Iterable[tuple[Mapping[str, Any], Sequence[str]]]) -> Curve:
    # a stage that was started again logs its steps again: the later row counts
    points = sorted({row["step"]: row[key] for row, keys in rows for key in keys if key in row}.items())
    return Curve(
        name=name, steps=tuple(step for step, _ in points), values=tuple(value for _, value in points)
    )


def _parse_row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("stage"), str) or type(row.get("step")) is not int:
        return None
    return {"stage": row["stage"], "step": row["step"]} | dict(_numbers(row, ""))


def _numbers(tree: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, float]]:
    """Finite numbers of nested objects under slash-joined names; the level "metrics" adds no name."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers(value, prefix if key == "metrics" and not prefix else f"{prefix}{key}/")
        elif _is_finite_number(value) and (prefix or key not in _COORDINATES):
            yield f"{prefix}{key}", float(value)


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
