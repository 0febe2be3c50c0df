"""Several seeds together as tables, for a terminal and for documents."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from evaluation.summary.detail_table import owner_title, stage_title
from evaluation.summary.joint_table import p_cell
from evaluation.summary.run_table import (
    STAGE_TITLES,
    TEAM_TITLES,
    change_cell,
    comparison_title,
    interval_cell,
    short,
    short_change,
)
from evaluation.summary.tables import PlainTable

Row = tuple[str, ...]

CAPTION = (
    "mean over seeds [95 % interval over seeds and scenarios]; p by permutation over these seeds' scenarios,"
    " Holm-adjusted; dz and Cliff's delta are effect sizes"
)


def _list_rows(comparison: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    """(stage rows: who, stage, mean, per seed), (change rows: who, change, mean, per seed, p, dz, delta)."""
    stages: list[Row] = []
    changes: list[Row] = []
    for owner, section in comparison["owners"].items():
        order = list(TEAM_TITLES if owner == "team" else STAGE_TITLES)
        for stage in sorted(section["stages"], key=partial(_place, order)):
            row = section["stages"][stage]
            per_seed = ", ".join(short(value) for value in row["per_seed"])
            stages.append((owner_title(owner), stage_title(stage), interval_cell(row), per_seed))
        for name, row in section["paired"].items():
            per_seed = ", ".join(short_change(value) for value in row["per_seed"])
            dz = "-" if row["dz"] is None else f"{row['dz']:+.2f}"
            cells = (change_cell(row), per_seed, p_cell(row["p"]), dz, f"{row['cliffs_delta']:+.2f}")
            changes.append((owner_title(owner), comparison_title(name), *cells))
    return stages, changes


def _place(order: list[str], stage: str) -> int:
    return order.index(stage) if stage in order else len(order)


def seed_comparison_tables(comparison: Mapping[str, Any]) -> list[PlainTable]:
    """Stage means and changes of several seeds; none where there is no comparison."""
    if not comparison:
        return []
    stages, changes = _list_rows(comparison)
    return [
        PlainTable(
            title=f"Seeds {', '.join(map(str, comparison['seeds']))} together",
            titles=("who", "stage", "reward", "by seed"),
            rows=tuple(stages),
            caption=CAPTION,
            num_names=2,
        ),
        PlainTable(
            title="Changes over these seeds",
            titles=("who", "paired change", "reward", "by seed", "p", "dz", "delta"),
            rows=tuple(changes),
            caption=CAPTION,
            num_names=2,
        ),
    ]
