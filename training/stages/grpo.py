"""The stage `grpo`: GRPO of one role on scenarios of its own family, from its SFT weights."""

import copy
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.base import Role
from roles.errors import UserError
from roles.registry import ROLES
from scenarios.base import Family, Scenario, Split
from scenarios.registry import FAMILIES, families
from training.config.data_config import FIRST_GRPO_INDEX
from training.config.grpo_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.data.drawn_scenarios import DrawnScenarios
from training.feedback.reward_model import load_reward_model
from training.learner.ranks import ONE_RANK, Ranks
from training.models.adapters import roles_of
from training.models.engine_factory import open_rollouts
from training.models.weights import copy_weights, finish_stage, is_finished, load_trainable
from training.roles.alarm_files import list_alarms, write_alarms
from training.roles.grpo import run_grpo
from training.roles.rollouts import Rollouts
from training.roles.scoring import Judge
from training.runs.resume import StageCheckpoints, logged_values
from training.runs.run_errors import explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import make_chat
from training.stages.order import SOURCE


def train_grpo(path: Path, role: str, ranks: Ranks = ONE_RANK) -> None:
    """Train one role by GRPO from its SFT weights."""
    run = Run.open(path)
    with ranks.first_alone():
        if is_finished(run, "grpo", role):
            return
    first = FIRST_GRPO_INDEX
    train_role(run, "grpo", role, run.config.grpo.of_role(role), first_index=first, ranks=ranks)


def train_role(
    run: Run, stage: str, role: str, grpo: GrpoConfig, *, first_index: int, ranks: Ranks = ONE_RANK
) -> None:
    """Train one role on scenarios of its family from `first_index` on.

    Roles that share an adapter take turns in its batches.
    """
    config = run.config
    model, tokenizer = load_trainable(run, SOURCE[stage], role)
    num_scenarios = max(1, grpo.max_steps) * grpo.prompts_per_step
    num_validation = grpo.guards.validation_scenarios if grpo.guards.validate_every else 0
    train_on_scenarios(
        run,
        role,
        model,
        tokenizer,
        draw_scenarios(run, role, "train", num_scenarios, first_index),
        draw_scenarios(run, role, "validation", num_validation, 0),
        stage=stage,
        grpo=grpo,
        families=families(config.model.prompts),
        ranks=ranks,
    )


def draw_scenarios(run: Run, role: str, split: Split, count: int, first: int) -> DrawnScenarios:
    """`count` scenarios of a role's own family from index `first`; roles of one adapter take turns."""
    config, roles = run.config, roles_of(role)

    def draw_one(place: int) -> Scenario:
        one, index = roles[place % len(roles)], first + place // len(roles)
        return role_scenario(
            one, split, config.data.seed, index, config.data.difficulties, config.model.prompts
        )

    return DrawnScenarios(draw_one, count)


def train_on_scenarios(
    run: Run,
    role: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    scenarios: Sequence[Scenario],
    validation: Sequence[Scenario],
    *,
    stage: str = "grpo",
    grpo: GrpoConfig | None = None,
    families: Mapping[str, Family] = FAMILIES,
    roles: Mapping[str, Role] = ROLES,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Train a model on rollouts of the scenarios, publish its weights and mark the stage done.

    `grpo`: in place of the run's own section. Every rank plays its part of a step's scenarios; the first one
    logs and publishes.

    Raises:
        UserError: a number of prompts that the ranks cannot share evenly.
    """
    config, name = run.config, f"{stage}/{role}"
    grpo = grpo or config.grpo
    chat = make_chat(tokenizer, config)
    before = copy_weights(model, role)
    actor = copy.deepcopy(model).cpu() if ranks.shares_weights else None  # the GPU has room after sharding
    checkpoints = StageCheckpoints(run, name, every_steps=grpo.checkpoint_every)

    def on_step(step: int, metrics: Mapping[str, float]) -> None:
        if ranks.rank == 0:
            run.log(name, step, metrics)
        if "verified" in metrics:
            report_progress(5, reward=metrics["verified"], **list_alarms(metrics))

    with (
        tempfile.TemporaryDirectory(prefix="emads-") as scratch,
        explain_memory_errors(name),
        open_rollouts(run, end_id=chat.end_id, ranks=ranks) as engine,
    ):
        outcome = run_grpo(
            model,
            tokenizer,
            scenarios,
            divide_prompts(grpo, ranks.size),
            role=role,
            chat=chat,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=on_step,
            make_rollouts=partial(
                Rollouts, engine=engine, families=families, roles=roles, judge=_load_judge(run, role, grpo)
            ),
            checkpoints=checkpoints,
            validation=validation,
            gradient_checkpointing=config.model.gradient_checkpointing,
            actor=actor,
        )
    if ranks.rank == 0:
        write_alarms(run, name, outcome.alarms)
        finish_stage(
            run,
            stage,
            role,
            actor or model,
            tokenizer,
            before,
            step=outcome.step,
            train_s=checkpoints.train_s,
            signal=_mean_signal(run, name),
        )
        checkpoints.clear()
    ranks.wait()


def divide_prompts(grpo: GrpoConfig, num_ranks: int) -> GrpoConfig:
    """The section of one of several ranks, which plays its part of each step's prompts, groups whole.

    Raises:
        UserError: the prompts of a step are no multiple of the number of ranks.
    """
    if grpo.prompts_per_step % num_ranks:
        raise UserError(
            f"grpo.prompts_per_step {grpo.prompts_per_step} must be a multiple of {num_ranks} processes"
        )
    share, micro = grpo.prompts_per_step // num_ranks, grpo.memory.micro_batch_size
    return grpo.changed(
        prompts_per_step=share,
        memory__micro_batch_size=math.gcd(micro, share * grpo.group_size) if micro else 0,
    )


def _load_judge(run: Run, role: str, grpo: GrpoConfig) -> Judge | None:
    """The model that scores transcripts beside the verifier; None where the config gives it no weight."""
    return load_reward_model(run, role).score if grpo.model_weight else None


def _mean_signal(run: Run, stage: str) -> float:
    """Mean share of groups with an advantage; a step without a gradient counts as 0."""
    rows = logged_values(run, stage, ("groups_with_signal", "grad_norm"))
    signals = [row["groups_with_signal"] * (row["grad_norm"] > 0) for row in rows]
    return sum(signals) / max(1, len(signals))
