"""Stages of another run, taken over where the settings that made them are equal.

So that GRPO or joint training can be tried with other settings from the same weights, and a run that was
begun goes on with a changed config.
"""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

from evaluation.scoring.outcomes import MODES, outcome_path
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from training.config.run_config import RunConfig, without_neutral
from training.models.adapters import owners_of
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
from training.stages.evaluation import UNTRAINED, outcomes_folder, weights_of
from training.stages.table import list_stage_owners, list_stages, trace_stage


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
