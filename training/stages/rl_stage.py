"""Stages of RL, GRPO and joint training alike: policies ready for their ranks, hosts, steps to the end.

A run folder and its checkpoints do not depend on the number of ranks: what one process began, four can go on
with. Scenarios are divided over the ranks, rank 0 writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from roles.errors import UserError
from roles.team import TEAM_ROLES
from scenarios.registry import families
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.rl_config import RLConfig
from training.learner.fsdp import save_on_ranks, shard_model
from training.learner.ranks import ONE_RANK, Ranks, explain_lost_ranks
from training.learner.token_logprobs import compute_in_bf16
from training.models.adapters import keep_start, roles_of
from training.models.base_model import quiet_libraries
from training.models.engine_factory import name_engine, open_rollouts
from training.models.weights import load_trainable
from training.rl.best import BestWeights
from training.rl.hosts import Host, HostPool, Player, RolloutHost
from training.rl.loop import RLLearner
from training.rl.overlap import OverlappedLearner, copy_models
from training.rl.remote_hosts import ProcessHost, RayHost, join_cluster
from training.rl.solo.play import SoloPlayer
from training.rl.team.algorithm import choose_player
from training.runs.faults import fault_point
from training.runs.memory import return_freed_memory
from training.runs.resume import StageCheckpoints, Stateful, load_parts
from training.runs.run_errors import SkippedSteps, explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress, spare_gpus
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


Models = Mapping[str, PreTrainedModel]  # role -> its model
Show = Callable[[Mapping[str, float]], Mapping[str, float]]  # metrics -> what the progress line shows


def prepare_policies(
    run: Run,
    models: Models,
    config: RLConfig,
    ranks: Ranks,
    load_start: Callable[[], Models],
    *,
    plays_alone: bool = False,
) -> dict[str, Any]:
    """`references` and `actors` of a learner of these models, which are sharded or compute in bfloat16 then.

    Actors play where the models do not: whole copies of what is sharded, and copies in bfloat16 of weights
    that learn in float32 with passes in bfloat16. `load_start`: loads the models once more, as the reference
    of KL for models without adapters. `plays_alone`: actors do nothing else, so that those of vLLM, which has
    the base of adapters, leave it out.
    """
    memory = config.memory
    is_embedded = name_engine(run.config.engine, run.config.model).name == "transformers"
    if run.config.model.gradient_checkpointing:
        for model in models.values():  # a model that several roles share is only told again
            model.gradient_checkpointing_enable({"use_reentrant": False})
    references = _make_references(models, load_start) if config.needs_reference else None
    is_sharded = memory.sharding != "none" and ranks.size > 1
    has_adapters = run.config.model.adapter != "none"
    actors = None
    if is_sharded or (memory.bf16 and is_embedded and not has_adapters):
        actors = copy_models(models, base="left_out" if plays_alone and not is_embedded else "copied")
        if memory.bf16:
            for actor in actors.values():
                _halve_weights(actor)
    every = {id(one): one for one in [*models.values(), *(references or {}).values()]}.values()
    if is_sharded:
        for model in every:
            shard_model(model, bf16=memory.bf16, cpu_offload=memory.sharding == "fsdp2_offload")
    elif memory.bf16:
        for model in every:
            compute_in_bf16(model)
    return {"references": references, "actors": actors}


def _halve_weights(model: PreTrainedModel) -> None:
    """Round the weights, but for adapters, to bfloat16; buffers such as rotary frequencies stay exact."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            parameter.data = parameter.data.to(torch.bfloat16)


def _make_references(models: Models, load_start: Callable[[], Models]) -> Models:
    """The policies before this stage, for KL: frozen adapters on the same base, or models of their own."""
    if any(hasattr(model, "peft_config") for model in models.values()):
        keep_start(next(iter(models.values())))
        return models
    return {role: model.eval().requires_grad_(False) for role, model in load_start().items()}


