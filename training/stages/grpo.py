"""The stage `grpo`: GRPO of one role on scenarios of its own family."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario, Split
from scenarios.registry import FAMILIES, families
from training.config.rl_config import GrpoConfig
from training.config.run_config import FIRST_GRPO_INDEX
from training.data.demonstrations import role_scenario
from training.feedback.reward_model import load_reward_model
from training.learner.ranks import ONE_RANK, Ranks
from training.models.adapters import roles_of
from training.models.weights import copy_weights, finish_stage, load_trainable
from training.rl.solo.alarms import list_alarms, write_alarms
from training.rl.solo.algorithm import SoloMonitor, make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.runs.resume import StageCheckpoints, logged_values
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.rl_stage import open_hosts, open_play, prepare_policies, train_steps


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
    config = run.config
    model, tokenizer = load_trainable(run, source, role)
    num_validation = grpo.guards.validation_scenarios if grpo.guards.validate_every else 0
    train_on_scenarios(
        run,
        role,
        model,
        tokenizer,
        partial(draw_scenario, run, role, "train", first_index),
        [draw_scenario(run, role, "validation", 0, place) for place in range(num_validation)],
        stage=stage,
        source=source,
        grpo=grpo,
        families=families(config.model.prompts),
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
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
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
    """Train a model with the weights of stage `source` on rollouts of scenarios, and publish it.

    `draw`: the scenario at a place; every step plays the next ones. `grpo`: in place of the config's section.
    `on_hosts`: the run's rollout hosts play, if it has any; they know the run's own families alone.
    """
    config, name = run.config, f"{stage}/{role}"
    grpo = grpo or config.grpo
    chat, size = make_chat(tokenizer, config), grpo.prompts_per_step
    before = copy_weights(model, role)
    checkpoints = StageCheckpoints(run, name, every_steps=config.checkpoint_every)
    models = dict.fromkeys(roles_of(role), model)
    policies = prepare_policies(
        run, models, grpo, ranks, lambda: dict.fromkeys(models, load_trainable(run, source, role)[0])
    )
    with (
        open_hosts(run, ranks, (source, role)) if on_hosts else nullcontext() as hosts,
        open_play(run, models, grpo, chat, ranks, hosts=hosts) as where,
    ):
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
