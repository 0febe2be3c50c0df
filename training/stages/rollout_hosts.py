"""The rollout hosts of a run's joint stage: what each of them opens, and the pool that a learner plays on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from roles.team import TEAM_ROLES
from simulator.engines.embedded.engine import TransformersEngine
from training.joint.hosts.host import RolloutHost
from training.joint.hosts.pool import Host, HostPool
from training.joint.hosts.process_host import ProcessHost
from training.joint.hosts.ray_host import RayHost, join_cluster
from training.joint.protocols import choose_player
from training.learner.ranks import Ranks
from training.models.base_model import quiet_libraries
from training.models.engine_factory import open_rollouts
from training.runs.run_folder import Run
from training.runs.workers import spare_gpus
from training.stages.from_config import choose_game, load_joint_start, make_chat


@contextmanager
def open_host(path: Path) -> Iterator[RolloutHost]:
    """A host of the run's team, with the weights that joint training starts from until others are loaded."""
    quiet_libraries()
    run = Run.open(path)
    config = run.config
    models, tokenizer = load_joint_start(run)
    num_models = len({id(model) for model in models.values()})
    chat = make_chat(tokenizer, config)
    player = choose_player(config.marl, chat=chat, roles=TEAM_ROLES, make_game=choose_game(config))
    with open_rollouts(run, end_id=chat.end_id, num_models=num_models) as engine:
        yield RolloutHost(
            models, player, lambda: engine or TransformersEngine(end_id=chat.end_id, seed=config.seed)
        )


@contextmanager
def open_hosts(run: Run, ranks: Ranks) -> Iterator[HostPool | None]:
    """The pool of `rollouts.hosts` hosts, all of them rank 0's; None where the learner plays itself.

    Raises:
        UserError: Ray is not installed, or has no cluster at the address.
    """
    config = run.config
    if not config.num_hosts:
        yield None
        return
    opened = partial(open_host, run.path)
    if config.rollouts.backend == "ray" and ranks.rank == 0:
        join_cluster(config.rollouts.address)
    threads, gpus = config.threads_per_worker, spare_gpus()

    def make_host(number: int) -> Host:
        if config.rollouts.backend == "ray":
            return RayHost(opened, num_threads=threads, num_gpus=config.rollouts.gpus_per_host)
        return ProcessHost(opened, number=number, num_threads=threads, gpus=gpus)

    pool = HostPool(make_host, 0 if ranks.rank else config.num_hosts, timeout_s=config.rollouts.timeout_s)
    try:
        yield pool
    finally:
        pool.close()
