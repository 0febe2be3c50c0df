"""The rollout hosts of a run's RL stage: what each of them opens, and the pool that a learner plays on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from roles.team import TEAM_ROLES
from scenarios.registry import families
from simulator.engines.embedded.engine import TransformersEngine
from training.learner.ranks import Ranks
from training.models.adapters import roles_of
from training.models.base_model import quiet_libraries
from training.models.engine_factory import open_rollouts
from training.models.weights import load_trainable
from training.rl.hosts.host import Player, RolloutHost
from training.rl.hosts.pool import Host, HostPool
from training.rl.hosts.process_host import ProcessHost
from training.rl.hosts.ray_host import RayHost, join_cluster
from training.rl.solo.play import SoloPlayer
from training.rl.team.algorithm import choose_player
from training.runs.run_folder import Run
from training.runs.workers import spare_gpus
from training.stages.from_config import choose_game, load_joint_start, make_chat

Start = tuple[str, str | None]  # the stage whose weights play at first, and their owner; None: the team


@contextmanager
def open_host(path: Path, start: Start) -> Iterator[RolloutHost]:
    """A host of the run's team, or of one role, with the weights that training starts from."""
    quiet_libraries()
    run = Run.open(path)
    config = run.config
    player: Player
    source, owner = start
    if owner is None:
        models, tokenizer = load_joint_start(run, source)
        chat, staleness = make_chat(tokenizer, config), config.marl.max_staleness
        player = choose_player(config.marl, chat=chat, roles=TEAM_ROLES, make_game=choose_game(config))
    else:
        model, tokenizer = load_trainable(run, source, owner)
        models, chat = dict.fromkeys(roles_of(owner), model), make_chat(tokenizer, config)
        player = SoloPlayer(config=config.grpo, chat=chat, families=families(config.model.prompts))
        staleness = config.grpo.max_staleness
    num_models = len({id(model) for model in models.values()})
    with open_rollouts(run, end_id=chat.end_id, num_models=num_models, max_staleness=staleness) as engine:
        yield RolloutHost(
            models, player, lambda: engine or TransformersEngine(end_id=chat.end_id, seed=config.seed)
        )


@contextmanager
def open_hosts(run: Run, ranks: Ranks, start: Start) -> Iterator[HostPool | None]:
    """The pool of `rollouts.hosts` hosts, all of them rank 0's; None where the learner plays itself.

    Raises:
        UserError: Ray is not installed, or has no cluster at the address.
    """
    config = run.config
    num_hosts = config.num_hosts if start[1] is None else config.num_role_hosts
    if not num_hosts:
        yield None
        return
    opened = partial(open_host, run.path, start)
    if config.rollouts.ray and ranks.rank == 0:
        join_cluster(config.rollouts.ray)
    threads, gpus = config.threads_per_worker, spare_gpus()

    def make_host(number: int) -> Host:
        if config.rollouts.ray:
            return RayHost(opened, num_threads=threads, num_gpus=min(1, len(gpus)))
        return ProcessHost(opened, number=number, num_threads=threads, gpus=gpus)

    pool = HostPool(make_host, 0 if ranks.rank else num_hosts, timeout_s=config.rollouts.timeout_s)
    try:
        yield pool
    finally:
        pool.close()
