"""Two real processes under torchrun on gloo: the steps, checkpoints and sharding are those of one process."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_launch import CHILDREN, launch_ranks
from shared_folders import make_once

from roles.errors import UserError
from training.learner.fsdp import join_ranks
from training.learner.ranks import ONE_RANK, Ranks

PACKED = {"memory__row_layout": "shared_prompt", "memory__logit_rows": 16, "memory__micro_batch_tokens": 200}
HEADS = {"credit__estimator": "gae"}
CROSSED = {"credit__scheme": "cross_valued"}
LORA: dict[str, Any] = {"adapters": True, "options": PACKED | {"loss__kl_coefficient": 0.5}}
OFFLOADED = {"sharded": True, "offloaded": True}
ON_TWO = [
    {"name": "two", "first": 0, "last": 4, "keep": [2], "validates": True, "watched": True},
    {"name": "again", "first": 2, "last": 4, "load": "two-2"},
    {
        "name": "sharded",
        "first": 0,
        "last": 2,
        "keep": [1],
        "sharded": True,
        "watched": True,
        "options": PACKED,
    },
    {"name": "heads-two", "first": 0, "last": 4, "keep": [2], "watched": True, "options": HEADS},
    {"name": "crossed-two", "first": 0, "last": 3, "options": CROSSED},
    {"name": "sharded-on", "first": 1, "last": 2, "sharded": True, "load": "sharded-1", "options": PACKED},
    {"name": "offloaded", "first": 0, "last": 2, **OFFLOADED, "options": PACKED},
    {"name": "lora-sharded", "first": 0, "last": 2, "sharded": True, "watched": True, **LORA},
    {"name": "heads-sharded", "first": 0, "last": 2, "sharded": True, "options": PACKED | HEADS},
]
ON_ONE = [
    {"name": "one", "first": 0, "last": 4, "keep": [0, 2], "validates": True},
    {"name": "one-3", "first": 2, "last": 3, "load": "two-2"},
    {"name": "whole", "first": 0, "last": 3, "keep": [2], "options": PACKED},
    {"name": "lora", "first": 0, "last": 2, "keep": [0], **LORA},
    {"name": "sharded-3", "first": 2, "last": 3, "load": "sharded", "options": PACKED},
    {"name": "heads-one", "first": 0, "last": 4, "keep": [0], "options": HEADS},
    {"name": "heads-one-3", "first": 2, "last": 3, "load": "heads-two-2", "options": HEADS},
    {"name": "crossed-one", "first": 0, "last": 3, "options": CROSSED},
    {"name": "heads-whole", "first": 0, "last": 2, "options": PACKED | HEADS},
]
ON_TWO_AGAIN = [
    {"name": "resharded", "first": 2, "last": 3, "sharded": True, "load": "whole-2", "options": PACKED},
    {"name": "mixed", "first": 3, "last": 4, "load": "one-3"},
    {"name": "heads-mixed", "first": 3, "last": 4, "load": "heads-one-3", "options": HEADS},
]
Weights = dict[str, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "ranks", run_jobs)


def run_jobs(folder: Path) -> None:
    for ranks, jobs in ((2, ON_TWO), (1, ON_ONE), (2, ON_TWO_AGAIN)):
        launch_ranks(ranks, CHILDREN / "ranks_child.py", folder, json.dumps(jobs))


@pytest.fixture(scope="module")
def weights(folder: Path) -> Weights:
    """The weights after every job: on two processes, on one, and on two again."""
    return {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}


def gap(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.process
def test_two_ranks_learn_what_one_does(weights: Weights) -> None:
    assert gap(weights["two"], weights["one"]) < 1e-9
    assert gap(weights["one"], weights["one-0"]) > 5e-4


@pytest.mark.process
@pytest.mark.parametrize("job", ["two", "sharded", "heads-two", "lora-sharded"])
def test_collectives_are_of_one_device_on_all_ranks(weights: Weights, folder: Path, job: str) -> None:
    """Gradients on the GPU and counts on the host: a rank that differs would wait for ever over NCCL."""
    first, second = (json.loads((folder / f"{job}-calls-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert {device for _, device, _ in first} == {"cpu", "gpu"}


@pytest.mark.process
def test_two_ranks_resume_to_the_bit(weights: Weights) -> None:
    assert gap(weights["again"], weights["two"]) == 0.0


@pytest.mark.process
def test_ranks_may_change_between_steps(weights: Weights) -> None:
    """Two steps on two processes, one on one, one on two."""
    assert gap(weights["mixed"], weights["two"]) < 1e-9


@pytest.mark.process
def test_sharded_weights_learn_what_whole_ones_do(weights: Weights) -> None:
    assert gap(weights["sharded"], weights["whole-2"]) < 1e-9
    assert gap(weights["sharded-3"], weights["whole"]) < 1e-9  # one process goes on from their state


@pytest.mark.process
def test_sharded_checkpoints_go_on_by_any_number_of_ranks(weights: Weights) -> None:
    """Each rank writes its parts: two go on to the bit, one as well, and two from one's."""
    assert gap(weights["sharded-on"], weights["sharded"]) == 0.0
    assert gap(weights["sharded-3"], weights["whole"]) < 1e-9
    assert gap(weights["resharded"], weights["whole"]) < 1e-9


