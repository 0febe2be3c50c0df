"""The stage under torchrun: two gloo ranks train, resume and publish what one process does."""

from pathlib import Path

import pytest
import torch
from rank_launch import launch_ranks
from tiny_models import small_model, tiny_tokenizer, weights_of

from roles.registry import ROLES
from training.config.loading import load_config
from training.models.weights import is_finished, load_weights, save_weights
from training.runs.run_folder import Run
from training.stages.marl_on_ranks import main

CHILD = ("-m", "emads.reliability.joint.rank_stage")
SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=48", "data.difficulties=[1]", "marl.max_steps=2", "marl.scenarios_per_step=3",
    "marl.report_sets=2", "marl.decisions_per_set=2", "marl.learning_rate=0.001", "marl.adam_epsilon=1e-8",
    "marl.rate_schedule=constant", "marl.credit.scheme=shared",
    "marl.max_completion_tokens=40", "marl.guards.validate_every=1", "marl.guards.validation_scenarios=2",
)  # fmt: skip


def make_run(path: Path) -> Run:
    """A run whose roles are as they might be after GRPO."""
    run = Run.create(path, load_config(None, SETTINGS))
    for place, role in enumerate(ROLES):
        save_weights(run, "grpo", role, small_model(place), tiny_tokenizer(), step=1)
    return run


@pytest.mark.process
def test_two_ranks_train_resume_and_publish_what_one_process_does(tmp_path: Path) -> None:
    two, one = make_run(tmp_path / "two"), make_run(tmp_path / "one")
    launch_ranks(2, *CHILD, two.path, "--max-steps", "1")
    assert not two.is_done("marl")
    assert [path.name for path in two.path.glob("checkpoints/unfinished/marl/step_*")] == ["step_1"]
    launch_ranks(2, *CHILD, two.path)
    launch_ranks(1, *CHILD, one.path, "--alone")
    for run in (one, two):
        assert [row.step for row in run.read_metrics("marl")] == [1, 2]  # one rank logs, each step once
        assert not (run.path / "checkpoints" / "unfinished" / "marl").exists()
        assert run.read_payload("marl")["weights_changed"] == dict.fromkeys(ROLES, True)
    for role in ROLES:
        assert is_finished(two, "marl", role)
        start, alone, shared = (
            weights_of(load_weights(run, stage, role)[0])
            for run, stage in ((one, "grpo"), (one, "marl"), (two, "marl"))
        )
        assert max(float((alone[name] - start[name]).abs().max()) for name in start) > 1e-4
        for name, value in alone.items():
            torch.testing.assert_close(shared[name], value, atol=1e-5, rtol=0)


def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create(tmp_path / "empty", load_config(None, SETTINGS))
    assert main([str(run.path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: no sound grpo weights in")
    assert message.count("\n") == 1
