"""Several seeds together as tables, for a terminal and for documents."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich import box
from rich.table import Table

from evaluation.summary.detail_table import owner_title, stage_title
from evaluation.summary.run_table import (
    STAGE_TITLES,
    TEAM_TITLES,
    change_cell,
    comparison_title,
    short,
    short_change,
)

CAPTION = (
    "mean over seeds [95 % interval over seeds and scenarios]; p by permutation over these seeds' scenarios,"
    " Holm-adjusted; dz and Cliff's delta are effect sizes"
)


def seed_comparison_rows(comparison: Mapping[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """(stage rows: who, stage, mean, per seed), (change rows: who, change, mean, per seed, p, dz, delta)."""
    stages, changes = [], []
    for owner, section in comparison["owners"].items():
        order = list(TEAM_TITLES if owner == "team" else STAGE_TITLES)
        for stage in sorted(section["stages"], key=partial(_place, order)):
            row = section["stages"][stage]
            cell = f"{short(row['mean'])} [{short(row['low'])}, {short(row['high'])}]"
            per_seed = ", ".join(short(value) for value in row["per_seed"])
            stages.append([owner_title(owner), stage_title(stage), cell, per_seed])
        for name, row in section["paired"].items():
            per_seed = ", ".join(short_change(value) for value in row["per_seed"])
            dz = "-" if row["dz"] is None else f"{row['dz']:+.2f}"
            p = "< .001" if row["p"] < 0.001 else f"{row['p']:.3f}".removeprefix("0")
            cells = [change_cell(row), per_seed, p, dz, f"{row['cliffs_delta']:+.2f}"]
            changes.append([owner_title(owner), comparison_title(name), *cells])
    return stages, changes


def _place(order: list[str], stage: str) -> int:
    return order.index(stage) if stage in order else len(order)


STAGE_TITLES_ROW = ("who", "stage", "reward", "by seed")
CHANGE_TITLES_ROW = ("who", "paired change", "reward", "by seed", "p", "dz", "delta")


def seed_comparison_tables(comparison: Mapping[str, Any]) -> list[Table]:
    """Stage means and changes of several seeds."""
    tables = []
    seeds = ", ".join(str(seed) for seed in comparison["seeds"])
    for title, names, rows in zip(
        (f"Seeds {seeds} together", "Changes over these seeds"),
        (STAGE_TITLES_ROW, CHANGE_TITLES_ROW),
        seed_comparison_rows(comparison),
        strict=True,
    ):
        table = Table(title=title, caption=CAPTION, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for place, name in enumerate(names):
            table.add_column(name, justify="left" if place < 2 else "right")
        for row in rows:
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        tables.append(table)
    return tables
