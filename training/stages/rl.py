"""The stages `grpo` (one role on scenarios of its own family) and `marl` (the team), and what both share.

Policies are made ready for their ranks, hosts are opened, and steps go on to the end. A run folder and its
checkpoints do not depend on the number of ranks: what one process began, four can go on with. Scenarios are
divided over the ranks, rank 0 writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.base import Role
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from scenarios.base import Family, Scenario, Split
from scenarios.registry import FAMILIES, families
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.rl_config import GrpoConfig, RLConfig
from training.config.run_config import FIRST_GRPO_INDEX
from training.data.demonstrations import role_scenario
from training.feedback.reward_model import load_reward_model
from training.learner.fsdp import save_on_ranks, shard_model
from training.learner.ranks import ONE_RANK, Ranks, explain_lost_ranks
from training.learner.token_logprobs import compute_in_bf16
from training.models.adapters import keep_start, owner_of, roles_of
from training.models.base_model import quiet_libraries
from training.models.engine_factory import name_engine, open_rollouts
from training.models.weights import copy_weights, finish_stage, load_trainable, save_weights, weights_differ
from training.rl.hosts import Host, HostPool, Player, RolloutHost
from training.rl.loop import BestWeights, RLLearner
from training.rl.overlap import OverlappedLearner, copy_models
from training.rl.remote_hosts import ProcessHost, RayHost, join_cluster
from training.rl.solo.alarms import list_alarms, write_alarms
from training.rl.solo.algorithm import SoloMonitor, make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.rl.team.algorithm import TeamMonitor, choose_player, make_team_learner
from training.runs.faults import fault_point
from training.runs.resume import StageCheckpoints, Stateful, load_parts, logged_values
from training.runs.run_errors import SkippedSteps, explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress, return_freed_memory, spare_gpus
from training.stages.from_config import (
    choose_game,
    first_joint_case,
    joint_cases,
    load_joint_start,
    make_chat,
    past_own_scores,
    validation_cases,
)

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
            for actor in actors.values():  # adapters and buffers such as rotary frequencies stay exact
                for name, parameter in actor.named_parameters():
                    if "lora_" not in name:
                        parameter.data = parameter.data.to(torch.bfloat16)
    every = {id(one): one for one in [*models.values(), *(references or {}).values()]}.values()
    if is_sharded:
        for model in every:
            shard_model(model, bf16=memory.bf16, cpu_offload=memory.sharding == "fsdp2_offload")
    elif memory.bf16:
        for model in every:
            compute_in_bf16(model)
    return {"references": references, "actors": actors}


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
    start: Start | None = None,
    *,
    plays: bool = True,
) -> Iterator[dict[str, Any]]:
    """The options of a learner that say where it plays; `start`: of rollout hosts, None: none.

    Without `plays` it never does.

    Raises:
        UserError: the embedded engine is to play beside the learner on one GPU; or as `open_engine`.
    """
    options = {"chat": chat, "seed": run.config.seed, "block_size": run.config.rollouts.block_size}
    if not plays:
        yield options
        return
    if start is not None:
        with open_hosts(run, ranks, start) as hosts:
            if hosts is not None:
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


def train_grpo(run: Run, owner: str, source: str, ranks: Ranks = ONE_RANK) -> None:
    """Train one role by GRPO."""
    first, grpo = FIRST_GRPO_INDEX, run.config.grpo
    train_role(run, "grpo", owner, grpo, first_index=first, source=source, on_hosts=True, ranks=ranks)


def train_role(
    run: Run,
    stage: str,
    role: str,
    grpo: GrpoConfig,
    *,
    first_index: int,
    source: str,
    on_hosts: bool = False,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Train one role on scenarios of its family from `first_index` on, from its weights after stage `source`.

    Roles that share their weights take turns in its batches.
    """
    num_validation = grpo.guards.validation_scenarios if grpo.guards.validate_every else 0
    train_on_scenarios(
        run,
        role,
        partial(draw_scenario, run, role, "train", first_index),
        [draw_scenario(run, role, "validation", 0, place) for place in range(num_validation)],
        stage=stage,
        source=source,
        grpo=grpo,
        families=families(run.config.model.prompts),
        on_hosts=on_hosts,
        ranks=ranks,
    )


def draw_scenario(run: Run, role: str, split: Split, first: int, place: int) -> Scenario:
    """The scenario at a place from index `first` of a role's own family; roles of one model take turns."""
    config, roles = run.config, roles_of(role)
    one, index = roles[place % len(roles)], first + place // len(roles)
    return role_scenario(one, split, config.data.seed, index, config.data.difficulties, config.model.prompts)


