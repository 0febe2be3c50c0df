"""A solver from base to sealed test: SFT on worked solutions, GRPO on the tasks' own checks, scores.

The same trainers, engine, checkpoints and run folder as for the team's roles, with another family and role.
A stage that is done is skipped; a killed one goes on from its newest sound checkpoint.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from evaluation.scoring.scores import RoleScores, read_scores
from evaluation.scoring.solver import score_solver
from evaluation.stats.intervals import mean_interval
from roles.errors import UserError
from scenarios.base import Scenario
from simulator.agents.tool_calls import format_tool_call
from training.data.demonstrations import TokenRow, demonstration_row
from training.data.tasks.sources import TaskSource, open_source
from training.models.base_model import build_tiny_model, load_pretrained, quiet_libraries, train_tokenizer
from training.models.engine_factory import open_rollouts, serve
from training.models.weights import (
    BASE,
    copy_weights,
    is_finished,
    load_trainable,
    load_weights,
    save_weights,
)
from training.roles.grpo import run_grpo
from training.roles.rollouts import Rollouts
from training.roles.sft import run_sft
from training.runs.resume import StageCheckpoints, logged_values
from training.runs.run_folder import Run
from training.stages import stages

Say = Callable[[str], None]
MOST_CORPUS_TASKS = 1000  # on which the tiny tokenizer is trained
TESTED = {"untrained": BASE, "sft": "sft", "grpo": "grpo"}  # stage -> whose weights are scored


def train_tasks(run: Run, place: str, say: Say) -> list[RoleScores]:
    """All stages of a solver in one run folder; returns the scores on the sealed test tasks.

    Raises:
        UserError: no such tasks, a run of other tasks, adapters that are shared by the team.
    """
    quiet_libraries()
    config = run.config
    if config.model.adapter_sharing == "shared":
        raise UserError("adapter_sharing 'shared' is for the team: leave it out to train a solver")
    source = open_source(place, seed=config.data.seed, difficulties=config.data.difficulties)
    _claim_run(run, source)
    _make_base(run, source)
    if config.sft.max_steps and not is_finished(run, "sft", source.role.name):
        say(f"SFT of {config.sft.max_steps} steps on {source.name}")
        _train_sft(run, source, say)
    if config.grpo.max_steps and not is_finished(run, "grpo", source.role.name):
        say(f"GRPO of {config.grpo.max_steps} steps on {source.name}")
        _train_grpo(run, source)
    return [_score(run, source, stage) for stage in _tested_stages(run)]


def summarise_tasks(scores: Sequence[RoleScores], num_bootstrap: int) -> list[str]:
    """A Markdown table of what the solver earned at each stage."""
    lines = [
        "| stage | reward | greedy | right, greedy | failed calls | tokens |",
        "|---|---|---|---|---|---|",
    ]
    for one in scores:
        found = mean_interval(one.sampled, num_bootstrap=num_bootstrap)
        lines.append(
            f"| {one.stage} | {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
            f" | {statistics.fmean(one.greedy):.2f} | {sum(one.greedy_exact)} of {len(one.greedy)}"
            f" | {one.num_tool_failures} | {one.mean_tokens:.0f} |"
        )
    return lines


def _claim_run(run: Run, source: TaskSource) -> None:
    """A run folder belongs to one set of tasks."""
    if not run.is_done("tasks"):
        if run.is_done(BASE):
            raise UserError(f"{run.path} holds a run of another kind; choose another --run")
        run.mark_done("tasks", {"tasks": source.identity})
    elif run.read_payload("tasks") != {"tasks": source.identity}:
        raise UserError(f"{run.path} holds a solver of other tasks; choose another --run")


def _make_base(run: Run, source: TaskSource) -> None:
    if is_finished(run, BASE):
        return
    config = run.config
    if config.model.preset == "tiny":
        texts = _corpus(source, source.draw("train", MOST_CORPUS_TASKS, None))
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(texts, config.model.vocab_size)
        model: PreTrainedModel = build_tiny_model(config.model, tokenizer, config.seed)
    else:
        model, tokenizer = load_pretrained(config.model.preset)
    save_weights(run, BASE, None, model, tokenizer, step=0)
    run.mark_done(BASE, {"num_parameters": sum(p.numel() for p in model.parameters())})


def _corpus(source: TaskSource, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Every text that a transcript of these tasks is made of."""
    tools = "".join(f" {tool.name}" for tool in source.role.tools)
    for scenario in scenarios:
        yield from (f"{source.role.title}. Tools{tools}", scenario.brief)
        for step in source.family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}")):
            yield format_tool_call(step.text, step.call) if step.call else step.text
            if step.call:
                yield source.family.call_tool(scenario, step.call)


