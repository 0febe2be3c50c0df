"""Stages whose batches several workers of a run share: the weights are those of one process."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import make_tiny_base

from emads.commands.stages import perform, schedule_tasks
from training.config.loading import load_config
from training.runs.run_folder import Run
from training.stages.on_ranks import count_ranks

SETTINGS = (
    "model.adapter_sharing=shared", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=64", "data.difficulties=[1]", "data.num_demonstrations=0", "sft.max_steps=3",
    "sft.batch_size=20", "grpo.max_steps=1", "grpo.prompts_per_step=2", "grpo.group_size=2",
    "grpo.max_completion_tokens=16", "marl.max_steps=1", "marl.scenarios_per_step=2", "marl.report_sets=2",
    "marl.decisions_per_set=2", "marl.max_completion_tokens=16", "marl.guards.validate_every=0",
)  # fmt: skip


def train(path: Path, num_ranks: int, *stages: str) -> Run:
    run = Run.create(path, load_config(None, [*SETTINGS, f"num_ranks={num_ranks}", "num_workers=1"]))
    make_tiny_base(path)
    tasks = {task.name: task for task in schedule_tasks(run)}
    perform(run, [tasks[name] for name in stages], "ranks")
    return run


def weights_after(run: Run, stage: str) -> dict[str, torch.Tensor]:
    (file,) = (run.path / "checkpoints" / stage).rglob("model.safetensors")
    return load_file(file)


@pytest.mark.process
def test_two_workers_train_one_model_of_all_roles_as_one_does(tmp_path: Path) -> None:
    alone = weights_after(train(tmp_path / "alone", 1, "sft/team"), "sft")
    shared = weights_after(train(tmp_path / "shared", 2, "sft/team"), "sft")
    assert alone.keys() == shared.keys()
    assert max(float((alone[name] - shared[name]).abs().max()) for name in alone) < 1e-4


@pytest.mark.process
def test_the_workers_that_were_ranks_go_on_with_the_next_stages(tmp_path: Path) -> None:
    run = train(tmp_path / "run", 2, "sft/team", "grpo/team", "marl")
    assert all(run.is_done(stage) for stage in ("sft/team", "grpo/team", "marl"))
    assert [row.metrics["sets"] for row in run.read_metrics("marl")] == [2.0]  # of each rank, in the mean


def test_roles_with_weights_of_their_own_are_trained_side_by_side() -> None:
    config = load_config(None, ["num_ranks=2"])
    assert [count_ranks(config, name) for name in ("sft", "grpo", "marl", "sft_more")] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sft.batch_size=15", "sft.batch_size 15 is no multiple of num_ranks 2"),
        ("rollouts={hosts: 2, block_size: 1}", "without rollouts.hosts"),
    ],
)
def test_batches_that_ranks_cannot_share_are_refused(setting: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        load_config(None, [*SETTINGS, "num_ranks=2", setting])
