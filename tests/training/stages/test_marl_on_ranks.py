"""The stage under torchrun: two gloo ranks train, resume and publish what one process does."""

from pathlib import Path

import pytest
import torch
from rank_launch import ROOT, launch_nodes, launch_ranks
from tiny_models import small_model, tiny_tokenizer, weights_of

from roles.registry import ROLES
from training.config.loading import load_config
from training.models.weights import is_finished, load_weights, save_weights
from training.runs.run_folder import Run
from training.stages.on_ranks import main

TWO_NODES = ROOT / "configs" / "marl" / "2node.yaml"
CHILD = ("-m", "reliability.joint.rank_stage")
SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=48", "data.difficulties=[1]", "marl.max_steps=2", "marl.scenarios_per_step=3",
    "marl.report_sets=2", "marl.decisions_per_set=2", "marl.learning_rate=0.001", "marl.adam_epsilon=1e-8",
    "marl.rate_schedule=constant", "marl.credit.scheme=shared",
    "marl.max_completion_tokens=40", "marl.guards.validate_every=1", "marl.guards.validation_scenarios=2",
)  # fmt: skip


def make_run(path: Path, *settings: str, config: Path | None = None) -> Run:
    """A run whose roles are as they might be after GRPO."""
    run = Run.create(path, load_config(config, (*SETTINGS, *settings)))
    for place, role in enumerate(ROLES):
        save_weights(run, "grpo", role, small_model(place), tiny_tokenizer(), step=1)
    return run


@pytest.mark.process
def test_two_ranks_with_hosts_train_resume_and_publish_what_one_process_does(tmp_path: Path) -> None:
    """Rank 0 has two rollout hosts and deals out what they play."""
    two = make_run(tmp_path / "two", "rollouts.hosts=2", "rollouts.block_size=2")
    one = make_run(tmp_path / "one", "rollouts.block_size=2")
    launch_ranks(2, *CHILD, two.path, "--max-steps", "1")
    assert not two.is_done("marl")
    assert [path.name for path in two.path.glob("checkpoints/unfinished/marl/step_*")] == ["step_1"]
    launch_ranks(2, *CHILD, two.path)
    launch_ranks(1, *CHILD, one.path, "--alone")
    for run in (one, two):
        assert [row.step for row in run.read_metrics("marl")] == [1, 2]  # one rank logs, each step once
        assert not (run.path / "checkpoints" / "unfinished" / "marl").exists()
        assert run.read_payload("marl")["weights_changed"] == dict.fromkeys(ROLES, True)
    check_same_learning(one, two, share=0.01)


def check_same_learning(one: Run, two: Run, *, share: float) -> None:
    """Both have learnt, and differ by no more than this share of the largest change of a weight."""
    for role in ROLES:
        assert is_finished(two, "marl", role)
        start, alone, shared = (
            weights_of(load_weights(run, stage, role)[0])
            for run, stage in ((one, "grpo"), (one, "marl"), (two, "marl"))
        )
        moved = max(float((alone[name] - start[name]).abs().max()) for name in start)
        assert moved > 1e-4
        for name, value in alone.items():
            torch.testing.assert_close(shared[name], value, atol=share * moved, rtol=0)


@pytest.mark.process
def test_the_config_of_two_nodes_runs_steps_and_resumes_on_two_agents(tmp_path: Path) -> None:
    """Two agents of torchrun that meet on the loopback: shards, bfloat16 and checkpoints as it is shipped.

    And play one step ahead, by whole copies of the sharded weights.
    """
    small = (
        "model.preset=tiny", "model.prompts=short", "marl.adam_epsilon=1e-3",
        "marl.memory.micro_batch_tokens=512", "marl.max_staleness=1", "marl.loss.importance=token",
    )  # fmt: skip
    one, two = (make_run(tmp_path / name, *small, config=TWO_NODES) for name in ("one", "two"))
    launch_nodes(2, *CHILD, two.path, "--max-steps", "1")
    assert not two.is_done("marl")
    (saved,) = two.path.glob("checkpoints/unfinished/marl/step_1")
    assert len(list(saved.rglob("*.safetensors"))) >= 2, "each node writes its part"
    launch_nodes(2, *CHILD, two.path)
    launch_ranks(1, *CHILD, one.path, "--alone")
    assert [row.step for row in two.read_metrics("marl")] == [1, 2]
    check_same_learning(one, two, share=0.2)  # bfloat16 rounds otherwise where weights are gathered


def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create(tmp_path / "empty", load_config(None, SETTINGS))
    assert main([str(run.path), "marl"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: no sound grpo weights in")
    assert message.count("\n") == 1
