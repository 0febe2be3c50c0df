"""Several trained seeds of one config: means and changes with intervals over seeds and scenarios."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.scoring.scores import RoleScores, Scores, read_scores
from evaluation.stats.effects import cliffs_delta, cohens_dz
from evaluation.stats.intervals import paired_permutation_p
from evaluation.stats.over_seeds import seeded_interval
from evaluation.summary.run_summary import ROLE_COMPARISONS, TEAM_COMPARISONS, adjust, adjust_over_roles
from evaluation.summary.tables import (
    STAGE_TITLES,
    TEAM,
    TEAM_TITLES,
    PlainTable,
    change_cell,
    comparison_title,
    interval_cell,
    list_stages,
    p_cell,
    role_title,
    short,
    short_change,
    stage_title,
)
from roles.errors import UserError
from simulator.export.atomic_files import read_document, write_document

SEED_COMPARISON_FILE = "seed_comparison.json"


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
        for name, after, before in _list_pairs(owner, seeds, common):
            section["paired"][name] = _compare(after, before, same_scenarios, num_bootstrap)
        result["owners"][owner] = section
    sections = {owner: section["paired"] for owner, section in result["owners"].items()}
    adjust(sections.pop(TEAM, {}), ("p",))
    adjust_over_roles(sections, ("p",))
    return result


Values = list[tuple[float, ...]]  # by seed


def _list_pairs(
    owner: str, seeds: Sequence[SeedScores], common: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Values, Values]]:
    """(name, later, earlier) of every comparison of which every seed has both stages."""
    for after, before, has_twin in TEAM_COMPARISONS if owner == TEAM else ROLE_COMPARISONS:
        if (owner, after) not in common or (owner, before) not in common:
            continue
        later, earlier = ([one.scores[owner, stage] for one in seeds] for stage in (after, before))
        yield f"{after}-{before}", [one.sampled for one in later], [one.sampled for one in earlier]
        if has_twin and all(one.greedy for one in (*later, *earlier)):
            yield f"{after}-{before}_greedy", [one.greedy for one in later], [one.greedy for one in earlier]


def _compare(after: Values, before: Values, same_scenarios: bool, num_bootstrap: int) -> dict[str, Any]:
    changes = [list(map(operator.sub, *pair)) for pair in zip(after, before, strict=True)]
    tested: list[float] = np.mean(changes, axis=0).tolist() if same_scenarios else [*chain(*changes)]
    flat_after, flat_before = list(chain(*after)), list(chain(*before))
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
    return asdict(interval) | {"per_seed": [float(np.mean(of_seed)) for of_seed in values]}


def write_seed_comparison(folder: Path, comparison: Mapping[str, Any]) -> Path:
    """Write seed_comparison.json, all or nothing."""
    return write_document(folder / SEED_COMPARISON_FILE, comparison)


def read_seed_comparison(folder: Path) -> dict[str, Any]:
    """Return what `write_seed_comparison` stored; empty where nothing is."""
    return read_document(folder / SEED_COMPARISON_FILE, "evaluate the runs together again")


CAPTION = (
    "mean over seeds [95 % interval over seeds and scenarios]; p by permutation over these seeds' scenarios,"
    " Holm-adjusted; dz and Cliff's delta are effect sizes"
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
            stages.append((role_title(owner), stage_title(stage), interval_cell(row), per_seed))
        for name, row in section["paired"].items():
            per_seed = ", ".join(map(short_change, row["per_seed"]))
            dz = "-" if row["dz"] is None else f"{row['dz']:+.2f}"
            cells = (change_cell(row), per_seed, p_cell(row["p"]), dz, f"{row['cliffs_delta']:+.2f}")
            changes.append((role_title(owner), comparison_title(name), *cells))
    return [
        PlainTable(
            f"Seeds {', '.join(map(str, comparison['seeds']))} together",
            ("who", "stage", "reward", "by seed"),
            list(stages),
            CAPTION,
            num_names=2,
        ),
        PlainTable(
            "Changes over these seeds",
            ("who", "paired change", "reward", "by seed", "p", "dz", "delta"),
            list(changes),
            CAPTION,
            num_names=2,
        ),
    ]
