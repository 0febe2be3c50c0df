"""Stages that learn from labels, on a tiny run: killed and resumed to the same bits; what they refuse."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from planned_faults import Fault
from played_labels import ROLE, draw_labels

from emads.cli.app import main
from emads.commands.stages import train_on_labels
from reliability.stages import tiny_runs
from roles.errors import UserError
from training.config.run_config import RunConfig
from training.feedback.labels import Label, add_label, read_labels
from training.feedback.reward_model import load_reward_model
from training.models.weights import BASE, is_finished, load_weights, save_weights
from training.runs.run_folder import Run
from training.stages.feedback import prepare_stage
from training.stages.from_config import make_chat
from training.stages.table import train_stage

TRAIN: dict[str, Callable[[Path], None]] = {
    stage: partial(train_stage, name=stage, owner=ROLE) for stage in ("corrections", "dpo", "reward", "ppo")
}
SETTINGS = {
    **{key: ["epochs=2", "batch_size=4"] for key in ("corrections", "dpo", "reward")},
    "ppo": ["max_steps=4", "prompts_per_step=4"],
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run with untrained weights after SFT, and labels of every kind on its answers."""
    folder = tmp_path_factory.mktemp("feedback")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.stages.sft.TOKENIZER_SCENARIOS", 10)
        tiny_runs.prepare(folder / "run")
    run = Run.open(folder / "run")
    model, tokenizer = load_weights(run, BASE, ROLE)
    save_weights(run, "sft", ROLE, model, tokenizer, step=0)
    add_label(folder / "labels.jsonl", *draw_labels(model, make_chat(tokenizer, run.config), 8))
    return run, folder / "labels.jsonl"


def begin(source: Run, folder: Path, stage: str, labels: Path) -> Run:
    """A copy of the run in which the stage can start."""
    shutil.copytree(source.path, folder)
    run = Run.open(folder)
    settings = ["source=sft", *SETTINGS[stage]]
    if stage == "ppo":
        prepare_stage(run, "reward", ROLE, labels, ["source=sft", "epochs=6"], resume=False)
        train_stage(folder, "reward", ROLE)
    prepare_stage(run, stage, ROLE, None if stage == "ppo" else labels, settings, resume=False)
    return run


def published(run: Run, stage: str) -> list[bytes]:
    folder = run.path / "checkpoints" / stage / ROLE
    return [file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))]


@pytest.mark.process
@pytest.mark.parametrize("stage", list(TRAIN))
def test_a_killed_stage_goes_on_to_the_same_weights(
    stage: str, tiny: tuple[Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, labels = tiny
    monkeypatch.setitem(tiny_runs.TRAIN, stage, TRAIN[stage])
    whole = begin(run, tmp_path / "whole", stage, labels)
    assert tiny_runs.train_in_fork(whole.path, stage) == 0, tiny_runs.read_log(whole.path)
    broken = begin(run, tmp_path / "broken", stage, labels)
    kill = Fault(kind="kill", place="save", count=3, stage=None)
    status = tiny_runs.train_in_fork(broken.path, stage, [kill])
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not is_finished(broken, stage, ROLE)
    assert tiny_runs.train_in_fork(broken.path, stage) == 0, tiny_runs.read_log(broken.path)
    assert "going on after step 2" in tiny_runs.read_log(broken.path)
    assert published(broken, stage) == published(whole, stage) != []
    folder = run.path / "checkpoints" / "sft" / ROLE
    started = [file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))]
    assert published(whole, stage) != started


