"""The stage `marl`: joint training of all roles from their GRPO weights, or from other joint ones.

It runs in one process or on several ranks. A run folder and its checkpoints do not depend on the number of
ranks: what one process began, four can go on with. Cases are divided over the ranks, rank 0 writes.
"""

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.errors import UserError
from roles.team import TEAM_ROLES
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.run_config import RunConfig
from training.data.demonstrations import TokenRow, rows_of_run
from training.joint.anchor import AnchorRows
from training.joint.best_team import BestTeam
from training.joint.hosts.pool import HostPool
from training.joint.marl import JointLearner
from training.joint.overlap import OverlappedLearner, copy_models
from training.learner.fsdp import save_on_ranks, shard_model
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.token_logprobs import compute_in_bf16
from training.models.adapters import keep_start
from training.models.engine_factory import open_rollouts
from training.models.weights import copy_weights, is_finished, save_team, weights_differ
from training.runs.faults import fault_point
from training.runs.memory import return_freed_memory
from training.runs.resume import StageCheckpoints, Stateful, load_parts, logged_values
from training.runs.run_errors import SkippedSteps, explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import (
    choose_game,
    joint_cases,
    load_joint_start,
    make_chat,
    past_own_scores,
    validation_cases,
)
from training.stages.rollout_hosts import open_hosts

Models = Mapping[str, PreTrainedModel]


def train_marl(
    path: Path, ranks: Ranks = ONE_RANK, *, max_steps: int | None = None, ends_here: bool = False
) -> None:
    """Train the team; with `max_steps` it stops there and can be resumed.

    With `ends_here` the newest checkpoint becomes the stage's result, without a further step.

    Raises:
        UserError: the stage is to end, and no step of it is saved.
    """
    run = Run.open(path)
    config = run.config
    with ranks.first_alone():
        if all(is_finished(run, "marl", role) for role in TEAM_ROLES):
            return
        models, tokenizer = load_joint_start(run)
    chat = make_chat(tokenizer, config)
    before = {role: copy_weights(model, role) for role, model in models.items()}
    num_models = len({id(model) for model in models.values()})
    with nullcontext() if ends_here else open_hosts(run, ranks) as hosts, ExitStack() as opened:
        engine = None
        if hosts is None and not ends_here:
            engine = opened.enter_context(
                open_rollouts(run, end_id=chat.end_id, num_models=num_models, ranks=ranks)
            )
        learner = _make_learner(run, models, chat, engine, hosts, ranks)
        last = 0 if ends_here else min(config.marl.max_steps, max_steps or config.marl.max_steps)
        checkpoints = StageCheckpoints(run, "marl", every_steps=config.marl.checkpoint_every)
        best = _train_steps(run, learner, checkpoints, last)
        if ends_here and not learner.num_steps:
            raise UserError(
                f"no step of joint training is saved in {path}, so it cannot end here;"
                f" `emads train marl {path}` begins it"
            )
        if last < config.marl.max_steps and not ends_here:
            return
        best.restore()
    if ranks.rank == 0:
        _publish(run, learner, tokenizer, before, train_s=checkpoints.train_s)
        checkpoints.clear()


def _make_learner(
    run: Run,
    models: Models,
    chat: HFChat,
    engine: PolicyEngine | None,
    hosts: HostPool | None,
    ranks: Ranks,
) -> JointLearner:
    """The learner of the whole team, its models sharded over the ranks where the config says so."""
    config = run.config
    if config.model.gradient_checkpointing:
        for model in models.values():  # a model that several roles share is only told again
            model.gradient_checkpointing_enable({"use_reentrant": False})
    references = None
    if config.marl.needs_reference:
        references = make_references(run, models)
    actors = None
    if config.marl.memory.sharding == "fsdp2" and ranks.size > 1:
        actors = copy_models(models)  # whole ones, to play with
        for model in {id(one): one for one in [*models.values(), *(references or {}).values()]}.values():
            shard_model(model, bf16=config.marl.memory.bf16, cpu_offload=config.marl.memory.cpu_offload)
    elif config.marl.memory.bf16:
        for model in {id(one): one for one in [*models.values(), *(references or {}).values()]}.values():
            compute_in_bf16(model)
    return JointLearner(
        models,
        config.marl,
        chat=chat,
        reward_weights=config.team_reward,
        seed=config.seed,
        make_game=choose_game(config),
        references=references,
        anchor_rows=make_anchor_rows(config, chat),
        ranks=ranks,
        actors=actors,
        engine=engine,
        hosts=hosts,
        block_size=config.rollouts.block_size,
    )


