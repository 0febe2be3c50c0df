"""Launchers run SFT and GRPO of a role: two processes learn what one learns, also killed or with FSDP2."""

import re
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from rank_launch import CHILDREN, launch, launch_ranks
from tiny_models import make_tiny_base, same_weights, weights_of

from roles.errors import UserError
from training.config.loading import load_config
from training.models.weights import load_weights
from training.roles.sft import ResumableTrainer
from training.runs.resume import StageCheckpoints
from training.runs.run_errors import SkippedSteps
from training.runs.run_folder import Run
from training.stages import on_ranks
from training.stages.on_ranks import main
from training.stages.table import train_stage

ROOT = Path(__file__).parent.parent.parent.parent
FSDP2 = ROOT / "configs" / "accelerate" / "fsdp2.yaml"
ZERO2 = ROOT / "configs" / "accelerate" / "zero2.yaml"
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}  # what accelerate makes of that config
SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "data.difficulties=[1]", "model.intermediate_size=48", "sft.max_steps=4", "sft.batch_size=4",
    "sft.optimizer=adamw", "checkpoint_every=2", "sft.validate_every=2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _plain_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """DistributedDataParallel may crash on gloo where every collective is compared."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")


def make_runs(
    folder: Path, *names: str, settings: Sequence[str] = SETTINGS, with_sft: bool = False
) -> list[Run]:
    """Equal runs with a base, and with the SFT of one role where that is asked for."""
    first = Run.create(folder / names[0], load_config(None, list(settings)))
    make_tiny_base(first.path)
    if with_sft:
        train_stage(first.path, "sft", "cto")
    return [first, *(Run.open(Path(shutil.copytree(first.path, folder / name))) for name in names[1:])]


def train_ranks(
    run: Run, stage: str, *options: str, ranks: int = 2, status: int = 0, like: Mapping[str, str] = {}
) -> str:
    """A stage by processes over gloo, rewards drawn by hash; `like`: variables as a launcher sets them."""
    words = (CHILDREN / "grpo_child.py", run.path, stage, "cto", *options)
    return launch_ranks(ranks, *words, status=status, like=like)


@pytest.mark.process
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    runs = make_runs(tmp_path, "one", "two", "killed")
    train_stage(runs[0].path, "sft", "cto")
    launch_ranks(2, "-m", "training.stages.on_ranks", runs[1].path, "sft", "cto")
    one, two = (weights_of(load_weights(run, "sft", "cto")[0]) for run in runs[:2])
    base = weights_of(load_weights(runs[0], "base", "cto")[0])
    assert not same_weights(one, base)
    for name, value in one.items():  # the batches are the same sets of rows, their order on two ranks is not
        assert torch.allclose(two[name], value, atol=5e-3), name
    assert not same_weights(two, base)
    payload = runs[1].read_payload("sft/cto")
    assert payload["steps"] == 4
    assert payload["weights_changed"] is True
    logged = [(row.step, "validation/loss" in row.metrics) for row in runs[1].read_metrics("sft/cto")]
    assert [step for step, validated in logged if validated] == [0, 2, 4]  # one process logs
    assert [step for step, validated in logged if not validated] == [1, 2, 3, 4]
    assert not (runs[1].path / "checkpoints/unfinished/sft/cto").exists()
    check_resume(runs[2], undisturbed=runs[1])


def check_resume(run: Run, *, undisturbed: Run) -> None:
    """Two processes that are killed go on, as two, and end like those that were not, in every bit."""
    train_ranks(run, "sft", "--fault", "kill@step:4", status=1)
    assert not run.is_done("sft/cto")
    assert [path.name for path in (run.path / "checkpoints/unfinished/sft/cto").iterdir()] == ["step_2"]
    with pytest.raises(UserError, match=r"was saved by 2 processes, and these are 1; go on with 2"):
        train_stage(run.path, "sft", "cto")
    assert "sft/cto: going on after step 2" in train_ranks(run, "sft")
    ends = [weights_of(load_weights(one, "sft", "cto")[0]) for one in (run, undisturbed)]
    assert same_weights(*ends)
    logged = [
        {name: value for name, value in one.read_metrics("sft/cto")[-1].metrics.items() if "time" not in name}
        for one in (run, undisturbed)
    ]
    for name in ("loss", "grad_norm", "num_tokens"):  # sums that began before the kill among them
        assert logged[0][name] == logged[1][name], name


