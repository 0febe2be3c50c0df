"""Joint training of a run under torchrun: scenarios over ranks, rank 0 writes, any number of ranks resumes.

    torchrun --nproc-per-node 4 -m training.stages.distributed_stage RUN [--max-steps N]

The folder and its checkpoints are those of `emads train marl`: what one process began, four can go on with.
"""

import argparse
import copy
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.joint.best_team import BestTeam
from training.joint.marl import JointLearner
from training.joint.overlap import OverlappedLearner
from training.learner.fsdp import join_ranks, leave_ranks, shard_model
from training.learner.ranks import Ranks
from training.models.base_model import quiet_libraries
from training.models.engine_factory import open_rollouts
from training.models.weights import copy_weights, is_finished, load_team, save_team, weights_differ
from training.runs.resume import StageCheckpoints, Stateful, load_parts, logged_values
from training.runs.run_errors import SkippedSteps, explain_memory_errors
from training.runs.run_folder import Run
from training.runs.state_files import write_state
from training.stages import stages


def train_marl_on_ranks(path: Path, ranks: Ranks, *, max_steps: int | None = None) -> None:
    """The stage `marl` of a run on all ranks; with `max_steps` it stops there and can be resumed."""
    run = Run.open(path)
    config = run.config
    if config.engine.name == "vllm" and ranks.size > 1:
        raise UserError(
            "engine.name 'vllm' plays on one rank; under torchrun use transformers or vllm_server"
        )
    with ranks.first_alone():
        if all(is_finished(run, "marl", role) for role in ROLES):
            return
        models, tokenizer = load_team(run, stages.SOURCE["marl"])
    chat = stages.make_chat(tokenizer, config)
    with open_rollouts(run, end_id=chat.end_id) as engine:
        _train_team(run, models, tokenizer, chat, engine, ranks, max_steps)


def _train_team(
    run: Run,
    models: dict[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    chat: HFChat,
    engine: PolicyEngine | None,
    ranks: Ranks,
    max_steps: int | None,
) -> None:
    config = run.config
    before = {role: copy_weights(model, role) for role, model in models.items()}
    references = None
    if config.marl.needs_reference:
        starting, _ = load_team(run, stages.SOURCE["marl"])
        references = {role: model.eval().requires_grad_(False) for role, model in starting.items()}
    actors = None
    if config.marl.sharding == "fsdp2" and ranks.size > 1:
        actors = {role: copy.deepcopy(model) for role, model in models.items()}  # what plays, whole
        for model in {id(one): one for one in models.values()}.values():
            shard_model(model, bf16=config.marl.sharded_bf16, cpu_offload=config.marl.cpu_offload)
    learner = JointLearner(
        models,
        config.marl,
        chat=chat,
        reward_weights=stages.reward_weights(config),
        seed=config.seed,
        references=references,
        anchor_rows=stages.make_anchor_rows(config, chat),
        ranks=ranks,
        actors=actors,
        engine=engine,
    )
    trainer = OverlappedLearner(learner, partial(stages.joint_cases, config), config.marl.max_steps)
    best = BestTeam(learner, stages.validation_cases(config))  # every rank plays all of them: one result
    parts: dict[str, Stateful] = {"learner": trainer, "best": best}
    checkpoints = StageCheckpoints(run, "marl", every_steps=config.marl.checkpoint_every)
    found = _from_first(checkpoints.find() if ranks.rank == 0 else None, ranks)
    if found is not None:
        load_parts(found, parts)
    ranks.wait()  # rank 0 may remove it soon: with no step left, at once
    last = min(config.marl.max_steps, max_steps or config.marl.max_steps)
    skipped = SkippedSteps()
    for step in range(learner.num_steps, last):
        with explain_memory_errors("marl"):
            metrics = trainer.step()
            if config.marl.validate_every and (step + 1) % config.marl.validate_every == 0:
                metrics |= best.validate()
        skipped.watch(step + 1, [metrics.get(f"grad_norm/{role}", 0.0) for role in models])
        due = checkpoints.is_due(step + 1) or step + 1 == last
        if ranks.rank == 0:
            run.log("marl", step + 1, metrics)
        if ranks.most(int(due and ranks.rank == 0)):
            _save(checkpoints, step + 1, {name: part.state() for name, part in parts.items()}, ranks)
    trainer.close()
    if last == config.marl.max_steps:
        best.restore()
        team = {role: _whole_copy(learner, role) for role in models}
        if ranks.rank == 0:
            save_team(run, "marl", team, tokenizer, step=last)
            changed = {role: weights_differ(model, before[role]) for role, model in team.items()}
            rows = logged_values(run, "marl", ())
            signal = {
                role: sum(row.get(f"signal/{role}", 0.0) for row in rows) / max(1, len(rows))
                for role in models
            }
            payload = {"train_s": checkpoints.train_s, "weights_changed": changed, "signal": signal}
            run.mark_done("marl", payload)
            checkpoints.clear()


def _save(checkpoints: StageCheckpoints, step: int, states: Mapping[str, Any], ranks: Ranks) -> None:
    """Rank 0 writes what all ranks have gathered."""

    def write(folder: Path) -> None:
        for name, state in states.items():
            write_state(folder, name, dict(state))

    if ranks.rank == 0:
        checkpoints.save(step, write)
    ranks.wait()


def _from_first(value: Path | None, ranks: Ranks) -> Path | None:
    """What rank 0 has, on every rank."""
    if ranks.size == 1:
        return value
    held: list[Path | None] = [value]
    dist.broadcast_object_list(held)
    return held[0]


def _whole_copy(learner: JointLearner, role: str) -> PreTrainedModel:
    """A model with all of the role's trained weights: what played, where the trained ones are sharded."""
    model: PreTrainedModel = learner.actors[role]
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; 2 after a user's mistake, and other numbers as `emads` has them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--max-steps", type=int)
    options = parser.parse_args(arguments)
    try:
        ranks = join_ranks()
        quiet_libraries()
        torch.set_num_threads(Run.open(options.run).config.threads_per_worker)
        train_marl_on_ranks(options.run, ranks, max_steps=options.max_steps)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    leave_ranks(ranks)  # not after an error: the others would have to come here too
    return 0


if __name__ == "__main__":
    sys.exit(main())
