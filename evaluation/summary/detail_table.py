"""Tables of details: cost of a play at each stage, rewards by difficulty."""

from collections.abc import Mapping
from typing import Any

from evaluation.scoring.scores import TRAINED_STAGES
from evaluation.summary.run_table import STAGE_TITLES, TEAM_TITLES, interval_cell, role_title
from evaluation.summary.tables import PlainTable

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


def detail_tables(details: Mapping[str, Any]) -> list[PlainTable]:
    """Process and difficulty tables; none for a run without details."""
    return [process_table(details), _category_table(details, "difficulty")] if details else []


def process_table(details: Mapping[str, Any]) -> PlainTable:
    """Means per play, by owner and stage."""
    rows = []
    for owner, section in details.items():
        for stage in ordered_stages(section):
            sampled = section[stage]["sampled"]
            numbers = sampled["process"]
            cells = [form.format(numbers[key]) if key in numbers else "-" for key, _, form in PROCESS]
            faults = ", ".join(f"{kind} {count}" for kind, count in list(sampled["failures"].items())[:3])
            rows.append((owner_title(owner), stage_title(stage), *cells, f"{numbers['n']:.0f}", faults))
    return PlainTable(
        title="Sampled plays: means per play",
        titles=("who", "stage", *(title for _, title, _ in PROCESS), "n", "most frequent faults"),
        rows=tuple(rows),
        caption="well formed, cut off and escalated are shares",
        num_names=2,
    )


def _category_table(details: Mapping[str, Any], category: str) -> PlainTable:
    sampled = {
        (owner, stage): section[stage]["sampled"][category]
        for owner, section in details.items()
        for stage in ordered_stages(section)
    }
    values = sorted({value for row in sampled.values() for value in row}, key=lambda one: (len(one), one))
    rows = (
        (
            owner_title(owner),
            stage_title(stage),
            *(interval_cell(row[value]) if value in row else "-" for value in values),
        )
        for (owner, stage), row in sampled.items()
    )
    return PlainTable(
        title=f"Reward by {category}",
        titles=("who", "stage", *values),
        rows=tuple(rows),
        caption="mean [95 % interval]",
        num_names=2,
    )
