"""Weights in a run folder: published once per stage and owner; whole models, or a base and adapters on it.

An owner is a role, or the team where all roles share one adapter. With adapters `checkpoints/STAGE/OWNER`
holds the adapter alone, and the frozen base is stored once, under `checkpoints/base`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.errors import UserError
from roles.team import RECONCILER, TEAM_ROLES
from simulator.engines.adapter_names import SINGLE, adapter_of
from training.config.model_config import ModelConfig
from training.models.adapters import attach, load_adapters, owner_of, owners_of, role_weights, save_adapter
from training.models.base_model import PRETRAINED, load_checkpoint, load_frozen_base
from training.runs.checkpoints import newest_sound, publish, read_manifest
from training.runs.run_folder import Run

BASE = "base"
JOINT = "marl"  # the stage that trains all roles at once
Team = Mapping[str, PreTrainedModel]


def is_finished(run: Run, stage: str, role: str | None = None) -> bool:
    """Return whether the stage is marked done and its weights are sound; damaged ones are set aside."""
    if not run.is_done(stage_marker(run, stage, role)):
        return False
    return newest_sound(weights_folder(run, stage, role), run=weights_identity(run, stage, role)) is not None


def stage_marker(run: Run, stage: str, role: str | None) -> str:
    """Under which name a stage of a role is marked done: "sft/cto", "sft/team", or the stage of all roles."""
    if role is None or stage in (BASE, JOINT):
        return stage
    return f"{stage}/{owner_of(run.config.model, role)}"


def weights_folder(run: Run, stage: str, role: str | None) -> Path:
    """Folder of a stage's checkpoints of one role (None: of all)."""
    folder = run.path / "checkpoints" / stage
    return folder if role is None else folder / owner_of(run.config.model, role)


def weights_identity(run: Run, stage: str, role: str | None) -> str:
    """Name of a run in a manifest: another role's or stage's weights are as wrong as another run's."""
    return "/".join([run.digest, stage, *([owner_of(run.config.model, role)] if role else [])])


def save_weights(
    run: Run,
    stage: str,
    role: str | None,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    step: int,
) -> None:
    """Publish weights and tokenizer; of a model with adapters the role's adapter alone."""

    def write(folder: Path) -> None:
        if role is not None and adapter_of(model, role) is not None:
            save_adapter(model, folder, role=role, base=_name_base(run))
        else:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    identity = weights_identity(run, stage, role)
    publish(weights_folder(run, stage, role), f"step_{step}", write, run=identity, step=step)


def find_weights(run: Run, stage: str, role: str) -> Path:
    """The newest sound checkpoint of a role after a stage.

    Raises:
        UserError: there is none; says which command makes it.
    """
    owner = None if stage == BASE else role
    folder = weights_folder(run, stage, owner)
    found = newest_sound(folder, run=weights_identity(run, stage, owner))
    if found is None:
        raise UserError(
            f"no sound {stage} weights in {folder}; make them with `emads train {stage} {run.path}`"
        )
    return found


def load_weights(
    run: Run, stage: str, role: str, *, dtype: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The weights of a role after a stage; with adapters the frozen base and the role's own adapter.

    The base is in the precision `dtype`, or in that of the run's config.

    Raises:
        UserError: there are none; says which command makes them.
    """
    if run.config.model.adapter == "none":
        return load_checkpoint(find_weights(run, stage, role))
    config = run.config.model if dtype is None else run.config.model.model_copy(update={"dtype": dtype})
    base, tokenizer = load_frozen_base(find_weights(run, BASE, role), config)
    if stage == BASE:
        return base, tokenizer
    return cast(PreTrainedModel, load_adapters(base, {SINGLE: find_weights(run, stage, role)})), tokenizer


def load_trainable(
    run: Run, stage: str, role: str, *, dtype: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Weights that a role's next stage trains: those of `load_weights`, or a new adapter on the base."""
    model, tokenizer = load_weights(run, stage, role, dtype=dtype)
    if run.config.model.adapter != "none" and stage == BASE:
        model = cast(PreTrainedModel, attach(model, run.config.model, seed=run.config.seed))
    return model, tokenizer


def load_team(
    run: Run, stage: str, *, model: ModelConfig | None = None
) -> tuple[dict[str, PreTrainedModel], PreTrainedTokenizerBase]:
    """Every weights of the team's roles after a stage; the tokenizer is the same for all.

    Weights that all roles share are loaded once, and so is the base of adapters: then all roles have the
    same model, whose adapters bear their owners' names. `model`: in place of the config's.
    """
    config = model or run.config.model
    owners = owners_of(config, TEAM_ROLES)
    if config.adapter == "none":
        loaded = {owner: load_weights(run, stage, owner) for owner in owners}
        tokenizer = next(iter(loaded.values()))[1]
        return {role: loaded[owner_of(config, role)][0] for role in TEAM_ROLES}, tokenizer
    base, tokenizer = load_frozen_base(find_weights(run, BASE, RECONCILER), config)
    if stage != BASE:
        folders = {owner: find_weights(run, stage, owner) for owner in owners}
        base = cast(PreTrainedModel, load_adapters(base, folders))
    return dict.fromkeys(TEAM_ROLES, base), tokenizer


def open_start(run: Run, key: str, folder: str) -> Run:
    """The run in `folder`, which the config's `key` names, if its weights fit those of `run`.

    Raises:
        UserError: no run there, its model has another shape, or its adapters are of another base.
    """
    try:
        other = Run.open(Path(folder))
    except UserError as error:
        raise UserError(f"{key} {folder}: {error}") from None
    differing = [
        f"{name} {value!r} there, {getattr(run.config.model, name)!r} here"
        for name, value in other.config.model
        if name != "dtype" and value != getattr(run.config.model, name)
    ]
    if differing:
        raise UserError(f"{key} {folder}: its model is another one ({'; '.join(differing)})")
    if run.config.model.adapter != "none":
        bases = [read_manifest(find_weights(one, BASE, RECONCILER)).files for one in (other, run)]
        if bases[0] != bases[1]:
            raise UserError(f"{key} {folder}: its adapters are of another base than that of {run.path}")
    return other


def copy_weights(model: nn.Module, role: str) -> dict[str, torch.Tensor]:
    """A copy, on the host, of what training the role may change, to tell later whether a stage changed it."""
    return {name: one.to("cpu", copy=True) for name, one in role_weights(model, role).items()}


def weights_differ(model: nn.Module, before: Mapping[str, torch.Tensor]) -> bool:
    """Return whether any of the copied parameters is another one now."""
    now = dict(model.named_parameters())
    return any(not torch.equal(now[name].detach().cpu(), copy) for name, copy in before.items())


def finish_stage(
    run: Run,
    stage: str,
    role: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    before: Mapping[str, torch.Tensor],
    *,
    step: int,
    train_s: float,
    **payload: float,
) -> None:
    """Publish a role's new weights, then mark its stage done."""
    save_weights(run, stage, role, model, tokenizer, step=step)
    changed = weights_differ(model, before)
    marker = stage_marker(run, stage, role)
    run.mark_done(marker, {"train_s": train_s, "weights_changed": changed, "steps": step, **payload})


def _name_base(run: Run) -> str:
    """Name of the base in an adapter: the hub's id, or the place in the run folder."""
    preset = run.config.model.preset
    return PRETRAINED.get(preset, preset if "/" in preset else f"checkpoints/{BASE}/step_0")
