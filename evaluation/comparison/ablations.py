"""Results of an ablation: scores of its cells over seeds, as JSON, table and plot."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.scoring.scores import read_scores
from evaluation.stats.intervals import Interval
from evaluation.stats.over_seeds import seeded_interval
from evaluation.summary.tables import (
    TEAM,
    PlainTable,
    change_cell,
    interval_cell,
    role_title,
    short,
    stage_title,
    write_markdown,
)
from simulator.export.atomic_files import write_atomic

ABLATION_FILE, MARKDOWN_FILE, PLOT_FILE = "ablation.json", "results.md", "plot.svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """One cell: its score by owner and of what is measured, and the change from the stage before.

    Measured is the team after joint training, else the mean over all roles.

    Example: AblationRow(cell="group_size=4", changes={"grpo.group_size": 4}, stage="grpo", num_seeds=2, ...)
    """

    cell: str
    changes: Mapping[str, Any]
    stage: str
    num_seeds: int  # finished
    train_s: float  # mean seconds that the measured stage trained, all roles together
    note: str
    owners: Mapping[str, Interval]  # sampled reward of each role, and of the team
    mean: Interval | None = None  # of what is measured; None where nothing is finished
    gain: Interval | None = None  # paired change of it from the stage before
    against_first: Interval | None = None  # paired difference from the first cell, where tests are the same
    greedy: Interval | None = None  # greedy reward of what is measured
    validations: Sequence[Mapping[str, Any]] = ()  # by seed, see run_summary.describe_validation


def measure_cell(
    cell: str,
    changes: Mapping[str, Any],
    paths: Sequence[Path],
    *,
    owners: Sequence[str],
    stage: str,
    before: str | None,
    note: str,
    train_s: float,
    first: Sequence[Path] = (),
    validations: Sequence[Mapping[str, Any]] = (),
) -> AblationRow:
    """Return the row of a cell from the score files of its finished seeds.

    `first` holds the first cell's runs, seed by seed beside `paths`; leave it out where tests differ.
    `validations`: of joint training, seed by seed.
    """
    finished = [path for path in paths if all(_file(path, stage, owner).is_file() for owner in owners)]
    if not finished:
        return AblationRow(
            cell=cell,
            changes=changes,
            stage=stage,
            num_seeds=0,
            train_s=train_s,
            note=note or "not run",
            owners={},
        )
    scores = {owner: [_read(path, stage, owner) for path in finished] for owner in owners}
    measured = [TEAM] if TEAM in owners else list(owners)
    earlier = [((path, stage), (path, before)) for path in finished] if before else []
    twins = dict(zip(paths, first, strict=True)) if first else {}
    against = [((path, stage), (twins[path], stage)) for path in finished if path in twins]

    def measure(way: str) -> Interval:
        by_seed = zip(*(scores[role] for role in measured), strict=True)
        return _over_seeds(([v for one in records for v in getattr(one, way)] for records in by_seed), 1.0)

    return AblationRow(
        cell=cell,
        changes=changes,
        stage=stage,
        num_seeds=len(finished),
        train_s=train_s,
        note=note or ("" if len(finished) == len(paths) else f"{len(finished)} of {len(paths)} seeds"),
        owners={
            owner: _over_seeds((one.sampled for one in of_owner), 1.0) for owner, of_owner in scores.items()
        },
        mean=measure("sampled"),
        gain=_difference(earlier, measured),
        against_first=_difference(against, measured),
        greedy=measure("greedy"),
        validations=validations,
    )


def _file(path: Path, stage: str, owner: str) -> Path:
    return path / "scores" / f"{stage}-{owner}.jsonl"


def _read(path: Path, stage: str, owner: str) -> Any:
    return read_scores(_file(path, stage, owner))[0]


def _over_seeds(values: Iterable[Sequence[float]], at_most: float | None = None) -> Interval:
    return seeded_interval(list(values), same_scenarios=True, at_most=at_most)


def _difference(
    pairs: Sequence[tuple[tuple[Path, str], tuple[Path, str]]], roles: Sequence[str]
) -> Interval | None:
    """Mean of later less earlier over roles, seeds and scenarios; None unless all of some pairs is scored."""
    scored = [
        pair
        for pair in pairs
        if all(_file(path, stage, role).is_file() for path, stage in pair for role in roles)
    ]
    changes = [
        [
            after - before
            for role in roles
            for after, before in zip(_read(*later, role).sampled, _read(*earlier, role).sampled, strict=True)
        ]
        for later, earlier in scored
    ]
    return _over_seeds(changes) if changes else None


CAPTION = (
    "mean sampled reward over seeds, of the team or else over roles [95 % interval over seeds and scenarios];"
    " gain: paired change from the stage before, against the first: paired difference from the first cell,"
    " * apart from 0; validations: sampled, of the reward that is trained, by seed, with the standard error"
    " of what the last one lies below the best"
)


def ablation_table(title: str, rows: Sequence[AblationRow]) -> PlainTable:
    """Return the cells as a table; columns that no cell fills are left out."""
    owners = list(dict.fromkeys(owner for row in rows for owner in row.owners))
    stage = stage_title(rows[0].stage) if rows else ""
    if TEAM in owners:
        owners.remove(TEAM)  # it is what is measured
        stage = f"team, {stage}"
    compared = ["against the first"] if any(row.against_first for row in rows) else []
    validated = ["validations: best, last (SE)"] if any(row.validations for row in rows) else []
    titles = ["cell", "seeds", f"{stage} (greedy)", "gain", *compared]
    titles += [*map(role_title, owners), *validated, "training, s", "note"]
    cells = [
        (
            row.cell,
            str(row.num_seeds),
            f"{_cell(row.mean)}{f' ({short(row.greedy.mean)})' if row.greedy else ''}",
            change_cell(asdict(row.gain) if row.gain else None),
            *[change_cell(asdict(row.against_first) if row.against_first else None) for _ in compared],
            *(_cell(row.owners.get(owner)) for owner in owners),
            *["; ".join(map(_best_and_last, row.validations)) or "-" for _ in validated],
            f"{row.train_s:.0f}" if row.num_seeds else "-",
            row.note,
        )
        for row in rows
    ]
    return PlainTable(title, tuple(titles), list(cells), CAPTION)


def _cell(interval: Interval | None) -> str:
    return interval_cell(asdict(interval) if interval else None)


def _best_and_last(validation: Mapping[str, Any]) -> str:
    error = validation["fall_error"]
    last = short(validation["last"]) + ("" if error is None else f" ({short(error)})")
    return f"{short(validation['peak'])}, {last}"


def write_ablation(
    folder: Path, name: str, question: str, rows: Sequence[AblationRow], *, command: str, plot: str
) -> None:
    """ablation.json, results.md and plot.svg (`plot`) in the folder, each all or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"name": name, "question": question, "command": command, "rows": [asdict(row) for row in rows]}
    write_atomic(folder / ABLATION_FILE, json.dumps(data, indent=1, allow_nan=False) + "\n")
    table = write_markdown(ablation_table(name, rows))
    n = rows[0].mean.n if rows and rows[0].mean else 0
    asked = [question] if question else []
    blocks = [f"### {name}", *asked, f"`{command}`", table, f"{CAPTION}; n = {n} plays per cell.\n"]
    write_atomic(folder / MARKDOWN_FILE, "\n\n".join(blocks))
    write_atomic(folder / PLOT_FILE, plot)
