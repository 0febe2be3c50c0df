"""The stage `grpo`: GRPO of one role on scenarios of its own family, from its SFT weights."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.base import Role
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
from training.models.weights import copy_weights, finish_stage, is_finished, load_trainable
from training.rl.solo.alarms import list_alarms, write_alarms
from training.rl.solo.algorithm import SoloMonitor, make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.runs.resume import StageCheckpoints, logged_values
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.order import SOURCE
from training.stages.rl_stage import open_play, prepare_policies, train_steps
from training.stages.rollout_hosts import open_hosts


def train_grpo(path: Path, role: str, ranks: Ranks = ONE_RANK) -> None:
    """Train one role by GRPO from its SFT weights."""
    run = Run.open(path)
    with ranks.main_process_first():
        if is_finished(run, "grpo", role):
            return
    train_role(run, "grpo", role, run.config.grpo, first_index=FIRST_GRPO_INDEX, ranks=ranks)


def train_role(
    run: Run, stage: str, role: str, grpo: GrpoConfig, *, first_index: int, ranks: Ranks = ONE_RANK
) -> None:
    """Train one role on scenarios of its family from `first_index` on.

    Roles that share their weights take turns in its batches.
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
        on_hosts=True,
        ranks=ranks,
    )


def draw_scenarios(run: Run, role: str, split: Split, count: int, first: int) -> DrawnScenarios:
    """`count` scenarios of a role's own family from index `first`; roles of one set of weights take turns."""
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
    on_hosts: bool = False,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Train a model on rollouts of the scenarios, publish its weights and mark the stage done.

    `grpo`: in place of the run's own section. `on_hosts`: the run's rollout hosts play, if it has any; they
    know the run's own families alone.
    """
    config, name = run.config, f"{stage}/{role}"
    grpo = grpo or config.grpo
    chat = make_chat(tokenizer, config)
    before = copy_weights(model, role)
    checkpoints = StageCheckpoints(run, name, every_steps=config.checkpoint_every)
    models = dict.fromkeys(roles_of(role), model)
    policies = prepare_policies(
        run, models, grpo, ranks, lambda: dict.fromkeys(models, load_trainable(run, SOURCE[stage], role)[0])
    )
    with (
        open_hosts(run, ranks, (stage, role)) if on_hosts else nullcontext() as hosts,
        open_play(run, models, grpo, chat, ranks, hosts=hosts) as where,
    ):
        learner = make_solo_learner(
            models,
            grpo,
            player=SoloPlayer(config=grpo, chat=chat, families=families, roles=roles),
            name=stage,
            judge=load_reward_model(run, role).score if grpo.model_weight else None,
            difficulties=[scenario.difficulty for scenario in scenarios] if grpo.curriculum else (),
            ranks=ranks,
            **policies,
            **where,
        )
        monitor = learner.monitor
        assert isinstance(monitor, SoloMonitor)
        size = grpo.prompts_per_step
        best = train_steps(
            run,
            name,
            learner,
            lambda step: monitor.choose(scenarios[step * size : (step + 1) * size], step * size),
            checkpoints,
            validation=list(validation),
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