@pytest.mark.process
def test_offloaded_weights_learn_what_whole_ones_do(weights: Weights) -> None:
    assert gap(weights["offloaded"], weights["sharded"]) == 0.0


@pytest.mark.process
def test_a_sharded_base_serves_the_adapters_of_all_roles(weights: Weights) -> None:
    """A base in bfloat16 under adapters in float32, with KL to what these were, as one process has it."""
    assert gap(weights["lora-sharded"], weights["lora"]) < 0.1 * gap(weights["lora"], weights["lora-0"])


@pytest.mark.process
def test_ranks_share_validation_and_all_see_all_scores(weights: Weights, folder: Path) -> None:
    (alone, _), (first, own), (second, others) = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("one-validated-0", "two-validated-0", "two-validated-1")
    )
    assert alone == first == second
    assert (len(alone), len(own), len(others)) == (5, 2, 3)
    assert not set(own) & set(others)


@pytest.mark.process
@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_a_rank_that_is_lost_ends_the_others_with_an_error_that_says_so(how: str) -> None:
    said = launch_ranks(2, CHILDREN / "lost_rank_child.py", how, status=1)
    if how == "hangs":
        assert "after 10 s: rank 0 lost another one, which ended or hangs" in said


def test_losses_of_ranks_are_summed_and_maxima_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank's loss was divided by the counts of all; a mean of maxima is no maximum."""
    other = {"loss/cto": 0.2, "mismatch_max/cto": 0.5, "team_reward": 0.4, "sets": 2.0}
    monkeypatch.setattr(Ranks, "gather", lambda _, item: [item, other])
    own = {"loss/cto": 0.1, "mismatch_max/cto": 0.9, "team_reward": 0.2}
    found = Ranks(rank=0, size=2).mean(own)
    assert found == pytest.approx({"loss/cto": 0.3, "mismatch_max/cto": 0.9, "team_reward": 0.3, "sets": 2.0})


@pytest.mark.process
def test_reports_are_valued_alike_on_every_rank(weights: Weights) -> None:
    assert gap(weights["crossed-two"], weights["crossed-one"]) < 1e-9
    assert gap(weights["crossed-one"], weights["one-0"]) > 5e-4


@pytest.mark.process
def test_value_heads_are_one_on_all_ranks(weights: Weights) -> None:
    """Policies and heads of `gae`, which compute in float32: two ranks, one, both in turn, sharded."""
    assert gap(weights["heads-two"], weights["heads-one"]) < 1e-6
    assert gap(weights["heads-mixed"], weights["heads-two"]) < 1e-6
    assert gap(weights["heads-sharded"], weights["heads-whole"]) < 1e-6
    for kind in ("head.", "layers."):
        moved = [
            {name: value for name, value in weights[job].items() if kind in name}
            for job in ("heads-one", "heads-one-0")
        ]
        assert gap(*moved) > 5e-4


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
