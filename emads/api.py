"""Calls of the public Python API that make scenarios, train runs and score them.

Those that train or score start worker processes (`num_workers` of the config), which do not run the caller's
script again: no `if __name__ == "__main__":` is needed.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emads.seats import STAGES
from roles.errors import UserError, check_number, unknown
from roles.registry import ROLES
from scenarios import team
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, SEALED, SPLITS, Scenario, Split
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario

if TYPE_CHECKING:
    from training.runs.run_folder import Run

TEAM = "team"


def generate(
    family: str,
    count: int = 1,
    *,
    split: Split = "train",
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
    unseal: bool = False,
) -> list[Scenario | TeamScenario]:
    """Return the first `count` scenarios of a family, or of "team"; the difficulties take turns.

    `unseal`: needed for the test split, on which no training and no choice may rest.

    Raises:
        UserError: unknown family or split, count under 1, no difficulties of 1 to 10, a negative seed, or the
            test split without `unseal`.

    Examples:
        >>> [scenario.key for scenario in generate("cto", 2)]
        ['cto/train/0/0/1', 'cto/train/0/1/2']
    """
    if family not in (*FAMILIES, TEAM):
        raise unknown("family", family, [*FAMILIES, TEAM])
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    if split in SEALED and not unseal:
        raise UserError(f"the {split} split is sealed: generate(..., unseal=True) draws from it all the same")
    check_number("count", count, 1)
    check_number("seed", seed, 0)
    if isinstance(difficulties, str) or not isinstance(difficulties, Sequence) or not difficulties:
        raise UserError(f"difficulties {difficulties!r} must be a list such as [1, 2]")
    for difficulty in difficulties:
        check_number("difficulty", difficulty, MIN_DIFFICULTY)
        if difficulty > MAX_DIFFICULTY:
            raise UserError(f"difficulty {difficulty} must be {MAX_DIFFICULTY} or less")
    draw = team.generate if family == TEAM else FAMILIES[family].generate
    return [draw(split, seed, index, difficulties[index % len(difficulties)]) for index in range(count)]


def open_run(path: str | Path) -> "Run":
    """Return the run in an existing folder: its config, metrics and finished stages.

    Raises:
        UserError: no run there, or a damaged config.

    Examples:
        >>> open_run("runs/none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        roles.errors.UserError: no run in runs/none (no config.yaml there); start one with ...
    """
    from training.runs.run_folder import Run

    if not isinstance(path, str | Path):
        raise UserError(f"path {path!r} must name the folder of a run, such as runs/demo")
    return Run.open(Path(path))


def train(
    path: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    stages: Sequence[str] = STAGES,
    roles: Sequence[str] = (),
) -> "Run":
    """Train stages of a run, in the order base, sft, grpo, marl, and return it; what is done is kept.

    A new run takes its config from `config` and `overrides`, such as {"sft.max_steps": 20} or
    ["sft.max_steps=20"]; an existing one has its own. `roles`: those that sft and grpo train; none for all.

    Raises:
        UserError: wrong config, unknown stage or role, another config than the existing run's, or a stage
            whose earlier stages are not done.

    Examples:
        >>> train("runs/x", stages=["sfd"])
        Traceback (most recent call last):
            ...
        roles.errors.UserError: unknown stage 'sfd'; did you mean 'sft'? (known: base, sft, grpo, marl)
    """
    for name, given in (("overrides", overrides), ("stages", stages), ("roles", roles)):
        if isinstance(given, str):
            raise UserError(f"{name} {given!r} must be a list: [{given!r}]")
    for stage in stages:
        if stage not in STAGES:
            raise unknown("stage", stage, list(STAGES))
    for role in roles:
        if role not in ROLES:
            raise unknown("role", role, list(ROLES))
    from emads.commands.stages import train_stages
    from emads.played_case import run_apart
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    folder = Path(path)
    stored = folder / "config.yaml"
    source = None if config is None else Path(config)
    if source is None and stored.exists():
        source = stored
    run = Run.create(folder, load_config(source, _list_overrides(overrides)))

    def train_in_order() -> None:
        for stage in STAGES:
            if stage in stages:
                train_stages(run, stage, tuple(roles) or tuple(ROLES))

    with _hidden_script():
        run_apart(train_in_order)
    return run


def evaluate(path: str | Path, *, again: bool = False) -> dict[str, Any]:
    """Score every finished stage of a run on its sealed test split; return what summary.json holds.

    Scores that are stored are kept; with `again` everything is played anew.

    Raises:
        UserError: no run there, or nothing trained in it.

    Examples:
        >>> evaluate("runs/none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        roles.errors.UserError: no run in runs/none (no config.yaml there); start one with ...
    """
    run = open_run(path)
    from emads.commands.evaluate import evaluate_run
    from emads.played_case import run_apart

    with _hidden_script():
        return run_apart(lambda: evaluate_run(run.path, again=again))


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Hide the caller's script from worker processes, which would run it again from its first line.

    A spawned process imports what the main module names as its file; our tasks need only this package.
    """
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _list_overrides(given: Sequence[str] | Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return overrides as KEY=VALUE; a dict may be nested or have dotted keys."""
    if not isinstance(given, Mapping):
        return list(given)
    found: list[str] = []
    for key, value in given.items():
        if isinstance(value, Mapping):
            found += _list_overrides(value, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}={json.dumps(value)}")
    return found
