"""The stages of a run, one function each: what a worker process does. Each touches the run folder only.

Weights are published once per stage and owner (`checkpoints/sft/cto/step_600`), so a stage that is done is
skipped. A killed one goes on from its newest sound checkpoint (`training/runs/resume.py`), bit for bit on a
CPU.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from evaluation.scoring.assess import score_role, score_team
from evaluation.scoring.baselines import score_role_baselines, score_team_baselines
from evaluation.scoring.scores import RoleScores, TeamScores, write_scores
from roles.registry import ROLES
from scenarios.base import Scenario, Split
from scenarios.team import TeamScenario
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from simulator.reward import TeamRewardWeights
from training.config.run_config import RunConfig
from training.data.demonstrations import (
    TokenRow,
    corpus,
    role_scenario,
    supervised_rows,
    take_turns,
    team_scenario,
)
from training.joint.anchor import AnchorRows
from training.joint.best_team import BestTeam
from training.joint.marl import JointLearner
from training.joint.overlap import OverlappedLearner
from training.models.adapters import quantization, roles_of
from training.models.base_model import build_tiny_model, load_pretrained, train_tokenizer
from training.models.engine_factory import open_rollouts, serve
from training.models.weights import (
    BASE,
    Team,
    copy_weights,
    is_finished,
    load_team,
    load_trainable,
    load_weights,
    save_team,
    save_weights,
    stage_marker,
    weights_differ,
)
from training.roles.alarm_records import list_alarms, write_alarms
from training.roles.grpo import run_grpo
from training.roles.rollouts import Rollouts
from training.roles.sft import run_sft
from training.runs.faults import enter_stage, fault_point
from training.runs.resume import StageCheckpoints, Stateful, load_parts, logged_values, save_parts
from training.runs.run_errors import SkippedSteps, explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress

TOKENIZER_SCENARIOS = 300  # per family, for training the tiny tokenizer
SOURCE = {"sft": BASE, "sft_more": "sft", "grpo": "sft", "marl": "grpo"}  # whose weights a stage starts from
EVALUATED_AFTER = {"untrained": BASE, "sft": "sft", "sft_more": "sft_more", "grpo": "grpo", "marl": "marl"}


def train_base(path: Path) -> None:
    """Tokenizer and base weights: built for `tiny`, loaded for a pretrained preset."""
    run = Run.open(path)
    config = run.config
    if is_finished(run, BASE):
        return
    enter_stage(BASE)
    quantization(config.model)  # what cannot run here is refused before anything is made
    if config.model.preset == "tiny":
        texts = corpus(
            num_role=TOKENIZER_SCENARIOS,
            num_team=TOKENIZER_SCENARIOS,
            seed=config.data.seed,
            difficulties=config.data.difficulties,
            conventions=config.data.conventions,
        )
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(texts, config.model.vocab_size)
        model: PreTrainedModel = build_tiny_model(config.model, tokenizer, config.seed)
    else:
        model, tokenizer = load_pretrained(config.model.preset)
    save_weights(run, BASE, None, model, tokenizer, step=0)
    run.mark_done(BASE, {"num_parameters": sum(p.numel() for p in model.parameters())})


def train_sft(path: Path, role: str) -> None:
    """Supervised fine-tuning of one role from the base."""
    run = Run.open(path)
    if not is_finished(run, "sft", role):
        _run_supervised(run, "sft", role, run.config.sft.max_steps, first_row=0)


def train_sft_more(path: Path, role: str) -> None:
    """The control of GRPO: go on with SFT, on new demonstrations, for the time that GRPO took."""
    run = Run.open(path)
    if is_finished(run, "sft_more", role):
        return
    sft, grpo = (run.read_payload(stage_marker(run, stage, role)) for stage in ("sft", "grpo"))
    seconds_per_step = sft["train_s"] / max(1, run.config.sft.max_steps)
    steps = max(1, round(run.config.sft.control_fraction * grpo["train_s"] / seconds_per_step))
    _run_supervised(
        run, "sft_more", role, steps, first_row=run.config.sft.max_steps * run.config.sft.batch_size
    )


def _run_supervised(run: Run, stage: str, role: str, max_steps: int, *, first_row: int) -> None:
    config = run.config
    model, tokenizer = load_trainable(run, SOURCE[stage], role)
    chat = make_chat(tokenizer, config)
    before = copy_weights(model, role)
    num_rows = max(1, max_steps) * config.sft.batch_size

    def draw(split: Split, count: int, first: int) -> list[TokenRow]:
        streams = [
            supervised_rows(
                one,
                chat,
                num_rows=count,
                first_row=first,
                seat_share=config.data.seat_share,
                seed=config.data.seed,
                difficulties=config.data.difficulties,
                split=split,
                conventions=config.data.conventions,
            )
            for one in roles_of(role)
        ]
        return take_turns(streams, count)

    rows = draw("train", num_rows, first_row)
    validation = config.sft.num_validation_rows if config.sft.validate_every else 0
    checkpoints = StageCheckpoints(run, f"{stage}/{role}", every_steps=config.sft.checkpoint_every)

    def on_step(step: int, metrics: Mapping[str, float]) -> None:
        run.log(f"{stage}/{role}", step, metrics)
        if "loss" in metrics:
            report_progress(min(10, max_steps), sft_loss=metrics["loss"])

    with tempfile.TemporaryDirectory(prefix="emads-") as scratch, explain_memory_errors(f"{stage}/{role}"):
        step = run_sft(
            model,
            tokenizer,
            rows,
            config.sft,
            max_steps=max_steps,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=on_step,
            checkpoints=checkpoints,
            validation_rows=draw("validation", validation, 0),
            gradient_checkpointing=config.model.gradient_checkpointing,
        )
    finish_stage(run, stage, role, model, tokenizer, before, step=step, train_s=checkpoints.train_s)
    checkpoints.clear()


def train_grpo(path: Path, role: str) -> None:
    """GRPO of one role on its own family, from its SFT weights."""
    run = Run.open(path)
    config = run.config
    if is_finished(run, "grpo", role):
        return
    model, tokenizer = load_trainable(run, SOURCE["grpo"], role)
    chat = make_chat(tokenizer, config)
    before = copy_weights(model, role)
    num_scenarios = max(1, config.grpo.max_steps) * config.grpo.prompts_per_step
    roles = roles_of(role)

    def draw(split: Split, count: int, first: int) -> list[Scenario]:
        seed, difficulties = config.data.seed, config.data.difficulties
        turns = [(roles[index % len(roles)], first + index // len(roles)) for index in range(count)]
        return [role_scenario(one, split, seed, index, difficulties) for one, index in turns]

    scenarios = draw("train", num_scenarios, config.data.first_grpo_index)
    validation = config.grpo.validation_scenarios if config.grpo.validate_every else 0
    checkpoints = StageCheckpoints(run, f"grpo/{role}", every_steps=config.grpo.checkpoint_every)

    def on_step(step: int, metrics: Mapping[str, float]) -> None:
        run.log(f"grpo/{role}", step, metrics)
        if "verified" in metrics:
            report_progress(5, grpo_reward=metrics["verified"], **list_alarms(metrics))

    with (
        tempfile.TemporaryDirectory(prefix="emads-") as scratch,
        explain_memory_errors(f"grpo/{role}"),
        open_rollouts(run, end_id=chat.end_id) as engine,
    ):
        outcome = run_grpo(
            model,
            tokenizer,
            scenarios,
            config.grpo,
            role=role,
            chat=chat,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=on_step,
            make_rollouts=partial(Rollouts, engine=engine),
            checkpoints=checkpoints,
            validation=draw("validation", validation, 0),
            gradient_checkpointing=config.model.gradient_checkpointing,
        )
    write_alarms(run, f"grpo/{role}", outcome.alarms)
    rows = logged_values(run, f"grpo/{role}", ("groups_with_signal", "grad_norm"))
    # without a gradient nothing was learnt, whatever the rewards said
    signals = [row["groups_with_signal"] * (row["grad_norm"] > 0) for row in rows]
    finish_stage(
        run,
        "grpo",
        role,
        model,
        tokenizer,
        before,
        step=outcome.step,
        train_s=checkpoints.train_s,
        signal=sum(signals) / max(1, len(signals)),
    )
    checkpoints.clear()


def train_marl(path: Path) -> None:
    """Joint training of all roles from their GRPO weights."""
    run = Run.open(path)
    config = run.config
    if all(is_finished(run, "marl", role) for role in ROLES):
        return
    models, tokenizer = load_team(run, SOURCE["marl"])
    chat = make_chat(tokenizer, config)
    with open_rollouts(run, end_id=chat.end_id) as engine:
        _train_team(run, models, tokenizer, chat, engine)


def _train_team(
    run: Run,
    models: Mapping[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    chat: HFChat,
    engine: PolicyEngine | None,
) -> None:
    config = run.config
    before = {role: copy_weights(model, role) for role, model in models.items()}
    references = None
    if config.marl.needs_reference:
        references = {
            role: model.eval().requires_grad_(False)
            for role, model in load_team(run, SOURCE["marl"])[0].items()
        }
    learner = JointLearner(
        models,
        config.marl,
        chat=chat,
        reward_weights=reward_weights(config),
        seed=config.seed,
        references=references,
        anchor_rows=make_anchor_rows(config, chat),
        engine=engine,
    )
    trainer = OverlappedLearner(learner, partial(joint_cases, config), config.marl.max_steps)
    best = BestTeam(learner, validation_cases(config))
    parts: dict[str, Stateful] = {"learner": trainer, "best": best}
    checkpoints = StageCheckpoints(run, "marl", every_steps=config.marl.checkpoint_every)
    found = checkpoints.find()
    if found is not None:
        load_parts(found, parts)
    skipped = SkippedSteps()
    for step in range(learner.num_steps, config.marl.max_steps):
        fault_point("step")
        with explain_memory_errors("marl"):
            metrics = trainer.step()
            if config.marl.validate_every and (step + 1) % config.marl.validate_every == 0:
                metrics |= best.validate()
        run.log("marl", step + 1, metrics)
        skipped.watch(step + 1, [metrics.get(f"grad_norm/{role}", 0.0) for role in models])
        report_progress(10, team_reward=metrics.get("team_reward", float("nan")))
        if checkpoints.is_due(step + 1):
            checkpoints.save(step + 1, save_parts(parts))
    trainer.close()
    best.restore()
    train_s = checkpoints.train_s
    save_team(run, "marl", models, tokenizer, step=config.marl.max_steps)
    changed = {role: weights_differ(model, before[role]) for role, model in models.items()}
    rows = logged_values(run, "marl", ())
    signal = {
        role: sum(row.get(f"signal/{role}", 0.0) for row in rows) / max(1, len(rows)) for role in models
    }
    run.mark_done("marl", {"train_s": train_s, "weights_changed": changed, "signal": signal})
    checkpoints.clear()


def joint_cases(config: RunConfig, step: int) -> list[TeamScenario]:
    """The training cases of one joint step."""
    first, data = step * config.marl.scenarios_per_step + config.data.first_marl_index, config.data
    return [
        team_scenario("train", data.seed, first + i, data.difficulties, data.conventions)
        for i in range(config.marl.scenarios_per_step)
    ]


def validation_cases(config: RunConfig) -> list[TeamScenario]:
    """Team cases of the validation split, for choosing the best joint step."""
    data = config.data
    return [
        team_scenario("validation", data.seed, index, data.difficulties, data.conventions)
        for index in range(config.marl.validation_scenarios if config.marl.validate_every else 0)
    ]


def make_anchor_rows(config: RunConfig, chat: HFChat) -> AnchorRows:
    """Demonstrations that hold a role in joint training: others than SFT saw, new ones at every step."""
    size = config.sft.batch_size

    def rows(role: str, step: int) -> list[TokenRow]:
        first = config.data.first_marl_index + step * size
        return list(
            supervised_rows(
                role,
                chat,
                num_rows=size,
                first_row=first,
                seat_share=config.data.seat_share,
                seed=config.data.seed,
                difficulties=config.data.difficulties,
                conventions=config.data.conventions,
            )
        )

    return rows


def evaluate_role(path: Path, stage: str, role: str) -> None:
    """Score one role after one stage on its sealed test scenarios."""
    run = Run.open(path)
    name = f"evaluate/{stage}/{role}"
    if run.is_done(name):
        return
    config = run.config
    model, tokenizer = load_weights(run, EVALUATED_AFTER[stage], role)
    chat = make_chat(tokenizer, config)
    scenarios = [
        role_scenario(role, "test", config.data.seed, index, test_difficulties(config))
        for index in range(config.evaluation.num_role_scenarios)
    ]
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        scores = score_role(
            role,
            stage,
            scenarios,
            engine=engine,
            chat=chat,
            max_turns=config.grpo.max_turns,
            max_completion_tokens=config.grpo.max_completion_tokens,
            max_failed_calls=config.grpo.max_failed_calls,
            folder=outcomes_folder(run),
        )
    store_scores(run, name, [scores])
    report_progress(20)


def evaluate_team(path: Path, stage: str) -> None:
    """Score the team after one stage on the sealed test cases."""
    run = Run.open(path)
    name = f"evaluate/{stage}/team"
    if run.is_done(name):
        return
    config = run.config
    models, tokenizer = load_team(run, EVALUATED_AFTER[stage])
    chat = make_chat(tokenizer, config)
    with serve(run, models, stage, end_id=chat.end_id) as engine:
        scores = score_team(
            stage,
            test_cases(config),
            engine=engine,
            chat=chat,
            weights=reward_weights(config),
            max_completion_tokens=config.marl.max_completion_tokens,
            rounds=config.marl.rounds,
            folder=outcomes_folder(run),
        )
    store_scores(run, name, [scores])
    report_progress(40)


def evaluate_baselines(path: Path) -> None:
    """Baselines of every role and of the team on the same test scenarios."""
    run = Run.open(path)
    name = "evaluate/baselines"
    if run.is_done(name):
        return
    config = run.config
    scores: list[RoleScores | TeamScores] = []
    for role in ROLES:
        scenarios = [
            role_scenario(role, "test", config.data.seed, index, test_difficulties(config))
            for index in range(config.evaluation.num_role_scenarios)
        ]
        scores += score_role_baselines(role, scenarios)
    scores += score_team_baselines(test_cases(config), reward_weights(config))
    store_scores(run, name, scores)
    report_progress(10)


def test_difficulties(config: RunConfig) -> tuple[int, ...]:
    """Difficulties of the sealed scenarios."""
    return config.evaluation.difficulties or config.data.difficulties


def test_cases(config: RunConfig) -> list[Any]:
    """The sealed team cases of a run."""
    return [
        team_scenario("test", config.data.seed, index, test_difficulties(config), config.data.conventions)
        for index in range(config.evaluation.num_team_scenarios)
    ]


def store_scores(
    run: Run, name: str, scores: list[RoleScores | TeamScores] | list[RoleScores] | list[TeamScores]
) -> None:
    """Write scores/NAME.jsonl, then mark the evaluation done."""
    target = scores_path(run, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_scores(target, scores)
    run.mark_done(name)


def outcomes_folder(run: Run) -> Path:
    """Where every evaluated play of a run is kept."""
    return run.path / "scores" / "outcomes"


def scores_path(run: Run, name: str) -> Path:
    return run.path / "scores" / f"{name.removeprefix('evaluate/').replace('/', '-')}.jsonl"


def team_engine(
    models: Team, tokenizer: PreTrainedTokenizerBase, config: RunConfig, stage: str
) -> TransformersEngine:
    """An engine that serves every role's own weights under the role's name."""
    engine = TransformersEngine(end_id=make_chat(tokenizer, config).end_id, seed=config.seed)
    for role, model in models.items():
        engine.set_policy(role, model, version=f"{role}@{stage}")
    return engine


def make_chat(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> HFChat:
    """How this run's transcripts become tokens."""
    return HFChat(
        tokenizer,
        short_prompts=config.model.short_prompts,
        case_first=config.model.prompt_layout == "case_first",
    )


def reward_weights(config: RunConfig) -> TeamRewardWeights:
    """The team reward's weights from the config."""
    return TeamRewardWeights(**config.team_reward.model_dump())


def finish_stage(
    run: Run,
    stage: str,
    role: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    before: Mapping[str, torch.Tensor],
    *,
    step: int,
    train_s: float,
    **payload: float,
) -> None:
    """Publish a role's new weights, then mark its stage done."""
    save_weights(run, stage, role, model, tokenizer, step=step)
    changed = weights_differ(model, before)
    marker = stage_marker(run, stage, role)
    run.mark_done(marker, {"train_s": train_s, "weights_changed": changed, "steps": step, **payload})
