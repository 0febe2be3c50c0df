"""The stages that learn from labels: corrections, dpo, reward and ppo of one role.

Labels and settings of a stage are copied into the run when it begins (RUN/feedback/STAGE/ROLE), so that
`--resume` needs nothing else. Weights, checkpoints and evaluation are those of every stage.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from roles.errors import UserError
from scenarios.written.strict_yaml import read_settings
from simulator.export.atomic_files import explain_os_errors, write_atomic
from simulator.line_files import read_lines
from training.config.feedback_config import (
    FEEDBACK_CONFIGS,
    CorrectionsConfig,
    DpoConfig,
    FeedbackConfig,
    PpoConfig,
    RewardModelConfig,
)
from training.config.run_config import FIRST_GRPO_INDEX
from training.feedback.labels import Label, read_labels, resolve_labels
from training.feedback.reward_model import RewardModel, build_reward_model
from training.feedback.rows import correction_rows, preference_rows, split_rows
from training.feedback.trainers import count_steps, run_dpo, run_reward_model
from training.models.adapters import owner_of
from training.models.weights import load_trainable, weights_folder
from training.runs.resume import UNFINISHED
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.rl import train_role as train_role_by_rl
from training.stages.sft import publishing, train_on_rows

PPO_OFFSET = 500_000  # of PPO's first scenario after that of GRPO: others than GRPO met
Config = TypeVar("Config", bound=FeedbackConfig)


def resolve_settings(stage: str, overrides: Sequence[str]) -> FeedbackConfig:
    """The settings of a stage from `key=value` pairs.

    Raises:
        UserError: an unknown key or a value out of range; names it.
    """
    kind = FEEDBACK_CONFIGS[stage]
    values = read_settings(overrides, kind.model_fields, option="--set", what=f"setting of {stage}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][0]} = {first['input']!r}: " if first["loc"] else ""
        raise UserError(f"setting {where}{first['msg'].removeprefix('Value error, ')}") from None


def prepare_stage(
    run: Run, stage: str, role: str, labels: Path | None, overrides: Sequence[str], *, resume: bool
) -> None:
    """Copy settings and the role's labels into the run; a stage that has begun must have the same.

    Raises:
        UserError: no labels of the role, other labels or settings than the stage began with.
    """
    folder = _folder(run, stage, role)
    if resume:
        if labels is not None or overrides:
            raise UserError(
                "--resume goes on with the stored labels and settings: leave out --labels and --set"
            )
        if not (folder / "settings.json").is_file():
            raise UserError(f"nothing to resume: {stage} of {role} has not begun in {run.path}")
        return
    made = (weights_folder(run, stage, role), run.path / "checkpoints" / UNFINISHED / stage / role)
    has_begun = any(step for place in made for step in place.glob("step_*"))
    settings = resolve_settings(stage, overrides).model_dump_json(indent=2).encode() + b"\n"
    if stage != "ppo":
        if labels is None:
            raise UserError(f"{stage} learns from labels: give --labels FILE")
        own = [label for label in read_labels(labels) if label.seat == role]
        content = b"".join(label.model_dump_json().encode() + b"\n" for label in own)
        style = run.config.model.prompts
        if other := {label.provenance.style for label in own} - {style}:
            raise UserError(
                f"{labels} holds labels on prompts of style {other.pop()!r}, and {run.path} has"
                f" {style!r}: label answers of this run"
            )
        _keep(folder / "labels.jsonl", content, f"labels of {stage} of {role}", has_begun=has_begun)
    _keep(folder / "settings.json", settings, f"settings of {stage} of {role}", has_begun=has_begun)


def train_corrections(run: Run, owner: str) -> None:
    """SFT of one role on what reviewers wrote and approved."""
    role, settings = owner, _read_settings(run, "corrections", owner, CorrectionsConfig)
    model, tokenizer = load_trainable(run, settings.source, role)
    chat = make_chat(tokenizer, run.config)
    labels = _read_resolved(run, "corrections", role)
    rows = correction_rows(labels, chat, with_approved=settings.with_approved)
    _require(rows, "correction", run, "corrections", role)
    layout = "padded" if run.config.sft.row_layout == "packed" else run.config.sft.row_layout
    config = run.config.changed(
        sft__batch_size=settings.batch_size,
        sft__optimizer="adamw",
        sft__learning_rate=settings.learning_rate,
        sft__micro_batch_size=math.gcd(run.config.sft.micro_batch_size, settings.batch_size),
        sft__row_layout=layout,
        sft__validate_every=0,
        sft__patience=0,
    )
    start, steps = (run, settings.source, role), count_steps(len(rows), settings.batch_size, settings.epochs)
    changed = replace(run, config=config)
    train_on_rows(changed, "corrections", role, model, tokenizer, rows, [], start=start, max_steps=steps)


def train_dpo(run: Run, owner: str) -> None:
    """DPO of one role on comparisons."""
    role, settings = owner, _read_settings(run, "dpo", owner, DpoConfig)
    model, tokenizer = load_trainable(run, settings.source, role)
    pairs = preference_rows(_read_resolved(run, "dpo", role), make_chat(tokenizer, run.config))
    _require(pairs, "comparison", run, "dpo", role)
    with publishing(run, "dpo", role, model, tokenizer) as (site, payload):
        payload |= {"step": run_dpo(model, tokenizer, pairs, settings, site), "num_rows": float(len(pairs))}


def train_reward(run: Run, owner: str) -> None:
    """A reward model of one role on comparisons; its accuracy on those kept out of training is stored."""
    role, settings = owner, _read_settings(run, "reward", owner, RewardModelConfig)
    model, tokenizer = build_reward_model(run, settings.source, role)
    rows = preference_rows(_read_resolved(run, "reward", role), make_chat(tokenizer, run.config))
    training, held_out = split_rows(rows, settings.validation_share, run.config.seed)
    _require(training, "comparison", run, "reward", role)
    with publishing(run, "reward", role, model, tokenizer) as (site, payload):
        payload["step"] = run_reward_model(model, tokenizer, training, settings, site)
        judge = RewardModel(model)
        judge.set_spread(training)
        payload |= {"num_rows": float(len(training)), "num_held_out": float(len(held_out))}
        for name, pairs in (("accuracy", held_out), ("training_accuracy", training)):
            if (accuracy := judge.accuracy(pairs)) is not None:
                payload[name] = accuracy


def train_ppo(run: Run, owner: str) -> None:
    """PPO of one role on the score of its reward model: the loop of GRPO with the advantages of a value head.

    Source: arXiv:1707.06347; KL is a term of the loss, in arXiv:2203.02155 it is taken off the reward.
    """
    settings = _read_settings(run, "ppo", owner, PpoConfig)
    grpo, first = settings.as_grpo(run.config.grpo), FIRST_GRPO_INDEX + PPO_OFFSET
    train_role_by_rl(run, "ppo", owner, grpo, first_index=first, source=settings.source)


def _read_settings(run: Run, stage: str, role: str, kind: type[Config]) -> Config:
    """The settings with which the stage began."""
    stored = _folder(run, stage, role) / "settings.json"
    try:
        return kind.model_validate_json(stored.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(
            f"cannot read {stored}: {str(error).splitlines()[0]}; remove it and begin again"
        ) from None


def _read_resolved(run: Run, stage: str, role: str) -> tuple[Label, ...]:
    """One label per item that reviewers agree on."""
    return resolve_labels(read_labels(_folder(run, stage, role) / "labels.jsonl")).labels


def _folder(run: Run, stage: str, role: str) -> Path:
    return run.path / "feedback" / stage / owner_of(run.config.model, role)


def _keep(path: Path, content: bytes, what: str, *, has_begun: bool) -> None:
    """Write the file, or refuse other content than the stage has begun with."""
    if has_begun and path.is_file() and path.read_bytes() != content:
        raise UserError(
            f"{what} in {path.parent} are others: go on with --resume, or remove that folder"
            " and what the stage made to begin again"
        )
    with explain_os_errors("write", path):
        write_atomic(path, content)


def _require(rows: Sequence[Any], kind: str, run: Run, stage: str, role: str) -> None:
    if not rows:
        labels = read_lines(_folder(run, stage, role) / "labels.jsonl")
        raise UserError(
            f"{stage} of {role} needs labels of kind {kind!r}, and none of the {len(labels)} labels of this"
            " role is one that reviewers agree on"
        )
