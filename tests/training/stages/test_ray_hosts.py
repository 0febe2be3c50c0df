"""Rollout hosts as Ray actors: the weights of no Ray, and a killed or hung actor is replaced."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_rollout_hosts import check_same_learning, make_run

from reliability.joint.rank_stage import engine_maker, open_scripted_host
from reliability.joint.rollout_faults import FaultySteps
from roles.errors import UserError
from training.rl import loop
from training.rl.hosts import HostLostError
from training.rl.remote_hosts import RayHost, join_cluster
from training.stages.table import train_stage

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'emads[ray]'")
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[None]:
    join_cluster("local")
    yield
    ray.shutdown()


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """The address of a cluster whose nodes have room for one host each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "_system_config": {"worker_niceness": 0}}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def test_hosts_on_two_ray_nodes_give_the_weights_of_no_ray(
    two_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.stages.rl.open_host", open_scripted_host)
    alone = make_run(tmp_path / "alone")
    spread = make_run(tmp_path / "spread", "rollouts.hosts=2", f"rollouts.ray={two_nodes}")
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(alone.path))
    for run in (alone, spread):
        train_stage(run.path, "marl")
    check_same_learning(alone, spread)
    assert [row.metrics["hosts_lost"] for row in spread.read_metrics("marl")] == [0, 0]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_the_work_of_a_lost_actor_is_done_again_by_one_that_loads_its_weights(fault: str) -> None:
    steps = FaultySteps(RayHost)
    try:
        assert steps.try_fault(fault, 5) == ""
    finally:
        steps.close()


def test_what_ray_ends_is_a_lost_host_and_what_a_host_raises_is_itself() -> None:
    """Ray kills workers where memory is short, and reports that as another error than a dead actor."""
    own = UserError("no sound grpo weights in runs/x")
    errors = ray.exceptions
    for error, expected in (
        (errors.ActorDiedError(), HostLostError),
        (errors.OutOfMemoryError("2 workers were killed"), HostLostError),
        (errors.RayTaskError("call", "", own), UserError),
    ):
        call: asyncio.Future[Any] = asyncio.Future(loop=asyncio.new_event_loop())
        call.set_exception(error)
        with pytest.raises(expected):
            call.get_loop().run_until_complete(RayHost(partial(open_scripted_host, Path()))._wait(call))