@pytest.mark.process
def test_fsdp2_through_accelerate_trains_and_resumes_as_one_process_does(tmp_path: Path) -> None:
    """Sharded by the config that is shipped; every process saves its parts, and the best weights as parts."""
    one, sharded = make_runs(tmp_path, "one", "sharded", settings=[*SETTINGS, "sft.optimizer=muon"])
    train_stage(one.path, "sft", "cto")
    train_ranks(sharded, "sft", "--fault", "kill@step:4", status=1, like=FSDP)
    (step_2,) = (sharded.path / "checkpoints/unfinished/sft/cto").iterdir()
    assert {path.name for path in step_2.glob("*.shards")} == {
        "weights.shards", "optimizer.shards", "part-best.shards",
    }  # fmt: skip
    command = ("accelerate", "launch", "--config_file", FSDP2, "-m", "training.stages.on_ranks")
    assert "sft/cto: going on after step 2" in launch(*command, sharded.path, "sft", "cto")
    check_equal(one, sharded, "sft")
    losses = [
        [row.metrics["validation/loss"] for row in run.read_metrics("sft/cto") if "loss" not in row.metrics]
        for run in (one, sharded)
    ]
    assert losses[0] == [pytest.approx(value, abs=1e-5) for value in losses[1]]


def check_equal(one: Run, other: Run, stage: str) -> None:
    """The stage ended with the same weights within 1e-5, and they are not those that it began with."""
    source = "sft" if stage == "grpo" else "base"
    ends = [weights_of(load_weights(run, stage, "cto")[0]) for run in (one, other)]
    start = weights_of(load_weights(one, source, "cto")[0])
    assert max(float((ends[0][name] - start[name]).abs().max()) for name in start) > 1e-3
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, atol=1e-5, rtol=0)


GRPO = (
    "grpo.max_steps=3", "grpo.prompts_per_step=2", "grpo.group_size=4", "grpo.max_turns=1",
    "grpo.max_completion_tokens=6", "grpo.learning_rate=0.01", "grpo.adam_epsilon=1e-3",
    "grpo.memory.micro_batch_tokens=256", "grpo.loss.kl_coefficient=0.1", "grpo.curriculum=true",
    "checkpoint_every=1", "sft.max_steps=0",
)  # fmt: skip


@pytest.mark.process
def test_two_processes_play_and_learn_by_grpo_as_one_does(tmp_path: Path) -> None:
    """Rewards drawn from a hash of what was said, as the model knows nothing; one of two runs is killed."""
    one, two, killed = make_runs(tmp_path, "one", "two", "killed", settings=[*SETTINGS, *GRPO], with_sft=True)
    train_ranks(one, "grpo", ranks=1)
    train_ranks(two, "grpo")
    train_ranks(killed, "grpo", "--fault", "kill@step:2", status=1)
    assert "grpo/cto: going on after step 1" in train_ranks(killed, "grpo")
    alone, shared, again = (weights_of(load_weights(run, "grpo", "cto")[0]) for run in (one, two, killed))
    start = weights_of(load_weights(one, "sft", "cto")[0])
    moved = max(float((alone[name] - start[name]).abs().max()) for name in start)
    assert moved > 1e-3
    for name, value in alone.items():
        torch.testing.assert_close(shared[name], value, atol=0.01 * moved, rtol=0)
    assert same_weights(shared, again)
    logs = [
        [
            {name: row.metrics[name] for name in ("verified", "reward/total", "curriculum/success")}
            for row in rows
        ]
        for rows in (list(run.read_metrics("grpo/cto")) for run in (one, two))
    ]
    assert len(logs[0]) == 3
    assert logs[0] == [pytest.approx(row) for row in logs[1]]  # of all episodes, not of one process's own


