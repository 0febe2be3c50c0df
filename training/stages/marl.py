"""The stage `marl`: joint training of all roles from their GRPO weights, or from other joint ones."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from roles.errors import UserError
from roles.team import TEAM_ROLES
from training.learner.ranks import ONE_RANK, Ranks
from training.models.weights import copy_weights, save_team, weights_differ
from training.rl.team.algorithm import TeamMonitor, make_team_learner
from training.runs.resume import StageCheckpoints, logged_values
from training.runs.run_folder import Run
from training.stages.from_config import (
    choose_game,
    first_joint_case,
    joint_cases,
    load_joint_start,
    make_chat,
    past_own_scores,
    validation_cases,
)
from training.stages.rl_stage import open_hosts, open_play, prepare_policies, train_steps


def train_marl(
    run: Run,
    source: str,
    ranks: Ranks = ONE_RANK,
    *,
    max_steps: int | None = None,
    ends_here: bool = False,
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
    with (
        nullcontext() if ends_here else open_hosts(run, ranks, (source, None)) as hosts,
        open_play(run, models, marl, chat, ranks, hosts=hosts, plays=not ends_here) as where,
    ):
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
    save_team(run, "marl", models, tokenizer, step=step)
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