@contextmanager
def open_play(
    run: Run,
    models: Models,
    config: RLConfig,
    chat: HFChat,
    ranks: Ranks = ONE_RANK,
    *,
    hosts: HostPool | None = None,
    plays: bool = True,
) -> Iterator[dict[str, Any]]:
    """The options of a learner that say where it plays; without `plays` it never does.

    Raises:
        UserError: the embedded engine is to play beside the learner on one GPU; or as `open_engine`.
    """
    options = {"chat": chat, "seed": run.config.seed, "block_size": run.config.rollouts.block_size}
    if hosts is not None or not plays:
        yield {**options, "hosts": hosts}
        return
    is_embedded = name_engine(run.config.engine, run.config.model).name == "transformers"
    if config.max_staleness and is_embedded and torch.cuda.is_available():
        raise UserError(
            f"max_staleness {config.max_staleness} gains nothing where play and learning share a GPU's"
            " stream: set rollouts.hosts to 1 or more, engine.name to vllm, or max_staleness to 0"
        )
    with open_rollouts(
        run,
        end_id=chat.end_id,
        num_models=len({id(model) for model in models.values()}),
        max_staleness=config.max_staleness,
        ranks=ranks,
    ) as engine:
        yield {**options, "engine": engine}


def train_steps(
    run: Run,
    name: str,
    learner: RLLearner,
    scenarios_of: Callable[[int], Sequence[Any]],
    checkpoints: StageCheckpoints,
    *,
    validation: Sequence[Any] = (),
    validates_start: bool = False,
    last: int | None = None,
    begin: Callable[[], None] = lambda: None,
    units: int,
    show: Show,
) -> BestWeights:
    """Go on from the newest checkpoint to step `last` (None: the config's); returns the best weights.

    `scenarios_of`: those of a step. `begin` is called where there is no checkpoint. `units` of progress are
    reported after each step, with what `show` says of its metrics.

    Raises:
        ValueError: validation asked for without scenarios.
    """
    config, ranks, guards = learner.config, learner.ranks, learner.config.guards
    if guards.validate_every and not validation:
        raise ValueError("no scenarios to validate on")
    last = config.max_steps if last is None else last
    section = "marl" if name == "marl" else "grpo"
    trainer = OverlappedLearner(learner, scenarios_of, config.max_steps if last else 0)
    best, skipped = BestWeights(learner, validation, patience=guards.patience), SkippedSteps()
    parts: dict[str, Stateful] = {"learner": trainer, "best": best, "skipped": skipped}
    found = ranks.first(checkpoints.find() if ranks.rank == 0 else None)
    if found is not None:
        load_parts(found, parts)
    else:
        begin()
        if validates_start and guards.validate_every and last:
            _log(run, name, 0, best.validate(), ranks)
    ranks.wait()  # rank 0 may soon remove the checkpoint: with no step left, at once
    for step in range(learner.num_steps + 1, last + 1):
        if best.should_stop:
            break
        with explain_memory_errors(name, f"{section}.memory.micro_batch_tokens"), explain_lost_ranks(ranks):
            fault_point("step")
            metrics = trainer.step()
            is_due = guards.validate_every and (step % guards.validate_every == 0 or step == config.max_steps)
            if is_due:
                metrics |= best.validate()
        if learner.hosts is not None:
            return_freed_memory()  # for the hosts of this machine, who play next
        try:
            skipped.watch(step, learner.grad_norms)
        finally:
            if skipped.count:
                metrics["skipped_steps"] = float(skipped.count)
            _log(run, name, step, metrics, ranks)
        report_progress(units, **show(metrics))
        stops_early = step == last < config.max_steps
        if ranks.first(stops_early or checkpoints.is_due(step)):
            save_on_ranks(checkpoints, step, {name: part.state() for name, part in parts.items()}, ranks)
    trainer.close()
    return best


def _log(run: Run, name: str, step: int, metrics: Mapping[str, float], ranks: Ranks) -> None:
    if ranks.rank == 0:
        run.log(name, step, metrics)
