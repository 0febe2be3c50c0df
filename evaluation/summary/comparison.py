"""Several runs side by side: trained seeds of one config, and the cells of an ablation.

Means and changes have intervals over seeds and scenarios (`evaluation/stats/intervals.py`).
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.scoring.outcomes import TEAM, Mode, StagePlays, read_stage
from evaluation.stats.intervals import paired_permutation_p, seeded_interval
from evaluation.summary.run_summary import (
    ROLE_COMPARISONS,
    TEAM_COMPARISONS,
    adjust,
    adjust_over_roles,
    column_in,
    name_change,
    shared_modes,
)
from evaluation.summary.tables import (
    STAGE_TITLES,
    TEAM_TITLES,
    PlainTable,
    change_cell,
    comparison_title,
    interval_cell,
    list_stages,
    p_cell,
    role_title,
    score_cell,
    short,
    short_change,
    stage_title,
    write_section,
)
from simulator.export.atomic_files import read_document, write_atomic, write_document

SEED_COMPARISON_FILE = "seed_comparison.json"
ABLATION_FILE, MARKDOWN_FILE = "ablation.json", "results.md"
Values = list[list[float]]  # by seed


def compare_seeds(
    runs: Mapping[str, Sequence[StagePlays]],
    seeds: Sequence[int],
    *,
    same_scenarios: bool,
) -> dict[str, Any]:
    """Stage means and paired changes over seeds, by owner; a stage counts where every seed has it.

    `runs`: the plays of each seed's run, by name. `p` is a permutation test over the scenarios of these seeds
    (Holm-adjusted over the roles, or the team's comparisons); the interval also speaks of seeds not trained
    yet.

    Raises:
        ValueError: no seed, or seeds whose scores cannot be paired.
    """
    if not runs:
        raise ValueError("no seed to compare")
    tables = [{(one.owner, one.stage): one for one in plays} for plays in runs.values()]
    common = [key for key in tables[0] if all(key in table for table in tables)]

    def collect(owner: str, stage: str) -> list[StagePlays]:
        return [table[owner, stage] for table in tables]

    owners: dict[str, Any] = {}
    for owner in dict.fromkeys(owner for owner, _ in common):
        section: dict[str, Any] = {"stages": {}, "paired": {}}
        for _, stage in (key for key in common if key[0] == owner):
            plays = collect(owner, stage)
            values = [one.column("reward") for one in plays]
            described = _describe(values, same_scenarios, at_most=1.0)
            twins = [one.column("reward", "greedy") for one in plays]
            greedy = float(np.mean([*chain(*twins)])) if all(twins) else None
            section["stages"][stage] = described | {"greedy": greedy}
        for after, before in TEAM_COMPARISONS if owner == TEAM else ROLE_COMPARISONS:
            if (owner, after) in common and (owner, before) in common:
                sides = collect(owner, after), collect(owner, before)
                for mode in shared_modes([*chain(*sides)]):
                    later, earlier = ([column_in(one, "reward", mode) for one in side] for side in sides)
                    change = _compare(later, earlier, same_scenarios)
                    section["paired"][name_change(after, before, mode)] = change
        owners[owner] = section
    sections = {owner: section["paired"] for owner, section in owners.items()}
    adjust(sections.pop(TEAM, {}), ("p",))
    adjust_over_roles(sections, ("p",))
    return {"seeds": [*seeds], "runs": [*runs], "same_scenarios": same_scenarios, "owners": owners}


def _compare(after: Values, before: Values, same_scenarios: bool) -> dict[str, Any]:
    changes = [list(map(operator.sub, *pair)) for pair in zip(after, before, strict=True)]
    tested: list[float] = np.mean(changes, axis=0).tolist() if same_scenarios else [*chain(*changes)]
    found = _describe(changes, same_scenarios)
    return found | {"p": paired_permutation_p(tested, [0.0] * len(tested))}


def _describe(values: Sequence[Sequence[float]], same: bool, at_most: float | None = None) -> dict[str, Any]:
    interval = seeded_interval(values, same_scenarios=same, at_most=at_most)
    return asdict(interval) | {"per_seed": [float(np.mean(of_seed)) for of_seed in values]}


def write_seed_comparison(folder: Path, comparison: Mapping[str, Any]) -> Path:
    """Write seed_comparison.json, all or nothing."""
    return write_document(folder / SEED_COMPARISON_FILE, comparison)


def read_seed_comparison(folder: Path) -> dict[str, Any]:
    """Return what `write_seed_comparison` stored; empty where nothing is."""
    return read_document(folder / SEED_COMPARISON_FILE, "evaluate the runs together again")


SEEDS_CAPTION = (
    "mean over seeds [95 % interval over seeds and scenarios: it also speaks of seeds not trained yet]"
    " (greedy); p by permutation over these seeds' scenarios, Holm-adjusted"
)


def seed_comparison_tables(comparison: Mapping[str, Any]) -> list[PlainTable]:
    """Stage means and changes of several seeds; none where there is no comparison."""
    if not comparison:
        return []
    stages: list[tuple[str, ...]] = []
    changes: list[tuple[str, ...]] = []
    for owner, section in comparison["owners"].items():
        for stage in list_stages([section["stages"]], TEAM_TITLES if owner == TEAM else STAGE_TITLES):
            row = section["stages"][stage]
            per_seed = ", ".join(map(short, row["per_seed"]))
            stages.append((role_title(owner), stage_title(stage), score_cell(row), per_seed))
        for name, row in section["paired"].items():
            per_seed = ", ".join(map(short_change, row["per_seed"]))
            cells = (comparison_title(name), change_cell(row), per_seed, p_cell(row["p"]))
            changes.append((role_title(owner), *cells))
    title = f"Seeds {', '.join(map(str, comparison['seeds']))} together"
    return [
        PlainTable(title, ("who", "stage", "reward", "by seed"), stages, SEEDS_CAPTION, num_names=2),
        PlainTable(
            "Changes over these seeds",
            ("who", "paired change", "reward", "by seed", "p"),
            changes,
            SEEDS_CAPTION,
            num_names=2,
        ),
    ]


def measure_cell(
    cell: str,
    changes: Mapping[str, Any],
    paths: Sequence[Path],
    *,
    owners: Sequence[str],
    stage: str,
    before: str | None,
    train_s: float,
    first: Sequence[Path] = (),
    validations: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the row of an ablation's cell, from the plays of its finished seeds.

    Measured is the team after joint training, else the mean over all roles: `mean`, `greedy`, `gain` from the
    stage before and `against_first`, each an interval or None. `train_s`: mean seconds of its training.
    `first` holds the first cell's runs, seed by seed beside `paths`; leave it out where tests differ.
    `validations`: of joint training, seed by seed.
    """
    measured = [TEAM] if TEAM in owners else list(owners)
    read = cache(read_stage)  # a file is asked for several times

    def rewards(path: Path, stage: str, who: Sequence[str], mode: Mode = "sampled") -> list[float]:
        """Rewards of all these owners, one after the other; [] unless all of them are scored."""
        found = [read(path, stage, owner) for owner in who]
        return [value for one in found if one for value in one.column("reward", mode)] if all(found) else []

    finished = [path for path in paths if rewards(path, stage, owners)]
    twins = dict(zip(paths, first, strict=True)) if first else {}

    def mean(who: Sequence[str], mode: Mode = "sampled") -> dict[str, Any] | None:
        found = [rewards(path, stage, who, mode) for path in finished]
        return _over_seeds(found, 1.0) if found else None

    def change(earlier: Mapping[Path, tuple[Path, str]]) -> dict[str, Any] | None:
        """Mean of later less earlier over owners, seeds and scenarios; None where no pair is scored."""
        pairs = [(rewards(path, stage, measured), rewards(*earlier[path], measured)) for path in earlier]
        changes = [list(map(operator.sub, *pair)) for pair in pairs if all(pair)]
        return _over_seeds(changes) if changes else None

    num = len(finished)
    return {
        "cell": cell,
        "changes": dict(changes),
        "stage": stage,
        "num_seeds": num,
        "train_s": train_s,
        "note": "" if num == len(paths) else f"{num} of {len(paths)} seeds" if num else "not run",
        "owners": {owner: mean([owner]) for owner in (owners if finished else ())},
        "mean": mean(measured),
        "greedy": mean(measured, "greedy"),
        "gain": change({path: (path, before) for path in finished} if before else {}),
        "against_first": change({path: (twins[path], stage) for path in finished if path in twins}),
        "validations": [*validations],
    }


def _over_seeds(values: Sequence[Any], at_most: float | None = None) -> dict[str, Any]:
    return asdict(seeded_interval(values, same_scenarios=True, at_most=at_most))


CELLS_CAPTION = (
    "mean sampled reward over seeds, of the team or else over roles [95 % interval over seeds and scenarios];"
    " gain: paired change from the stage before, against the first: paired difference from the first cell,"
    " * apart from 0; validations: sampled, of the reward that is trained, by seed, with the standard error"
    " of what the last one lies below the best"
)


def ablation_table(title: str, rows: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Return the cells as a table; columns that no cell fills are left out."""
    owners = list(dict.fromkeys(owner for row in rows for owner in row["owners"]))
    stage = stage_title(rows[0]["stage"]) if rows else ""
    if TEAM in owners:
        owners.remove(TEAM)  # it is what is measured
        stage = f"team, {stage}"
    compared = ["against the first"] if any(row["against_first"] for row in rows) else []
    validated = ["validations: best, last (SE)"] if any(row["validations"] for row in rows) else []
    titles = ["cell", "seeds", f"{stage} (greedy)", "gain", *compared]
    titles += [*map(role_title, owners), *validated, "training, s", "note"]
    cells = [
        (
            row["cell"],
            str(row["num_seeds"]),
            interval_cell(row["mean"]) + (f" ({short(row['greedy']['mean'])})" if row["greedy"] else ""),
            change_cell(row["gain"]),
            *[change_cell(row["against_first"]) for _ in compared],
            *(interval_cell(row["owners"].get(owner)) for owner in owners),
            *["; ".join(map(_best_and_last, row["validations"])) or "-" for _ in validated],
            f"{row['train_s']:.0f}" if row["num_seeds"] else "-",
            row["note"],
        )
        for row in rows
    ]
    n = rows[0]["mean"]["n"] if rows and rows[0]["mean"] else 0
    return PlainTable(title, titles, cells, f"{CELLS_CAPTION}; n = {n} plays per cell")


def _best_and_last(validation: Mapping[str, Any]) -> str:
    error = validation["fall_error"]
    last = short(validation["last"]) + ("" if error is None else f" ({short(error)})")
    return f"{short(validation['peak'])}, {last}"


def write_ablation(
    folder: Path, name: str, question: str, rows: Sequence[Mapping[str, Any]], *, command: str
) -> None:
    """Write ablation.json and results.md into the folder, each all or nothing."""
    data = {"name": name, "question": question, "command": command, "rows": rows}
    write_document(folder / ABLATION_FILE, data)
    blocks = [write_section(ablation_table(name, rows)), *([question] if question else []), f"`{command}`"]
    write_atomic(folder / MARKDOWN_FILE, "\n\n".join(blocks) + "\n")