def _train_sft(run: Run, source: TaskSource, say: Say) -> None:
    config, role = run.config, source.role.name
    model, tokenizer = load_trainable(run, BASE, role)
    before = copy_weights(model, role)
    chat = stages.make_chat(tokenizer, config)
    most = model.config.max_position_embeddings

    def write(scenarios: Sequence[Scenario]) -> list[TokenRow]:
        rows = [
            demonstration_row(source.family, scenario, chat, {role: source.role}) for scenario in scenarios
        ]
        short = [row for row in rows if len(row.token_ids) <= most]
        if len(short) < len(rows):
            say(f"{len(rows) - len(short)} of {len(rows)} solutions are longer than {most} tokens: left out")
        if not short:
            raise UserError(f"every solution of {source.name} is longer than the model's {most} tokens")
        return short

    rows = write(source.draw("train", config.sft.max_steps * config.sft.batch_size, None))
    validation = []
    if config.sft.validate_every:
        validation = write(source.draw("validation", config.sft.num_validation_rows, None))
    checkpoints = StageCheckpoints(run, f"sft/{role}", every_steps=config.sft.checkpoint_every)
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        step = run_sft(
            model,
            tokenizer,
            rows,
            config.sft,
            max_steps=config.sft.max_steps,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=partial(run.log, f"sft/{role}"),
            checkpoints=checkpoints,
            validation_rows=validation,
            gradient_checkpointing=config.model.gradient_checkpointing,
        )
    stages.finish_stage(run, "sft", role, model, tokenizer, before, step=step, train_s=checkpoints.train_s)
    checkpoints.clear()


def _train_grpo(run: Run, source: TaskSource) -> None:
    config, role = run.config, source.role.name
    model, tokenizer = load_trainable(run, "sft" if config.sft.max_steps else BASE, role)
    before = copy_weights(model, role)
    count = config.grpo.max_steps * config.grpo.prompts_per_step
    pool = source.draw("train", count, None)
    checkpoints = StageCheckpoints(run, f"grpo/{role}", every_steps=config.grpo.checkpoint_every)
    chat = stages.make_chat(tokenizer, config)
    with (
        tempfile.TemporaryDirectory(prefix="emads-") as scratch,
        open_rollouts(run, end_id=chat.end_id) as engine,
    ):
        run_grpo(
            model,
            tokenizer,
            [pool[index % len(pool)] for index in range(count)],
            config.grpo,
            role=role,
            chat=chat,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=partial(run.log, f"grpo/{role}"),
            make_rollouts=partial(
                Rollouts,
                families={source.family.name: source.family},
                roles={role: source.role},
                engine=engine,
            ),
            checkpoints=checkpoints,
        )
    rows = logged_values(run, f"grpo/{role}", ("groups_with_signal",))
    signal = statistics.fmean(row["groups_with_signal"] for row in rows) if rows else 0.0
    stages.finish_stage(
        run,
        "grpo",
        role,
        model,
        tokenizer,
        before,
        step=config.grpo.max_steps,
        train_s=checkpoints.train_s,
        signal=signal,
    )
    checkpoints.clear()


def _tested_stages(run: Run) -> list[str]:
    steps = {"untrained": 1, "sft": run.config.sft.max_steps, "grpo": run.config.grpo.max_steps}
    return [stage for stage in TESTED if steps[stage]]


def _score(run: Run, source: TaskSource, stage: str) -> RoleScores:
    """The stage's scores on the test tasks, played once."""
    role = source.role.name
    name = f"evaluate/{stage}/{role}"
    if run.is_done(name):
        (known,) = read_scores(stages.scores_path(run, name))
        assert isinstance(known, RoleScores)
        return known
    model, tokenizer = load_weights(run, TESTED[stage], role)
    chat = stages.make_chat(tokenizer, run.config)
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        scores = score_solver(
            stage,
            source.family,
            source.role,
            lambda key: source.draw("test", run.config.evaluation.num_role_scenarios, key),
            engine=engine,
            chat=chat,
            max_turns=run.config.grpo.max_turns,
            max_completion_tokens=run.config.grpo.max_completion_tokens,
            max_failed_calls=run.config.grpo.max_failed_calls,
        )
    stages.store_scores(run, name, [scores])
    return scores
