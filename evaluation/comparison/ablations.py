"""Results of an ablation: scores of its cells over seeds, as JSON, table and plot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.comparison.seeds import TEAM
from evaluation.scoring.scores import read_scores
from evaluation.stats.intervals import Interval
from evaluation.stats.over_seeds import seeded_interval
from evaluation.summary.details import owner_title, stage_title
from evaluation.summary.run_table import change_cell, short
from evaluation.summary.tables import PlainTable, write_markdown
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
    owners: Mapping[str, Interval]  # sampled reward of each role, and of the team
    mean: Interval | None  # of what is measured; None where nothing is finished
    gain: Interval | None  # paired change of it from the stage before
    against_first: Interval | None  # paired difference from the first cell; None in it and where tests differ
    greedy: Interval | None  # greedy reward of what is measured
    train_s: float  # mean seconds that the measured stage trained, all roles together
    note: str
    validations: Sequence[Mapping[str, Any]] = ()  # by seed, see joint_section.describe_validation


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
            owners={},
            mean=None,
            gain=None,
            against_first=None,
            greedy=None,
            train_s=train_s,
            note=note or "not run",
        )
    scores = {owner: [_read(path, stage, owner) for path in finished] for owner in owners}
    measured = [TEAM] if TEAM in owners else list(owners)
    gain = None
    if before is not None:
        gain = _difference([((path, stage), (path, before)) for path in finished], measured)
    twins = dict(zip(paths, first, strict=True)) if first else {}
    against = [((path, stage), (twins[path], stage)) for path in finished if path in twins]
    return AblationRow(
        cell=cell,
        changes=changes,
        stage=stage,
        num_seeds=len(finished),
        owners={
            owner: seeded_interval([one.sampled for one in of_owner], same_scenarios=True, at_most=1.0)
            for owner, of_owner in scores.items()
        },
        mean=_over(scores, measured, len(finished), greedy=False),
        gain=gain,
        against_first=_difference(against, measured),
        greedy=_over(scores, measured, len(finished), greedy=True),
        train_s=train_s,
        note=note or ("" if len(finished) == len(paths) else f"{len(finished)} of {len(paths)} seeds"),
        validations=validations,
    )


def _file(path: Path, stage: str, owner: str) -> Path:
    return path / "scores" / f"{stage}-{owner}.jsonl"


def _read(path: Path, stage: str, owner: str) -> Any:
    return read_scores(_file(path, stage, owner))[0]


def _over(
    scores: Mapping[str, Sequence[Any]], roles: Sequence[str], num_seeds: int, *, greedy: bool
) -> Interval:
    per_seed = [
        [
            value
            for role in roles
            for value in (scores[role][place].greedy if greedy else scores[role][place].sampled)
        ]
        for place in range(num_seeds)
    ]
    return seeded_interval(per_seed, same_scenarios=True, at_most=1.0)


def _difference(
    pairs: Sequence[tuple[tuple[Path, str], tuple[Path, str]]], roles: Sequence[str]
) -> Interval | None:
    """Mean of later less earlier over roles, seeds and scenarios; None unless all of some pairs is scored."""
    scored = [
        pair
        for pair in pairs
        if all(_file(path, stage, role).is_file() for path, stage in pair for role in roles)
    ]
    if not scored:
        return None
    changes = [
        [
            after - before
            for role in roles
            for after, before in zip(_read(*later, role).sampled, _read(*earlier, role).sampled, strict=True)
        ]
        for later, earlier in scored
    ]
    return seeded_interval(changes, same_scenarios=True)


def table_rows(rows: Sequence[AblationRow]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of the table."""
    owners = list(dict.fromkeys(owner for row in rows for owner in row.owners))
    stage = stage_title(rows[0].stage) if rows else ""
    if TEAM in owners:
        owners.remove(TEAM)  # it is what is measured
        stage = f"team, {stage}"
    compared = ["against the first"] if any(row.against_first for row in rows) else []
    titles = ["cell", "seeds", f"{stage} (greedy)", "gain", *compared]
    validated = ["validations: best, last (SE)"] if any(row.validations for row in rows) else []
    titles += [*map(owner_title, owners), *validated, "training, s", "note"]
    cells = []
    for row in rows:
        greedy = f" ({short(row.greedy.mean)})" if row.greedy else ""
        cells.append(
            [
                row.cell,
                str(row.num_seeds),
                f"{_interval(row.mean)}{greedy}",
                change_cell(asdict(row.gain)) if row.gain else "-",
                *[change_cell(asdict(row.against_first)) if row.against_first else "-" for _ in compared],
                *(_interval(row.owners.get(owner)) for owner in owners),
                *["; ".join(map(_best_and_last, row.validations)) or "-" for _ in validated],
                f"{row.train_s:.0f}" if row.num_seeds else "-",
                row.note,
            ]
        )
    return titles, cells


CAPTION = (
    "mean sampled reward over seeds, of the team or else over roles [95 % interval over seeds and scenarios];"
    " gain: paired change from the stage before, against the first: paired difference from the first cell,"
    " * apart from 0; validations: greedy, of the reward that is trained, by seed, with the standard error"
    " of what the last one lies below the best"
)


def ablation_table(title: str, rows: Sequence[AblationRow]) -> PlainTable:
    """Return the table."""
    titles, cells = table_rows(rows)
    return PlainTable(title=title, titles=tuple(titles), rows=tuple(map(tuple, cells)), caption=CAPTION)


def ablation_markdown(name: str, question: str, rows: Sequence[AblationRow], command: str) -> str:
    """Return a section of a page: question, command, table, how to read it."""
    table = write_markdown(ablation_table(name, rows))
    asked = f"{question}\n\n" if question else ""
    n = rows[0].mean.n if rows and rows[0].mean else 0
    return f"### {name}\n\n{asked}`{command}`\n\n{table}\n\n{CAPTION}; n = {n} plays per cell.\n"


def write_ablation(
    folder: Path, name: str, question: str, rows: Sequence[AblationRow], *, command: str, plot: str
) -> None:
    """ablation.json, results.md and plot.svg (`plot`) in the folder, each all or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"name": name, "question": question, "command": command, "rows": [asdict(row) for row in rows]}
    write_atomic(folder / ABLATION_FILE, json.dumps(data, indent=1, allow_nan=False) + "\n")
    write_atomic(folder / MARKDOWN_FILE, ablation_markdown(name, question, rows, command))
    write_atomic(folder / PLOT_FILE, plot)


def _best_and_last(validation: Mapping[str, Any]) -> str:
    error = validation["fall_error"]
    last = short(validation["last"]) + ("" if error is None else f" ({short(error)})")
    return f"{short(validation['peak'])}, {last}"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{short(interval.mean)} [{short(interval.low)}, {short(interval.high)}]"
