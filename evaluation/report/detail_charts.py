"""Charts and tables of the plays of a run: rewards by difficulty, reward parts, matrices, ablation cells.

Colours and style are those of `evaluation/report/charts.py`; every axis has a label with its unit and n.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from evaluation.comparison.ablations import AblationRow
from evaluation.report.charts import GRID, INK, LINE_STYLES, MUTED, STAGE_COLOURS, STYLE, Image, as_uri
from evaluation.summary.details import ordered_stages, owner_title, stage_title
from evaluation.summary.run_table import interval_cell, short
from evaluation.summary.tables import PlainTable

PART_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")  # Okabe and Ito


def draw_difficulty(title: str, stages: Mapping[str, Mapping[str, Any]], *, axis: str) -> Image:
    """Mean reward by difficulty, a line per stage with 95 % intervals."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6, 2.6), layout="constrained")
        axes = figure.add_subplot()
        said = []
        n = 0
        for number, (stage, rows) in enumerate(stages.items()):
            levels = sorted(rows, key=float)
            spots = [float(level) + 0.03 * (number - len(stages) / 2) for level in levels]
            means = [rows[level]["mean"] for level in levels]
            n = max(n, *(int(rows[level]["n"]) for level in levels))
            colour = STAGE_COLOURS.get(stage, MUTED)
            _, dash = LINE_STYLES[number % len(LINE_STYLES)]
            axes.plot(
                spots,
                means,
                color=colour,
                linewidth=1.7,
                linestyle=dash,
                marker="o",
                markersize=4,
                label=stage_title(stage),
            )
            for spot, level in zip(spots, levels, strict=True):
                axes.plot(
                    [spot, spot], [rows[level]["low"], rows[level]["high"]], color=colour, linewidth=1.2
                )
            said.append(
                f"{stage_title(stage)}: "
                + ", ".join(f"{mean:.2f} at {level}" for level, mean in zip(levels, means, strict=True))
            )
        axes.set_xlabel(f"difficulty, 1 to 10 (n = {n} each)")
        axes.set_ylabel(axis)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(length=0)
        axes.grid(color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(fontsize=8, frameon=False, loc="best")
    return Image(
        uri=as_uri(figure), alt=f"Line chart, {title}, {axis} by difficulty. {'; '.join(said)}.", title=title
    )


def draw_stacks(
    title: str, bars: Mapping[str, Mapping[str, float]], *, axis: str, width_in: float = 3.6
) -> Image:
    """One stacked bar per stage: parts that add up to the reward; charges lie left of 0."""
    names = list(dict.fromkeys(name for parts in bars.values() for name in parts))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, 1.05 + 0.3 * len(bars)), layout="constrained")
        axes = figure.add_subplot()
        for row, parts in enumerate(bars.values()):
            right, left = 0.0, 0.0
            for number, name in enumerate(names):
                value = parts.get(name, 0.0)
                start = right if value >= 0 else left
                label = name if row == 0 else None
                axes.barh(
                    row,
                    value,
                    left=start,
                    height=0.62,
                    label=label,
                    color=PART_COLOURS[number % 5],
                    edgecolor="white",
                    linewidth=0.8,
                )
                right, left = (right + value, left) if value >= 0 else (right, left + value)
        axes.set_yticks(range(len(bars)), list(bars))
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlabel(axis)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        figure.legend(
            loc="outside upper center",
            ncols=min(len(names), 3 if width_in < 4 else 4),
            fontsize=7.5,
            frameon=False,
            handlelength=1.0,
            handletextpad=0.4,
            columnspacing=0.9,
        )
        if all(value >= 0 for parts in bars.values() for value in parts.values()):
            axes.set_xlim(0, 1)
    said = "; ".join(
        f"{row}: {', '.join(f'{k} {v:.2f}' for k, v in parts.items())}" for row, parts in bars.items()
    )
    return Image(uri=as_uri(figure), alt=f"Stacked bars, {title}, {axis}: {said}.", title=title)


