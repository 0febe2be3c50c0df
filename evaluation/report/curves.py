"""Finds the learning curves in metrics.jsonl: the series that a run logged, by stage and role.

A line is {"stage", "step", ...} with its metrics beside these keys or under "metrics". Unreadable lines are
counted, not fatal: the last line of a killed run is often cut short.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"
_COORDINATES = ("stage", "step", "time_s", "wall_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart.

    Example: Curve(name="cto", steps=(0, 20, 40), values=(3.1, 0.9, 0.4))
    """

    name: str  # role, or "team"
    steps: tuple[int, ...]
    values: tuple[float, ...]


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
