"""Every training stage in one table: whose weights it starts from and trains, what decides them.

A stage reads the newest sound weights of its source, and publishes its own once, as
`checkpoints/STAGE/OWNER`; then `stages/STAGE/OWNER.json` marks it done. One that is done is skipped; a killed
one goes on from its newest checkpoint in `checkpoints/unfinished/STAGE/OWNER`. `--take-from` copies a stage
of another run where the config sections of the stage and of all sources before it are equal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from roles.team import TEAM_ROLES
from scenarios.team.single import SINGLE
from training.config.run_config import RunConfig
from training.learner.ranks import ONE_RANK, Ranks
from training.models.adapters import list_owners, roles_of
from training.models.weights import is_finished
from training.runs.run_folder import Run
from training.stages.controls import (
    count_grpo_steps,
    count_sft_steps,
    count_single_grpo_steps,
    train_grpo_instead,
    train_sft_best_habit,
    train_sft_instead,
    train_sft_own,
    train_single_grpo,
    train_single_sft,
)
from training.stages.feedback import train_corrections, train_ppo, train_preferences, train_reward
from training.stages.rl import train_grpo, train_marl
from training.stages.sft import count_control_steps, train_base, train_sft, train_sft_more

Kind = Literal["schedule", "role_control", "team_control", "labels"]
Owners = Literal["run", "all", "team", "single"]
FEEDBACK_UNITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One training stage. Example: STAGES["grpo"].source == "sft" """

    name: str
    kind: Kind = "schedule"  # a control spends the compute of GRPO (role) or joint training (team) otherwise
    source: str = ""  # stage whose weights it starts from; "": from nothing, or as settings beside labels say
    owners: Owners = "all"  # of its weights: the whole run, each owner, each with a seat, the single agent
    sections: tuple[str, ...] = ()  # of the config, that decide its weights beside those of its source
    train: Callable[..., None]  # train(run, owner, source, ranks), of these what `owners` and `on_ranks` say
    count_steps: Callable[[RunConfig, str], int] = lambda config, owner: 1
    step_units: float = 1  # of the progress bar: steps of SFT by a demo's seconds on two cores
    step_reports: float = 1  # units that its code reports for a step
    on_ranks: bool = False  # whether several processes can share its batches


_GRPO: dict[str, Any] = {"step_units": 4, "step_reports": 5}
_ON_LABELS: dict[str, Any] = {"kind": "labels", "count_steps": lambda config, owner: FEEDBACK_UNITS}
_INSTEAD: dict[str, Any] = {"kind": "team_control", "source": "grpo", "sections": ("marl",), "owners": "team"}
_TABLE = (
    Stage(name="base", owners="run", sections=("seed", "model", "data"), train=train_base),
    Stage(name="sft", source="base", sections=("sft",), train=train_sft, on_ranks=True,
          count_steps=lambda config, owner: config.sft.max_steps),
    Stage(name="grpo", source="sft", sections=("grpo",), train=train_grpo, on_ranks=True,
          count_steps=lambda config, owner: config.grpo.max_steps, **_GRPO),
    Stage(name="marl", source="grpo", owners="run", sections=("marl", "team_reward"), train=train_marl,
          on_ranks=True, count_steps=lambda config, owner: config.marl.max_steps,
          step_units=21, step_reports=10),
    Stage(name="sft_more", kind="role_control", source="sft", sections=("grpo",), train=train_sft_more,
          count_steps=count_control_steps),
    Stage(name="sft_own", kind="role_control", source="sft", sections=("grpo",), train=train_sft_own,
          count_steps=count_control_steps),
    Stage(name="sft_instead", train=train_sft_instead, count_steps=count_sft_steps, **_INSTEAD),
    Stage(name="grpo_instead", train=train_grpo_instead, count_steps=count_grpo_steps, **_INSTEAD, **_GRPO),
    Stage(name="sft_best_habit", train=train_sft_best_habit, count_steps=count_sft_steps, **_INSTEAD),
    Stage(name="single_sft", kind="team_control", source="base", owners="single", sections=("sft",),
          train=train_single_sft, count_steps=lambda config, owner: config.sft.max_steps),
    Stage(name="single_grpo", kind="team_control", source="single_sft", owners="single",
          sections=("grpo", "marl", "team_reward"), train=train_single_grpo,
          count_steps=lambda config, owner: count_single_grpo_steps(config), **_GRPO),
    Stage(name="corrections", train=train_corrections, **_ON_LABELS),
    Stage(name="dpo", train=partial(train_preferences, stage="dpo"), **_ON_LABELS),
    Stage(name="kto", train=partial(train_preferences, stage="kto"), **_ON_LABELS),
    Stage(name="reward", train=train_reward, **_ON_LABELS),
    Stage(name="ppo", train=train_ppo, **_ON_LABELS),
)  # fmt: skip
STAGES = {stage.name: stage for stage in _TABLE}


def list_stages(*kinds: Kind) -> list[str]:
    """Names of the stages of these kinds, in the table's order."""
    return [stage.name for stage in _TABLE if stage.kind in kinds]


def list_stage_owners(config: RunConfig, name: str) -> tuple[str | None, ...]:
    """Whose weights a stage trains, None for a stage of the whole run."""
    owners = list_owners(config.model)
    match STAGES[name].owners:
        case "run":
            return (None,)
        case "single":
            return (SINGLE,)
        case "team":
            return tuple(owner for owner in owners if set(roles_of(owner)) & set(TEAM_ROLES))
        case "all":
            return owners


def trace_stage(name: str) -> Iterator[Stage]:
    """The stage, its source, and so on back to the base."""
    while name:
        yield STAGES[name]
        name = STAGES[name].source


def train_stage(
    path: Path, name: str, owner: str | None = None, ranks: Ranks = ONE_RANK, **options: Any
) -> None:
    """Train one stage of an owner in this process, as one of its ranks; one that is done is left as it is.

    `options` go to the stage's own function.
    """
    stage, run = STAGES[name], Run.open(path)
    with ranks.main_process_first():
        if all(is_finished(run, name, role) for role in (TEAM_ROLES if name == "marl" else (owner,))):
            return
    given: dict[str, Any] = options | ({} if owner is None else {"owner": owner})
    given |= {"source": stage.source} if stage.source else {}
    stage.train(run, **given, **({"ranks": ranks} if stage.on_ranks else {}))