def draw_matrix(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    row_axis: str,
    column_axis: str,
    unit: str,
) -> Image:
    """Return a heat map with its numbers written in; None is an empty field."""
    with mpl.rc_context(STYLE):
        size = (1.7 + 0.72 * len(columns), 1.25 + 0.42 * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        known = [value for row in values for value in row if value is not None]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        numbers = [[float("nan") if value is None else value for value in row] for row in values]
        axes.imshow(numbers, cmap="cividis", vmin=low, vmax=high if high > low else low + 1, aspect="auto")
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                if value is not None:
                    dark = high > low and (value - low) / (high - low) < 0.45
                    axes.text(
                        x,
                        y,
                        f"{value:.2f}",
                        ha="center",
                        va="center",
                        fontsize=9,
                        color="white" if dark else "#000000",
                    )
        axes.set_xticks(
            range(len(columns)),
            columns,
            rotation=30 if len(columns) > 6 else 0,
            ha="right" if len(columns) > 6 else "center",
        )
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(column_axis)
        axes.set_ylabel(row_axis)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    said = "; ".join(
        f"{row} with {column} {value:.2f}"
        for row, of_row in zip(rows, values, strict=True)
        for column, value in zip(columns, of_row, strict=True)
        if value is not None
    )
    return Image(uri=as_uri(figure), alt=f"Heat map, {title}, {unit}: {said}.", title=title)


def plot_cells(title: str, rows: Sequence[AblationRow]) -> str:
    """Cells of an ablation as an SVG document: a mean with its interval per owner."""
    owners = list(dict.fromkeys(owner for row in rows for owner in row.owners))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 1.2 + 0.2 * len(rows) * max(1, len(owners))), layout="constrained")
        axes = figure.add_subplot()
        for number, owner in enumerate(owners):
            colour, _ = LINE_STYLES[number % len(LINE_STYLES)]
            shift = 0.7 * ((number + 0.5) / len(owners) - 0.5)
            for place, row in enumerate(rows):
                interval = row.owners.get(owner)
                if interval is not None:
                    y = place + shift
                    axes.plot([interval.low, interval.high], [y, y], color=colour, linewidth=1.4)
                    label = owner_title(owner) if place == 0 else None
                    axes.plot(
                        interval.mean, y, marker="o", markersize=5, color=colour, label=label, linestyle=""
                    )
        axes.set_yticks(range(len(rows)), [row.cell for row in rows])
        axes.set_ylim(len(rows) - 0.45, -0.55)
        n = max((interval.n for row in rows for interval in row.owners.values()), default=0)
        axes.set_xlabel(f"verified reward, 0 to 1; 95 % interval (n = {n} plays per point)")
        axes.set_title(title, fontsize=10, color=INK, loc="left")
        axes.tick_params(length=0)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        if owners:
            figure.legend(loc="outside lower center", ncols=min(len(owners), 6), fontsize=8, frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


PART_WEIGHTS = {"graded": 0.6, "exact": 0.3, "figures": 0.1, "conflicts": 0.1}  # of the roles' verdicts
PART_TITLES = {"graded": "near optimum", "exact": "exact", "figures": "figures", "conflicts": "conflicts"}


def difficulty_charts(details: Mapping[str, Any]) -> list[Image]:
    """Per owner the sampled reward by difficulty, a line per stage."""
    charts = []
    for owner, section in details.items():
        rows = {
            stage: section[stage]["sampled"]["difficulty"]
            for stage in ordered_stages(section)
            if not stage.startswith("single")
        }
        axis = "team reward R" if owner == "team" else "verified reward, 0 to 1"
        charts.append(draw_difficulty(owner_title(owner), rows, axis=axis))
    return charts


def part_charts(details: Mapping[str, Any]) -> list[Image]:
    """Per role what its reward is made of at each stage."""
    charts = []
    for owner, section in details.items():
        if owner == "team":
            continue
        bars = {
            stage_title(stage): {
                PART_TITLES[part]: weight * section[stage]["sampled"]["parts"].get(part, 0.0)
                for part, weight in PART_WEIGHTS.items()
            }
            for stage in ordered_stages(section)
        }
        n = min(int(section[stage]["sampled"]["process"]["n"]) for stage in section)
        charts.append(draw_stacks(owner_title(owner), bars, axis=f"verified reward, 0 to 1 (n = {n})"))
    return charts


def team_parts_chart(
    team: Mapping[str, Any], stages: Sequence[str], weights: Mapping[str, float]
) -> Image | None:
    """Draw the parts of the team reward: value, agreement that adds to it, charges."""
    shown = [stage for stage in stages if stage in team]
    if not shown:
        return None
    bars = {}
    for stage in shown:
        row = team[stage]
        unresolved, escalation = (
            weights["unresolved"] * row["unresolved"],
            weights["escalation"] * row["escalation"],
        )
        value = row["value"] / (1 + weights["consensus"])
        bars[stage_title(stage)] = {
            "value": value,
            "agreement on it": max(0.0, row["mean"] + unresolved + escalation - value),
            "unresolved conflicts": -unresolved,
            "wrong escalation": -escalation,
        }
    n = min(team[stage]["n"] for stage in shown)
    return draw_stacks("Team reward by part", bars, axis=f"team reward R (n = {n})", width_in=5.4)


def offer_table(details: Mapping[str, Any], stage: str) -> PlainTable:
    """Return what every seat offers in the sampled episodes of a stage, and how often it is funded."""
    section = details.get("team", {}).get(stage, {}).get("sampled", {})
    rows = tuple(
        (
            owner_title(seat),
            short(row["read"]),
            f"{row['offers']:.2f}",
            f"{row['false_claims']:.2f}",
            short(row["funded"]),
        )
        for seat, row in section.get("offers", {}).items()
    )
    titles = ("seat", "reports read", "offers per report", "false claims per report", "plans that fund it")
    title = "Offers, seat by seat (reports read and plans that fund it: shares)"
    return PlainTable(title=title, titles=titles, rows=rows)


def fault_table(details: Mapping[str, Any], stages: Sequence[str]) -> PlainTable:
    """Tabulate the failures of plays, share of plays, by owner: the first and the last of the stages."""
    rows = []
    for owner, section in details.items():
        present = [stage for stage in stages if stage in section]
        for stage in dict.fromkeys([*present[:1], *present[-1:]]):
            sampled = section[stage]["sampled"]
            n = sampled["process"]["n"]
            kinds = ", ".join(
                f"{kind.replace('_', ' ')} {100 * count / n:.0f} %"
                for kind, count in sampled["failures"].items()
            )
            exact = f"{100 * sampled['process']['exact']:.0f} %"
            rows.append((f"{owner_title(owner)}, {stage_title(stage)}", exact, kinds or "none"))
    titles = ("who and when", "exact optimum", "what went wrong, share of plays")
    return PlainTable(title="How plays fall short", titles=titles, rows=tuple(rows))


def category_table(details: Mapping[str, Any], category: str, stage: str) -> PlainTable:
    """Reward by sector or form, one stage, by owner."""
    sections = {
        owner: section[stage]["sampled"][category] for owner, section in details.items() if stage in section
    }
    values = sorted({value for rows in sections.values() for value in rows})
    rows = (
        (value, *(interval_cell(rows[value]) if value in rows else "-" for rows in sections.values()))
        for value in values
    )
    titles = (category, *map(owner_title, sections))
    return PlainTable(title=f"Reward by {category}, {stage_title(stage)}", titles=titles, rows=tuple(rows))


def swap_chart(diagnostics: Mapping[str, Any]) -> Image | None:
    """Return the swap matrix as a heat map."""
    swaps: Mapping[str, Any] = diagnostics.get("swaps", {})
    if len(swaps) < 2:
        return None
    names = [stage_title(label) for label in swaps]
    return draw_matrix(
        "Swapped teams",
        names,
        names,
        [[cells[column]["mean"] for column in swaps] for cells in swaps.values()],
        row_axis="specialists of",
        column_axis=f"ReconcileGPT of; team reward R, greedy (n = {diagnostics['n']})",
        unit="team reward R",
    )
