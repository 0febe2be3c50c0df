"""Calls of the public Python API that make scenarios, train runs and score them.

Those that train or score start worker processes (`num_workers` of the config): call them under
`if __name__ == "__main__":`, or set `num_workers=0`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios import team
from scenarios.base import Scenario, Split
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario

if TYPE_CHECKING:
    from training.runs.run_folder import Run

TEAM = "team"
STAGES = ("base", "sft", "grpo", "marl")


def generate(
    family: str,
    count: int = 1,
    *,
    split: Split = "train",
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
) -> list[Scenario | TeamScenario]:
    """Return the first `count` scenarios of a family, or of "team"; the difficulties take turns.

    Raises:
        UserError: unknown family, count under 1, no difficulties.

    Examples:
        >>> [scenario.key for scenario in generate("cto", 2)]
        ['cto/train/0/0/1', 'cto/train/0/1/2']
    """
    if family not in (*FAMILIES, TEAM):
        raise unknown("family", family, [*FAMILIES, TEAM])
    if count < 1 or not difficulties:
        raise UserError(f"count {count} and difficulties {list(difficulties)} must be 1 or more each")
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

    return Run.open(Path(path))


def train(
    path: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Sequence[str] = (),
    stages: Sequence[str] = STAGES,
    roles: Sequence[str] = (),
) -> "Run":
    """Train stages of a run, in the order base, sft, grpo, marl, and return it; what is done is kept.

    A new run takes its config from `config` and `overrides` such as "sft.max_steps=20"; an existing one has
    its own. `roles`: those that sft and grpo train; none for all.

    Raises:
        UserError: wrong config, unknown stage or role, another config than the existing run's, or a stage
            whose earlier stages are not done.

    Examples:
        >>> train("runs/x", stages=["sfd"])
        Traceback (most recent call last):
            ...
        roles.errors.UserError: unknown stage 'sfd'; did you mean 'sft'? (known: base, sft, grpo, marl)
    """
    for stage in stages:
        if stage not in STAGES:
            raise unknown("stage", stage, list(STAGES))
    for role in roles:
        if role not in ROLES:
            raise unknown("role", role, list(ROLES))
    from emads.commands.train import train_stage
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    folder = Path(path)
    stored = folder / "config.yaml"
    source = None if config is None else Path(config)
    if source is None and stored.exists():
        source = stored
    run = Run.create(folder, load_config(source, overrides))
    for stage in STAGES:
        if stage in stages:
            train_stage(run, stage, tuple(roles) or tuple(ROLES))
    return run


def evaluate(path: str | Path, *, again: bool = False) -> dict[str, Any]:
    """Score every finished stage of a run on its sealed test split; return what summary.json holds.

    Scores that are stored are kept; with `again` everything is played anew.

    Raises:
        UserError: no run there, or nothing trained in it.
    """
    from emads.commands.evaluation.evaluate_run import evaluate_run

    return evaluate_run(Path(path), again=again)
