"""Tables of details on a terminal: cost of a play at each stage, rewards by difficulty."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from evaluation.scoring.scores import TRAINED_STAGES
from evaluation.summary.run_table import STAGE_TITLES, TEAM_TITLES, role_title, short

PROCESS = (
    ("turns", "turns", "{:.1f}"),
    ("tokens", "tokens", "{:.0f}"),
    ("tool_calls", "tool calls", "{:.1f}"),
    ("failed_calls", "failed", "{:.2f}"),
    ("well_formed", "well formed", "{:.3f}"),
    ("truncated", "cut off", "{:.3f}"),
    ("escalated", "escalated", "{:.3f}"),
)


def owner_title(owner: str) -> str:
    """Return a role's title; "Team" for the team."""
    return "Team" if owner == "team" else role_title(owner)


def stage_title(stage: str) -> str:
    """Return a stage as people say it."""
    return STAGE_TITLES.get(stage) or TEAM_TITLES.get(stage, stage)


def ordered_stages(section: Mapping[str, Any]) -> list[str]:
    """Stages in training order, others after them."""
    known = [stage for stage in TRAINED_STAGES if stage in section]
    return known + [stage for stage in section if stage not in known]


def detail_tables(details: Mapping[str, Any]) -> list[Table]:
    """Process and difficulty tables; none for a run without details."""
    if not details:
        return []
    process = Table(
        title="Plays at temperature 1: means per play",
        caption="well formed, cut off and escalated are shares",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
    )
    for name in ("who", "stage", *(title for _, title, _ in PROCESS), "most frequent faults"):
        process.add_column(
            name, justify="left" if name in ("who", "stage", "most frequent faults") else "right"
        )
    for owner, section in details.items():
        for stage in ordered_stages(section):
            sampled = section[stage]["sampled"]
            cells = [
                form.format(sampled["process"][key]) if key in sampled["process"] else "-"
                for key, _, form in PROCESS
            ]
            faults = ", ".join(f"{kind} {count}" for kind, count in list(sampled["failures"].items())[:3])
            process.add_row(owner_title(owner), stage_title(stage), *cells, faults)
    return [process, _category_table(details, "difficulty")]


def _category_table(details: Mapping[str, Any], category: str) -> Table:
    values = sorted(
        {
            value
            for section in details.values()
            for stage in section.values()
            for value in stage["sampled"][category]
        },
        key=lambda value: (len(value), value),
    )
    table = Table(
        title=f"Reward by {category}",
        caption="mean [95 % interval]",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
    )
    for name in ("who", "stage", *values):
        table.add_column(name, justify="left" if name in ("who", "stage") else "right")
    for owner, section in details.items():
        for stage in ordered_stages(section):
            row = section[stage]["sampled"][category]
            cells = [
                f"{short(row[v]['mean'])} \\[{short(row[v]['low'])}, {short(row[v]['high'])}]"
                if v in row
                else "-"
                for v in values
            ]
            table.add_row(owner_title(owner), stage_title(stage), *cells)
    return table
