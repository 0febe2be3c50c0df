"""`emads train base|sft|grpo|marl`: one stage of a run."""

from collections.abc import Sequence
from pathlib import Path

from emads.commands.stage_tasks import base_task, grpo_task, marl_task, perform, sft_task
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from training.models.adapters import owners_of
from training.models.weights import stage_marker
from training.runs.run_folder import Run
from training.stages.take_over import num_joint_steps, take_over


def train_stage(
    run: Run, stage: str, roles: Sequence[str] = tuple(ROLES), *, ends_here: bool = False
) -> None:
    """Train one stage, base, sft, grpo or marl; sft and grpo train the given roles, marl the whole team.

    SFT of a role that starts from another role's weights trains that one first. With `ends_here` the newest
    checkpoint of marl becomes its result.

    Raises:
        UserError: a role lacks the weights of the stage before.
    """
    model = run.config.model
    if stage == "base":
        perform(run, [base_task(run)], "base")
    elif stage == "sft":
        first = run.config.sft.transfer_from
        owners = owners_of(model, (first, *roles) if first else roles)
        perform(run, [base_task(run), *(sft_task(run, owner) for owner in owners)], "SFT")
    elif stage == "grpo":
        _require(run, "sft", roles)
        perform(run, [grpo_task(run, owner, after=()) for owner in owners_of(model, roles)], "GRPO")
    elif stage == "marl":
        _require(run, "grpo", TEAM_ROLES)
        perform(run, [marl_task(run, after=(), ends_here=ends_here)], "MARL")
        if ends_here:
            print(f"joint training ended after step {num_joint_steps(run)} of {run.config.marl.max_steps}")
    else:
        raise ValueError(f"no stage {stage!r}")


def take_stages(run: Run, donor: Path | None) -> None:
    """Take over what another run did under equal settings, and say what; None takes nothing.

    Raises:
        UserError: no run there, the run itself, or one of another seed, model or data.
    """
    if donor is None:
        return
    if donor.resolve() == run.path.resolve():
        raise UserError(f"--take-from {donor} is the run itself; name another run")
    taken = take_over(Run.open(donor), run)
    print(f"taken over from {donor}: {', '.join(taken) or 'nothing that is not done here'}")


def _require(run: Run, stage: str, roles: Sequence[str]) -> None:
    for role in roles:
        if not run.is_done(stage_marker(run, stage, role)):
            raise UserError(
                f"role {role!r} has no {stage} weights in {run.path}; first `emads train {stage} {run.path}`"
            )
