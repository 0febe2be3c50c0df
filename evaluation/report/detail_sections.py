"""Sections of the report that come from plays: difficulty, reward parts, offers, faults, swaps."""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.report.charts import Image
from evaluation.report.detail_charts import draw_difficulty, draw_matrix, draw_stacks
from evaluation.summary.detail_table import ordered_stages, owner_title, stage_title
from evaluation.summary.run_table import interval_cell, short
from evaluation.summary.tables import PlainTable

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
