"""Two real processes under torchrun on gloo: the steps, checkpoints and sharding are those of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from roles.errors import UserError
from training.distributed import join_ranks
from training.ranks import ONE_RANK, Ranks

TESTS = Path(__file__).parent


PACKED = {"row_layout": "shared_prompt", "logit_rows": 16, "micro_batch_tokens": 200}
ON_TWO = [
    {"name": "two", "first": 0, "last": 5},
    {"name": "two-2", "first": 0, "last": 2},
    {"name": "again", "first": 2, "last": 5, "load": "two-2"},
    {"name": "sharded", "first": 0, "last": 2, "sharded": True, "options": PACKED},
]
ON_ONE = [
    {"name": "start", "first": 0, "last": 0},
    {"name": "one", "first": 0, "last": 5},
    {"name": "one-3", "first": 2, "last": 3, "load": "two-2"},
    {"name": "whole", "first": 0, "last": 2, "options": PACKED},
    {"name": "whole-3", "first": 2, "last": 3, "load": "whole", "options": PACKED},
    {"name": "sharded-3", "first": 2, "last": 3, "load": "sharded", "options": PACKED},
]
ON_TWO_AGAIN = [{"name": "mixed", "first": 3, "last": 5, "load": "one-3"}]
Weights = dict[str, dict[str, torch.Tensor]]


def launch(folder: Path, ranks: int, jobs: list[dict[str, Any]]) -> None:
    start = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    )
    done = subprocess.run(
        [sys.executable, *start, str(TESTS / "ranks_child.py"), folder, json.dumps(jobs)],
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:20000] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The weights after every job: on two processes, on one, and on two again."""
    folder = tmp_path_factory.mktemp("ranks")
    for ranks, jobs in ((2, ON_TWO), (1, ON_ONE), (2, ON_TWO_AGAIN)):
        launch(folder, ranks, jobs)
    return {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}


def gap(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_two_ranks_learn_what_one_does(weights: Weights) -> None:
    assert gap(weights["two"], weights["one"]) < 1e-5
    assert gap(weights["one"], weights["start"]) > 1e-3


def test_two_ranks_resume_to_the_bit(weights: Weights) -> None:
    assert gap(weights["again"], weights["two"]) == 0.0


def test_ranks_may_change_between_steps(weights: Weights) -> None:
    """Two steps on two processes, one on one, two on two."""
    assert gap(weights["mixed"], weights["two"]) < 1e-5


def test_sharded_weights_learn_what_whole_ones_do(weights: Weights) -> None:
    assert gap(weights["sharded"], weights["whole"]) < 1e-5
    assert gap(weights["sharded-3"], weights["whole-3"]) < 1e-5  # one process goes on from their state


@pytest.mark.parametrize("count", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_hold_every_item_once_in_order(count: int, size: int) -> None:
    shards = [Ranks(rank=rank, size=size).shard(list(range(count))) for rank in range(size)]
    assert [item for items, _ in shards for item in items] == list(range(count))
    assert all(items == list(range(first, first + len(items))) for items, first in shards)
    assert max(len(items) for items, _ in shards) - min(len(items) for items, _ in shards) <= 1


def test_alone_without_torchrun_and_never_with_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert join_ranks() == ONE_RANK
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set"):
        join_ranks()