def make_references(run: Run, models: Models) -> Models:
    """The team before this stage, for KL: frozen adapters on the same base, or models of its own."""
    if run.config.model.adapter == "none":
        starting, _ = load_joint_start(run)
        return {role: model.eval().requires_grad_(False) for role, model in starting.items()}
    keep_start(next(iter(models.values())))
    return models


def _train_steps(run: Run, learner: JointLearner, checkpoints: StageCheckpoints, last: int) -> BestTeam:
    """Go on from the newest checkpoint to step `last`; returns the best team of the validations."""
    config, ranks = run.config, learner.ranks
    num_played = config.marl.max_steps if last else 0  # steps whose cases are played at all
    trainer = OverlappedLearner(learner, partial(joint_cases, config), num_played)
    best = BestTeam(learner, validation_cases(config))  # every rank plays all of them: one result
    parts: dict[str, Stateful] = {"learner": trainer, "best": best}
    found = ranks.first(checkpoints.find() if ranks.rank == 0 else None)
    if found is not None:
        load_parts(found, parts)
    else:
        for role in TEAM_ROLES:
            for score in past_own_scores(run, role):
                learner.updater.drift.update({role: score})
    ranks.wait()  # rank 0 may soon remove the checkpoint: with no step left, at once
    skipped = SkippedSteps()
    for step in range(learner.num_steps, last):
        fault_point("step")
        with explain_memory_errors("marl"):
            metrics = trainer.step()
            if config.marl.guards.validate_every and (step + 1) % config.marl.guards.validate_every == 0:
                metrics |= best.validate()
        if learner.hosts is not None:
            return_freed_memory()  # for the hosts of this machine, who play next
        if ranks.rank == 0:
            run.log("marl", step + 1, metrics)
        skipped.watch(step + 1, [metrics.get(f"grad_norm/{role}", 0.0) for role in learner.models])
        report_progress(10, team_reward=metrics.get("team_reward", float("nan")))
        stops_early = step + 1 == last < config.marl.max_steps
        if ranks.first(stops_early or checkpoints.is_due(step + 1)):
            states = {name: part.state() for name, part in parts.items()}
            save_on_ranks(checkpoints, step + 1, states, ranks)
    trainer.close()
    return best


def _publish(
    run: Run,
    learner: JointLearner,
    tokenizer: PreTrainedTokenizerBase,
    before: Mapping[str, Mapping[str, Any]],
    *,
    train_s: float,
) -> None:
    """Publish the team's weights and mark the stage done."""
    models = learner.updater.actors
    save_team(run, "marl", models, tokenizer, step=learner.num_steps)
    changed = {role: weights_differ(model, before[role]) for role, model in models.items()}
    rows = logged_values(run, "marl", ())
    signal = {
        role: sum(row.get(f"signal/{role}", 0.0) for row in rows) / max(1, len(rows)) for role in models
    }
    payload = {"steps": learner.num_steps, "train_s": train_s, "weights_changed": changed, "signal": signal}
    run.mark_done("marl", payload)


def make_anchor_rows(config: RunConfig, chat: HFChat) -> AnchorRows:
    """Demonstrations that hold a role in joint training: others than SFT saw, new ones at every step."""
    size = config.sft.batch_size

    def rows(role: str, step: int) -> list[TokenRow]:
        first = config.data.first_marl_index + step * size
        return list(rows_of_run(config, role, chat, num_rows=size, first_row=first))

    return rows