def train_on_scenarios(
    run: Run,
    role: str,
    draw: Callable[[int], Scenario],
    validation: Sequence[Scenario],
    *,
    stage: str,
    source: str,
    grpo: GrpoConfig | None = None,
    families: Mapping[str, Family] = FAMILIES,
    roles: Mapping[str, Role] = ROLES,
    on_hosts: bool = False,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Train the weights that a role has after stage `source` on rollouts of scenarios, and publish them.

    `draw`: the scenario at a place; every step plays the next ones. `grpo`: in place of the config's section.
    `on_hosts`: the run's rollout hosts play, if it has any; they know the run's own families alone.
    """
    config, name = run.config, f"{stage}/{role}"
    grpo = grpo or config.grpo
    model, tokenizer = load_trainable(run, source, role)
    chat, size = make_chat(tokenizer, config), grpo.prompts_per_step
    before = copy_weights(model, role)
    checkpoints = StageCheckpoints(run, name, every_steps=config.checkpoint_every)
    models = dict.fromkeys(roles_of(role), model)
    policies = prepare_policies(
        run, models, grpo, ranks, lambda: dict.fromkeys(models, load_trainable(run, source, role)[0])
    )
    with open_play(run, models, grpo, chat, ranks, (source, role) if on_hosts else None) as where:
        learner = make_solo_learner(
            models,
            grpo,
            player=SoloPlayer(config=grpo, chat=chat, families=families, roles=roles),
            name=stage,
            judge=load_reward_model(run, role).score if grpo.model_share else None,
            difficulties=[draw(one).difficulty for one in range(grpo.max_steps * size)]
            if grpo.curriculum
            else (),
            ranks=ranks,
            **policies,
            **where,
        )
        monitor = learner.monitor
        assert isinstance(monitor, SoloMonitor)
        best = train_steps(
            run,
            name,
            learner,
            lambda step: monitor.choose(
                [draw(place) for place in range(step * size, (step + 1) * size)], step * size
            ),
            checkpoints,
            validation=validation,
            validates_start=True,
            units=5,
            show=lambda metrics: {
                **({"reward": metrics["verified"]} if "verified" in metrics else {}),
                **list_alarms(metrics),
            },
        )
        step = best.restore()
    trained = learner.updater.whole_models()
    if ranks.rank == 0:
        write_alarms(run, name, monitor.alarms.standing)
        finish_stage(
            run,
            stage,
            role,
            trained[next(iter(models))],
            tokenizer,
            before,
            step=step,
            train_s=checkpoints.train_s,
            signal=_mean_signal(run, name),
        )
        checkpoints.clear()
    ranks.wait()


def _mean_signal(run: Run, stage: str) -> float:
    """Mean share of groups with an advantage; a step without a gradient counts as 0."""
    rows = logged_values(run, stage, ("groups_with_signal", "grad_norm"))
    signals = [row["groups_with_signal"] * (row["grad_norm"] > 0) for row in rows]
    return sum(signals) / max(1, len(signals))


def train_marl(
    run: Run, source: str, ranks: Ranks = ONE_RANK, *, max_steps: int | None = None, ends_here: bool = False
) -> None:
    """Train the team; with `max_steps` it stops there and can be resumed.

    With `ends_here` the newest checkpoint becomes the stage's result, without a further step.

    Raises:
        UserError: the stage is to end, and no step of it is saved.
    """
    config, marl = run.config, run.config.marl
    with ranks.main_process_first():
        models, tokenizer = load_joint_start(run, source)
    chat = make_chat(tokenizer, config)
    before = {role: copy_weights(model, role) for role, model in models.items()}
    policies = prepare_policies(
        run, models, marl, ranks, lambda: load_joint_start(run, source)[0], plays_alone=True
    )
    with open_play(run, models, marl, chat, ranks, (source, None), plays=not ends_here) as where:
        learner = make_team_learner(
            models,
            marl,
            reward_weights=config.team_reward,
            make_game=choose_game(config),
            ranks=ranks,
            **policies,
            **where,
        )
        last = 0 if ends_here else min(marl.max_steps, max_steps or marl.max_steps)
        checkpoints = StageCheckpoints(run, "marl", every_steps=config.checkpoint_every)

        def recall_own_scores() -> None:
            assert isinstance(learner.monitor, TeamMonitor)
            for role in TEAM_ROLES:
                for score in past_own_scores(run, role):
                    learner.monitor.drift.update({role: score})

        best = train_steps(
            run,
            "marl",
            learner,
            partial(joint_cases, config, first_case=first_joint_case(run)),
            checkpoints,
            validation=validation_cases(config),
            last=last,
            begin=recall_own_scores,
            units=10,
            show=lambda metrics: {"team_reward": metrics.get("team_reward", float("nan"))},
        )
        if ends_here and not learner.num_steps:
            raise UserError(
                f"no step of joint training is saved in {run.path}, so it cannot end here;"
                f" `emads train marl {run.path}` begins it"
            )
        if last < marl.max_steps and not ends_here:
            return
        best.restore()
    trained = learner.updater.whole_models()
    if ranks.rank == 0:
        _publish(run, trained, tokenizer, before, step=learner.num_steps, train_s=checkpoints.train_s)
        checkpoints.clear()


def _publish(
    run: Run,
    models: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase,
    before: Mapping[str, Mapping[str, Any]],
    *,
    step: int,
    train_s: float,
) -> None:
    """Publish the team's weights and mark the stage done."""
    for owner, model in {owner_of(run.config.model, role): one for role, one in models.items()}.items():
        save_weights(run, "marl", owner, model, tokenizer, step=step)
    changed = {role: weights_differ(model, before[role]) for role, model in models.items()}
    rows = logged_values(run, "marl", ())
    signal = {
        role: sum(row.get(f"signal/{role}", 0.0) for row in rows) / max(1, len(rows)) for role in models
    }
    payload = {
        "steps": step,
        "next_case": first_joint_case(run) + step * run.config.marl.scenarios_per_step,
        "train_s": train_s,
        "weights_changed": changed,
        "signal": signal,
    }
    run.mark_done("marl", payload)