def test_labels_and_settings_of_a_stage_are_kept_and_no_others_are_mixed_in(
    tiny: tuple[Run, Path], tmp_path: Path
) -> None:
    source, labels = tiny
    run = begin(source, tmp_path / "run", "dpo", labels)
    kept = (run.path / "feedback" / "dpo" / ROLE / "labels.jsonl").read_bytes()
    assert kept == labels.read_bytes()
    settings = ["source=sft", *SETTINGS["dpo"]]
    prepare_stage(run, "dpo", ROLE, labels, settings, resume=False)  # the same again
    prepare_stage(run, "dpo", ROLE, None, [], resume=True)
    (run.path / "checkpoints" / "unfinished" / "dpo" / ROLE / "step_1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"settings of dpo of cto .* are others"):
        prepare_stage(run, "dpo", ROLE, labels, [*settings, "beta=0.3"], resume=False)
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_bytes(b"".join(labels.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(UserError, match=r"labels of dpo of cto .* are others"):
        prepare_stage(run, "dpo", ROLE, fewer, settings, resume=False)
    with pytest.raises(UserError, match="leave out --labels and --set"):
        prepare_stage(run, "dpo", ROLE, labels, [], resume=True)
    with pytest.raises(UserError, match="has not begun"):
        prepare_stage(run, "corrections", ROLE, None, [], resume=True)


def test_a_stage_that_made_nothing_takes_other_labels_and_settings(
    tiny: tuple[Run, Path], tmp_path: Path
) -> None:
    source, labels = tiny
    shutil.copytree(source.path, tmp_path / "run")
    run, empty = Run.open(tmp_path / "run"), tmp_path / "empty.jsonl"
    empty.touch()
    prepare_stage(run, "dpo", ROLE, empty, ["source=grpo"], resume=False)
    with pytest.raises(UserError, match="no sound grpo weights"):
        train_stage(run.path, "dpo", ROLE)
    settings = ["source=sft", *SETTINGS["dpo"]]
    prepare_stage(run, "dpo", ROLE, empty, settings, resume=False)
    with pytest.raises(UserError, match="none of the 0 labels"):
        train_stage(run.path, "dpo", ROLE)
    prepare_stage(run, "dpo", ROLE, labels, settings, resume=False)
    train_stage(run.path, "dpo", ROLE)
    assert is_finished(run, "dpo", ROLE)
    with pytest.raises(UserError, match=r"labels of dpo of cto .* are others"):
        prepare_stage(run, "dpo", ROLE, empty, settings, resume=False)


def test_weights_that_roles_share_learn_from_the_labels_of_one(
    tiny: tuple[Run, Path], tmp_path: Path
) -> None:
    config = RunConfig().changed(model__adapter_sharing="shared")
    run = Run.create(tmp_path / "run", config)
    with pytest.raises(UserError, match=r"share weights, which .*give --role"):
        train_on_labels(run, "dpo", ("cto", "coo"), tiny[1], [])


@pytest.mark.parametrize(
    ("stage", "overrides", "named"),
    [
        ("dpo", ["betta=1"], "beta"),
        ("dpo", ["beta=0"], "beta = 0"),
        ("dpo", ["beta"], "key=value"),
        ("ppo", ["model_share=2"], "model_share"),
        ("reward", ["validation_share=1"], "validation_share"),
    ],
)
def test_a_wrong_setting_is_named(
    stage: str, overrides: list[str], named: str, tiny: tuple[Run, Path]
) -> None:
    run, labels = tiny
    with pytest.raises(UserError, match=named):
        prepare_stage(run, stage, ROLE, labels, overrides, resume=False)


def test_a_role_without_labels_or_without_a_reward_model_is_refused(
    tiny: tuple[Run, Path], tmp_path: Path
) -> None:
    source, labels = tiny
    folder = tmp_path / "run"
    shutil.copytree(source.path, folder)
    run = Run.open(folder)
    prepare_stage(run, "dpo", "risk", labels, ["source=grpo"], resume=False)
    with pytest.raises(UserError, match="needs labels of kind 'comparison'"):
        train_stage(folder, "dpo", "risk")
    with pytest.raises(UserError, match=r"has no reward model .*emads train reward"):
        load_reward_model(run, "risk")


def test_labels_on_other_prompts_are_refused(tiny: tuple[Run, Path], tmp_path: Path) -> None:
    run, labels = tiny
    other: list[Label] = [
        label.model_copy(update={"provenance": label.provenance.model_copy(update={"style": "full"})})
        for label in read_labels(labels)
    ]
    add_label(tmp_path / "full.jsonl", *other)
    with pytest.raises(UserError, match="style 'full'"):
        prepare_stage(run, "dpo", ROLE, tmp_path / "full.jsonl", [], resume=False)


def test_label_verbs(tiny: tuple[Run, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.jsonl"
    shutil.copy(tiny[1], labels)
    assert main(["labels", "show", str(labels)]) == 0
    assert "cto comparison: 8" in capsys.readouterr().out
    assert main(["train", "dpo", str(tmp_path / "nowhere"), "--labels", str(labels)]) == 2
    assert "no run in" in capsys.readouterr().err