@pytest.mark.process
@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_grpo_plays_with_whole_weights_and_learns_with_sharded_ones(adapter: str, tmp_path: Path) -> None:
    """Rewards by hash, KL to the start; what was killed ends like what was not, in every bit."""
    settings = [*SETTINGS, *GRPO, f"model.adapter={adapter}", "grpo.memory.sharding=fsdp2"]
    runs = make_runs(tmp_path, "one", "sharded", "killed", settings=settings, with_sft=True)
    train_ranks(runs[0], "grpo", ranks=1)
    train_ranks(runs[1], "grpo")
    train_ranks(runs[2], "grpo", "--fault", "kill@step:3", status=1)
    assert "grpo/cto: going on after step 2" in train_ranks(runs[2], "grpo")
    check_equal(runs[0], runs[1], "grpo")
    ends = [weights_of(load_weights(run, "grpo", "cto")[0]) for run in runs]
    assert same_weights(*ends[1:])
    logs = [[row.metrics["kl"] for row in run.read_metrics("grpo/cto")] for run in runs[:2]]
    assert len(logs[0]) == 3
    assert logs[0][2] > 0
    assert logs[0] == [pytest.approx(kl, abs=1e-6) for kl in logs[1]]


@pytest.mark.process
def test_zero_2_through_accelerate_trains_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step by the config that is shipped, each process on its half of the optimizer."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install 'emads[deepspeed]'")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    settings = [*SETTINGS, "sft.max_steps=1", "sft.validate_every=0"]
    one, sharded = make_runs(tmp_path, "one", "sharded", settings=settings)
    train_ranks(one, "sft", ranks=1)
    child = CHILDREN / "deepspeed_child.py"
    shown = launch("accelerate", "launch", "--config_file", ZERO2, child, sharded.path, "sft", "cto")
    own, whole = map(int, re.findall(r"steps on (\d+) of (\d+) weights", shown)[0])
    assert 2 * own == whole
    ends = [weights_of(load_weights(run, "sft", "cto")[0]) for run in (one, sharded)]
    start = weights_of(load_weights(one, "base", "cto")[0])
    changes = [torch.cat([(end[name] - start[name]).flatten() for name in start]) for end in ends]
    assert changes[0].norm() > 1e-3
    assert torch.cosine_similarity(changes[0], changes[1], dim=0) > 0.9  # passes are in bfloat16 there
    assert not (sharded.path / "checkpoints" / "unfinished" / "sft" / "cto").exists()


def test_what_ranks_cannot_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.create(tmp_path / "run", load_config(None, list(SETTINGS)))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setattr(on_ranks, "is_deepspeed_available", lambda: False)
    assert main([str(run.path), "sft", "cto"]) == 2
    assert "pip install 'emads[deepspeed]'" in capsys.readouterr().err
    monkeypatch.setattr(on_ranks, "is_deepspeed_available", lambda: True)
    for zero_stage, message in ((3, "ZeRO stage 3 shards the weights"), (2, "muon needs whole ones")):
        monkeypatch.setattr(on_ranks, "DeepSpeedPlugin", partial(SimpleNamespace, zero_stage=zero_stage))
        with pytest.raises(UserError, match=message):
            on_ranks.check_launcher(run.config.changed(sft__optimizer="muon"))
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert main([str(run.path), "grpo", "cto"]) == 2
    assert "shard by grpo.memory.sharding" in capsys.readouterr().err
    assert main([str(run.path), "sft", "cto"]) == 2
    assert "FSDP is version 2 here, without offload" in capsys.readouterr().err
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(UserError, match="does not shard the 4-bit base"):
        on_ranks.check_launcher(run.config.changed(model__adapter="qlora"))


def test_deepspeed_neither_saves_nor_goes_on_inside_a_stage(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", load_config(None, list(SETTINGS)))
    checkpoints = StageCheckpoints(run, "sft/cto", every_steps=1)
    trainer: Any = SimpleNamespace(is_deepspeed_enabled=True, skipped=SkippedSteps())  # and no add_callback
    ResumableTrainer.keep_checkpoints(trainer, checkpoints)
    assert trainer.checkpoints is None
    (checkpoints.folder / "step_1").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot go on from: remove that folder"):
        ResumableTrainer.keep_checkpoints(trainer, checkpoints)


def test_the_fsdp2_config_is_one_that_accelerate_reads() -> None:
    config = load_config_from_file(str(FSDP2))
    assert str(config.distributed_type) == "DistributedType.FSDP" or config.distributed_type == "FSDP"
    assert config.fsdp_config == {"fsdp_version": 2}
