"""Launchers run the SFT of a role: two processes learn what one learns, and the FSDP2 config parses."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from accelerate.commands.config.config_args import load_config_from_file
from tiny_models import same_weights, weights_of

from training import stages
from training.config_loading import load_config
from training.runs import Run
from training.weights import load_weights

ROOT = Path(__file__).parent.parent
FSDP2 = ROOT / "configs" / "accelerate" / "fsdp2.yaml"
SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "data.difficulties=[1]", "model.intermediate_size=48", "sft.max_steps=4", "sft.batch_size=4",
    "sft.optimizer=adamw",
)  # fmt: skip


def launch(*arguments: object) -> None:
    """Run an installed launcher to its end."""
    program, *rest = map(str, arguments)
    done = subprocess.run(
        [Path(sys.executable).parent / program, *rest],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    names = ("one", "two", "launched")
    runs = [Run.create(tmp_path / name, load_config(None, list(SETTINGS))) for name in names]
    for run in runs:
        stages.train_base(run.path)
    stages.train_sft(runs[0].path, "cto")
    launch(
        "torchrun", "--standalone", "--nproc_per_node", 2, "-m", "training.accelerated", runs[1].path, "cto"
    )
    launch(
        "accelerate", "launch", "--cpu", "--num_processes", 1, "--num_machines", 1, "--mixed_precision", "no",
        "--dynamo_backend", "no", "-m", "training.accelerated", runs[2].path, "cto",
    )  # fmt: skip
    launched = weights_of(load_weights(runs[2], "sft", "cto")[0])
    one, two = (weights_of(load_weights(run, "sft", "cto")[0]) for run in runs[:2])
    assert same_weights(launched, one)
    base = weights_of(load_weights(runs[0], "base", "cto")[0])
    assert not same_weights(one, base)
    for name, value in one.items():  # the batches are the same sets of rows, their order on two ranks is not
        assert torch.allclose(two[name], value, atol=5e-3), name
    assert not same_weights(two, base)
    payload = runs[1].read_payload("sft/cto")
    assert payload["steps"] == 4
    assert payload["weights_changed"] is True
    assert [row.step for row in runs[1].read_metrics("sft/cto")] == [4]  # one process logs


def test_the_fsdp2_config_is_one_that_accelerate_reads() -> None:
    config = load_config_from_file(str(FSDP2))
    assert str(config.distributed_type) == "DistributedType.FSDP" or config.distributed_type == "FSDP"
    assert config.fsdp_config["fsdp_version"] == 2
    assert config.fsdp_config["fsdp_state_dict_type"] == "FULL_STATE_DICT"
