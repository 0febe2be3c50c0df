"""A solver from base to sealed test: SFT on worked solutions, GRPO on the tasks' own checks, scores.

The stages are those of the team's roles, with the tasks' own family and role.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from transformers import PreTrainedModel

from evaluation.scoring.outcomes import StagePlays, read_stage
from evaluation.scoring.sealed_plays import draw_sealed
from evaluation.stats.intervals import mean_interval
from roles.errors import UserError
from scenarios.base import Split
from simulator.chat import Chat
from simulator.engines.embedded.own_pass import count_positions
from training.data.demonstrations import TokenRow, demonstration_row, family_texts
from training.data.tasks import TaskSource, open_source
from training.models.base_model import quiet_libraries
from training.models.weights import BASE, is_finished, load_trainable
from training.runs.run_folder import Run
from training.runs.workers import show_progress
from training.stages.evaluation import play_solo
from training.stages.from_config import make_chat
from training.stages.rl import train_on_scenarios
from training.stages.sft import NUM_VALIDATION_ROWS, train_base, train_on_rows

Say = Callable[[str], None]
MOST_CORPUS_TASKS = 1000  # on which the tiny tokenizer is trained


def train_tasks(run: Run, place: str, say: Say) -> list[StagePlays]:
    """Train a solver through all stages in one run folder; returns its scores on the sealed test tasks.

    Raises:
        UserError: no such tasks, a run of other tasks, adapters that are shared by the team.
    """
    quiet_libraries()
    config = run.config
    if config.model.adapter_sharing == "shared":
        raise UserError("adapter_sharing 'shared' is for the team: leave it out to train a solver")
    source = open_source(place, seed=config.data.seed, difficulties=config.data.difficulties)
    if not run.is_done("tasks"):  # a run folder belongs to one set of tasks
        if run.is_done(BASE):
            raise UserError(f"{run.path} holds a run of another kind; choose another folder")
        run.mark_done("tasks", {"tasks": source.identity})
    elif run.read_payload("tasks") != {"tasks": source.identity}:
        raise UserError(f"{run.path} holds a solver of other tasks; choose another folder")
    train_base(run, _corpus(source))
    role = source.role.name
    if config.sft.max_steps and not is_finished(run, "sft", role):
        say(f"SFT of {config.sft.max_steps} steps on {source.name}")
        with show_progress(f"sft/{role}", config.sft.max_steps):
            _train_sft(run, source, say)
    if config.grpo.max_steps and not is_finished(run, "grpo", role):
        say(f"GRPO of {config.grpo.max_steps} steps on {source.name}")
        with show_progress(f"grpo/{role}", 5 * config.grpo.max_steps):
            _train_grpo(run, source)
    steps = {"untrained": 1, "sft": config.sft.max_steps, "grpo": config.grpo.max_steps}
    return [_score(run, source, stage) for stage, count in steps.items() if count]


def summarise_tasks(scores: Sequence[StagePlays]) -> list[str]:
    """A Markdown table of what the solver earned at each stage."""
    lines = [
        "| stage | reward | greedy | right, greedy | failed calls | tokens |",
        "|---|---|---|---|---|---|",
    ]
    for one in scores:
        exact, greedy = one.column("exact", "greedy"), one.column("reward", "greedy")
        lines.append(
            f"| {one.stage} | {mean_interval(one.column('reward')):.2f}"
            f" | {f'{statistics.fmean(greedy):.2f}' if greedy else '-'} | {sum(exact)} of {len(exact)}"
            f" | {sum(one.column('failed_calls'))} | {statistics.fmean(one.column('tokens')):.0f} |"
        )
    return lines


def _corpus(source: TaskSource) -> Iterator[str]:
    """Every text that a transcript of these tasks is made of."""
    scenarios = source.draw("train", MOST_CORPUS_TASKS, None)
    tools = "".join(f" {tool.name}" for tool in source.role.tools)
    yield from [f"{source.role.title}. Tools{tools}"] * len(scenarios)
    yield from family_texts(source.family, scenarios)


def _train_sft(run: Run, source: TaskSource, say: Say) -> None:
    config, role = run.config.sft, source.role.name
    model, tokenizer = load_trainable(run, BASE, role)
    write = partial(_write_rows, source, model, make_chat(tokenizer, run.config), say)
    rows = write("train", config.max_steps * config.batch_size)
    validation = write("validation", NUM_VALIDATION_ROWS) if config.validate_every else []
    train_on_rows(
        run,
        "sft",
        role,
        model,
        tokenizer,
        rows,
        validation,
        start=(run, BASE, role),
        max_steps=config.max_steps,
    )


def _write_rows(
    source: TaskSource, model: PreTrainedModel, chat: Chat, say: Say, split: Split, count: int
) -> list[TokenRow]:
    """Up to `count` worked solutions that are no longer than the model reads."""
    rows = [
        demonstration_row(source.family, scenario, chat, {source.role.name: source.role})
        for scenario in source.draw(split, count, None)
    ]
    most = count_positions(model.config)
    short = [row for row in rows if len(row.token_ids) <= most]
    if len(short) < len(rows):
        say(f"{len(rows) - len(short)} of {len(rows)} solutions are longer than {most} tokens: left out")
    if not short:
        raise UserError(f"every solution of {source.name} is longer than the model's {most} tokens")
    return short


def _train_grpo(run: Run, source: TaskSource) -> None:
    config, role = run.config.grpo, source.role.name
    pool = source.draw("train", config.max_steps * config.prompts_per_step, None)
    num_validation = config.guards.validation_scenarios if config.guards.validate_every else 0
    train_on_scenarios(
        run,
        role,
        lambda place: pool[place % len(pool)],
        source.draw("validation", num_validation, None) if num_validation else [],
        stage="grpo",
        source="sft" if run.config.sft.max_steps else BASE,
        families={source.family.name: source.family},
        roles={role: source.role},
    )


def _score(run: Run, source: TaskSource, stage: str) -> StagePlays:
    """The stage's plays of the test tasks, sampled and greedy, made once."""
    role, most = source.role.name, run.config.evaluation.num_role_scenarios
    name = f"evaluate/{stage}/{role}"
    if run.is_done(name) and (known := read_stage(run.path, stage, role)):
        return known
    scenarios = draw_sealed(lambda key: source.draw("test", most, key))
    families = {source.family.name: source.family}
    plays = play_solo(run, stage, role, scenarios, families, roles={role: source.role})
    run.mark_done(name)
    return plays
