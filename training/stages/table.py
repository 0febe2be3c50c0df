"""Every training stage in one table: whose weights it starts from and trains, what decides them.

A stage reads the newest sound weights of its source, and publishes its own once, as
`checkpoints/STAGE/OWNER`; then `stages/STAGE/OWNER.json` marks it done. One that is done is skipped; a killed
one goes on from its newest checkpoint in `checkpoints/unfinished/STAGE/OWNER`. `--take-from` copies a stage
of another run where the config sections of the stage and of all sources before it are equal. So GRPO or joint
training can be tried with other settings from the same weights, and a run that was begun goes on with a
changed config.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from evaluation.scoring.baselines import BEST_SHOWN
from evaluation.scoring.outcomes import MODES, outcome_path
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.team.single import SINGLE
from simulator.export.atomic_files import claim_folder
from training.config.run_config import RunConfig, without_neutral
from training.learner.ranks import ONE_RANK, Ranks
from training.models.adapters import list_owners, owners_of, roles_of
from training.models.weights import (
    BASE,
    JOINT,
    find_weights,
    is_finished,
    stage_marker,
    weights_folder,
    weights_identity,
)
from training.runs.checkpoints import MANIFEST, publish, step_in_name
from training.runs.run_folder import Run
from training.stages.controls import (
    count_grpo_steps,
    count_sft_steps,
    count_single_grpo_steps,
    count_single_sft_steps,
    train_grpo_instead,
    train_sft_own,
    train_single_grpo,
    train_single_sft,
)
from training.stages.evaluation import UNTRAINED, outcomes_folder, weights_of
from training.stages.feedback import train_corrections, train_dpo, train_ppo, train_reward
from training.stages.rl import train_grpo, train_marl
from training.stages.sft import count_control_steps, train_base, train_further, train_sft

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
    Stage(name="sft_more", kind="role_control", source="sft", sections=("grpo",),
          train=partial(train_further, stage="sft_more", count=count_control_steps),
          count_steps=count_control_steps),
    Stage(name="sft_own", kind="role_control", source="sft", sections=("grpo",), train=train_sft_own,
          count_steps=count_control_steps),
    Stage(name="sft_instead", train=partial(train_further, stage="sft_instead", count=count_sft_steps),
          count_steps=count_sft_steps, **_INSTEAD),
    Stage(name="grpo_instead", train=train_grpo_instead, count_steps=count_grpo_steps, **_INSTEAD, **_GRPO),
    Stage(name="sft_best_habit", count_steps=count_sft_steps, **_INSTEAD,
          train=partial(train_further, stage="sft_best_habit", count=count_sft_steps, habits=BEST_SHOWN)),
    Stage(name="single_sft", kind="team_control", source="base", owners="single", sections=("sft",),
          train=train_single_sft, count_steps=lambda config, owner: count_single_sft_steps(config)),
    Stage(name="single_grpo", kind="team_control", source="single_sft", owners="single",
          sections=("grpo", "marl", "team_reward"), train=train_single_grpo,
          count_steps=lambda config, owner: count_single_grpo_steps(config), **_GRPO),
    Stage(name="corrections", train=train_corrections, **_ON_LABELS),
    Stage(name="dpo", train=train_dpo, **_ON_LABELS),
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

    Raises:
        UserError: another process trains it.
    """
    stage, run = STAGES[name], Run.open(path)
    given: dict[str, Any] = options | ({} if owner is None else {"owner": owner})
    given |= {"source": stage.source} if stage.source else {}
    claimed = run.path / "stages" / stage_marker(run, name, owner)  # that nothing else locks
    with claim_folder(claimed, "run folder") if ranks.rank == 0 else nullcontext():
        with ranks.main_process_first():
            if all(is_finished(run, name, role) for role in (TEAM_ROLES if name == "marl" else (owner,))):
                return
        stage.train(run, **given, **({"ranks": ranks} if stage.on_ranks else {}))


def prefix_digest(config: RunConfig, stage: str) -> str:
    """Equal exactly for configs whose weights after `stage` are equal."""
    sections = {section for one in trace_stage(stage) for section in one.sections}
    dumped = without_neutral(config.model_dump(mode="json", include=sections))
    return hashlib.sha256(json.dumps([stage, dumped], sort_keys=True).encode()).hexdigest()


def take_over(donor: Run, run: Run) -> list[str]:
    """Copy every finished stage of `donor` that `run` has not done and would do alike; returns their names.

    Their metrics and, where the evaluation is set alike, their sealed plays go along.

    Raises:
        UserError: not even the bases are made alike, or a stage's weights are damaged.
    """
    if prefix_digest(donor.config, BASE) != prefix_digest(run.config, BASE):
        raise UserError(
            f"nothing of {donor.path} can be taken over: seed, model or data of its config differ from"
            f" those of {run.path}"
        )
    taken = []
    config = run.config
    stages = list_stages("schedule", "role_control")
    for stage, owner in ((one, owner) for one in stages for owner in list_stage_owners(config, one)):
        marker = stage_marker(run, stage, owner)
        alike = prefix_digest(donor.config, stage) == prefix_digest(run.config, stage)
        if not alike or not donor.is_done(marker) or is_finished(run, stage, owner):
            continue
        if stage != JOINT or num_joint_steps(donor) == run.config.marl.max_steps:  # not ended early
            copy_stage(donor, run, stage, owner)
            for row in donor.read_metrics(marker):
                run.log(marker, row.step, row.metrics)
            taken.append(marker)
    for title in (UNTRAINED, *stages[1:]):
        stage = weights_of(title)
        markers = {role: stage_marker(run, stage, role) for role in ROLES}
        for role, marker in markers.items():
            if marker in taken:
                copy_scores(donor, run, title, role)
        if set(markers.values()) <= set(taken):
            copy_scores(donor, run, title, "team")
    return taken


def copy_stage(donor: Run, run: Run, stage: str, owner: str | None) -> None:
    """Publish the donor's weights as this run's own; of joint training those of the whole team."""
    marker = stage_marker(run, stage, owner)
    payload = donor.read_payload(marker)
    owners = {BASE: (None,), JOINT: owners_of(run.config.model, TEAM_ROLES)}.get(stage, (owner,))
    for one in owners:
        source = find_weights(donor, stage, one or RECONCILER)
        publish(
            weights_folder(run, stage, one),
            source.name,
            partial(_copy_files, source),
            run=weights_identity(run, stage, one),
            step=step_in_name(source) or 0,
        )
    run.mark_done(marker, payload | {"taken_from": str(donor.path)})


def num_joint_steps(run: Run) -> int:
    """Steps of joint training up to its result; those of the config where the stage does not tell."""
    return int(run.read_payload(JOINT).get("steps", run.config.marl.max_steps))


def _copy_files(source: Path, target: Path) -> None:
    for file in source.iterdir():
        if file.name != MANIFEST:
            shutil.copyfile(file, target / file.name)


def copy_scores(donor: Run, run: Run, stage: str, owner: str) -> None:
    """Copy every play of an evaluation that is set alike, finished or not; scores follow from them."""
    if run.is_done(f"evaluate/{stage}/{owner}") or run.config.evaluation != donor.config.evaluation:
        return
    target = outcomes_folder(run)
    target.mkdir(parents=True, exist_ok=True)
    for mode in MODES:
        file = outcome_path(outcomes_folder(donor), stage, owner, mode)
        if file.is_file():  # greedy play may be left out
            shutil.copyfile(file, target / file.name)
