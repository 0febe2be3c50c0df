"""Several trained seeds of one config: means and changes with intervals over seeds and scenarios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.scoring.scores import RoleScores, Scores, read_scores
from evaluation.stats.effects import cliffs_delta, cohens_dz
from evaluation.stats.intervals import holm, paired_permutation_p
from evaluation.stats.over_seeds import seeded_interval
from evaluation.summary.run_summary import ROLE_COMPARISONS, TEAM_COMPARISONS
from evaluation.summary.tables import (
    STAGE_TITLES,
    TEAM_TITLES,
    PlainTable,
    change_cell,
    comparison_title,
    interval_cell,
    p_cell,
    role_title,
    short,
    short_change,
    stage_title,
)
from roles.errors import UserError
from simulator.export.atomic_files import read_document, write_document

SEED_COMPARISON_FILE = "seed_comparison.json"
TEAM = "team"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedScores:
    """All scores of one trained run.

    Example: SeedScores(name="runs/three", seed=0, scores={("cto", "sft"): RoleScores(...)})
    """

    name: str
    seed: int
    scores: Mapping[tuple[str, str], Scores]  # by owner (a role or "team") and stage


def read_seed(run_path: Path, seed: int) -> SeedScores:
    """Return the stored scores of a run.

    Raises:
        UserError: none, or damaged ones.
    """
    found: dict[tuple[str, str], Scores] = {}
    for file in sorted((run_path / "scores").glob("*.jsonl")):
        for record in read_scores(file):
            owner = record.role if isinstance(record, RoleScores) else TEAM
            found[owner, record.stage] = record
    if not found:
        raise UserError(f"no scores in {run_path}; run `emads evaluate {run_path}` first")
    return SeedScores(name=str(run_path), seed=seed, scores=found)


def compare_seeds(
    seeds: Sequence[SeedScores], *, same_scenarios: bool, num_bootstrap: int = 2000
) -> dict[str, Any]:
    """Stage means and paired changes over seeds, by owner; a stage counts where every seed has it.

    `p` is a permutation test over the scenarios of these seeds (Holm-adjusted over the roles, or the team's
    comparisons); the interval also speaks of seeds not trained yet.

    Raises:
        ValueError: no seed, or seeds whose scores cannot be paired.
    """
    if not seeds:
        raise ValueError("no seed to compare")
    common = [key for key in seeds[0].scores if all(key in one.scores for one in seeds)]
    owners = list(dict.fromkeys(owner for owner, _ in common))
    result: dict[str, Any] = {
        "seeds": [one.seed for one in seeds],
        "runs": [one.name for one in seeds],
        "same_scenarios": same_scenarios,
        "owners": {},
    }
    for owner in owners:
        section: dict[str, Any] = {"stages": {}, "paired": {}}
        for _, stage in (key for key in common if key[0] == owner):
            values = [one.scores[owner, stage].sampled for one in seeds]
            section["stages"][stage] = _interval(values, same_scenarios, num_bootstrap, at_most=1.0)
        for name, after, before in _pairs(owner, seeds, common):
            section["paired"][name] = _compare(after, before, same_scenarios, num_bootstrap)
        result["owners"][owner] = section
    _adjust(result["owners"])
    return result


Values = list[tuple[float, ...]]


def _pairs(
    owner: str, seeds: Sequence[SeedScores], common: Sequence[tuple[str, str]]
) -> list[tuple[str, Values, Values]]:
    found: list[tuple[str, Values, Values]] = []
    for after, before, has_twin in TEAM_COMPARISONS if owner == TEAM else ROLE_COMPARISONS:
        if (owner, after) not in common or (owner, before) not in common:
            continue
        later = [one.scores[owner, after] for one in seeds]
        earlier = [one.scores[owner, before] for one in seeds]
        found.append((f"{after}-{before}", [one.sampled for one in later], [one.sampled for one in earlier]))
        if has_twin and all(one.greedy for one in (*later, *earlier)):
            name = f"{after}-{before}_greedy"
            found.append((name, [one.greedy for one in later], [one.greedy for one in earlier]))
    return found


def _compare(after: Values, before: Values, same_scenarios: bool, num_bootstrap: int) -> dict[str, Any]:
    changes = [
        [a - b for a, b in zip(later, earlier, strict=True)]
        for later, earlier in zip(after, before, strict=True)
    ]
    if same_scenarios:
        tested = [float(value) for value in np.mean(changes, axis=0)]
    else:
        tested = [value for of_seed in changes for value in of_seed]
    flat_after, flat_before = ([v for of_seed in values for v in of_seed] for values in (after, before))
    return _interval(changes, same_scenarios, num_bootstrap) | {
        "p": paired_permutation_p(tested, [0.0] * len(tested)),
        "dz": cohens_dz(flat_after, flat_before),
        "cliffs_delta": cliffs_delta(flat_after, flat_before),
    }


def _interval(
    values: Sequence[Sequence[float]],
    same_scenarios: bool,
    num_bootstrap: int,
    *,
    at_most: float | None = None,
) -> dict[str, Any]:
    interval = seeded_interval(
        values, same_scenarios=same_scenarios, at_most=at_most, num_bootstrap=num_bootstrap
    )
    per_seed = [float(np.mean(of_seed)) for of_seed in values]
    bounds = {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}
    return bounds | {"per_seed": per_seed}


def _adjust(owners: Mapping[str, dict[str, Any]]) -> None:
    roles = {owner: section["paired"] for owner, section in owners.items() if owner != TEAM}
    for name in {name for paired in roles.values() for name in paired}:
        adjusted = holm({role: paired[name]["p"] for role, paired in roles.items() if name in paired})
        for role, p in adjusted.items():
            roles[role][name]["p"] = p
    team = owners.get(TEAM, {}).get("paired", {})
    for name, p in holm({name: change["p"] for name, change in team.items()}).items():
        team[name]["p"] = p


def write_seed_comparison(folder: Path, comparison: Mapping[str, Any]) -> Path:
    """Write seed_comparison.json, all or nothing."""
    return write_document(folder / SEED_COMPARISON_FILE, comparison)


def read_seed_comparison(folder: Path) -> dict[str, Any]:
    """Return what `write_seed_comparison` stored; empty where nothing is."""
    return read_document(folder / SEED_COMPARISON_FILE, "evaluate the runs together again")


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
            stages.append((role_title(owner), stage_title(stage), interval_cell(row), per_seed))
        for name, row in section["paired"].items():
            per_seed = ", ".join(short_change(value) for value in row["per_seed"])
            dz = "-" if row["dz"] is None else f"{row['dz']:+.2f}"
            cells = (change_cell(row), per_seed, p_cell(row["p"]), dz, f"{row['cliffs_delta']:+.2f}")
            changes.append((role_title(owner), comparison_title(name), *cells))
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
