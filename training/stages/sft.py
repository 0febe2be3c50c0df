"""The stages `base` (tokenizer and weights that all later stages start from), `sft` and `sft_more`.

SFT runs in one process or on several ranks. Weights are published once per stage and owner
(`checkpoints/sft/cto/step_600`), so a stage that is done is skipped. A killed one goes on from its newest
sound checkpoint (`training/runs/resume.py`), bit for bit on a CPU.
"""

import logging
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from roles.errors import UserError
from roles.team import TEAM_ROLES
from scenarios.base import Split
from training.config.run_config import RunConfig, SftConfig
from training.data.demonstrations import Habits, TokenRow, corpus, supervised_rows, take_turns
from training.learner.fsdp import copy_whole, is_sharded
from training.learner.ranks import ONE_RANK, Ranks
from training.models.adapters import quantization, roles_of
from training.models.base_model import build_tiny_model, load_pretrained, train_tokenizer
from training.models.self_check import check_base
from training.models.weights import (
    BASE,
    copy_weights,
    finish_stage,
    is_finished,
    load_trainable,
    open_start,
    save_weights,
)
from training.rl.team.replans import replan_rows
from training.roles.sft import TrainingSite, run_sft
from training.runs.faults import enter_stage
from training.runs.resume import StageCheckpoints, trained_tensors
from training.runs.run_errors import explain_memory_errors
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import make_chat

TOKENIZER_SCENARIOS = 300  # per family, for training the tiny tokenizer


def train_base(run: Run, texts: Iterable[str] | None = None) -> None:
    """Build the base for preset `tiny`, with a tokenizer trained on the texts, or load a pretrained one.

    `texts`: read where they are needed alone; None: those of the team's scenarios.
    """
    if is_finished(run, BASE):
        return
    config = run.config
    enter_stage(BASE)
    quantization(config.model)  # an option that this machine cannot run is refused before anything is made
    if config.model.preset == "tiny":
        texts = corpus(config, TOKENIZER_SCENARIOS) if texts is None else texts
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(texts, config.model.vocab_size)
        model: PreTrainedModel = build_tiny_model(config.model, tokenizer, config.seed)
    else:
        model, tokenizer = load_pretrained(config.model.preset)
    layouts = [config.grpo.memory.row_layout, config.marl.memory.row_layout]
    if config.sft.row_layout != "packed":  # TRL lays those rows itself
        layouts.append(config.sft.row_layout)
    make_chat(tokenizer, config)  # a template that cannot be used is refused here
    difference = check_base(model, config.model, layouts)
    report_progress(0, largest_difference=difference)
    run.add_provenance(largest_difference=difference)
    save_weights(run, BASE, None, model, tokenizer, step=0)
    num_parameters = sum(p.numel() for p in model.parameters())
    run.mark_done(BASE, {"num_parameters": num_parameters, "largest_difference": difference})


NUM_VALIDATION_ROWS = 64  # of the validation split, that are scored each time
ROWS_PER_REPORT = 500  # of a role, between two reports that its demonstrations are being drawn
CUT_SHARE = 0.02  # of the demonstrations may hold a turn that is longer than play allows
logger = logging.getLogger(__name__)


def train_sft(run: Run, owner: str, source: str, ranks: Ranks = ONE_RANK) -> None:
    """Fine-tune one role: from the base, from another role's SFT weights, or from its own in another run."""
    before, other = run_of_start(run), owner_of_start(run.config, owner)
    start = (before, "sft", owner) if before else (run, "sft", other) if other else (run, source, owner)
    first_row, steps = first_row_of(run), run.config.sft.max_steps
    train_role(run, "sft", owner, steps, first_row=first_row, start=start, ranks=ranks)


def train_further(
    run: Run,
    owner: str,
    source: str,
    *,
    stage: str,
    count: Callable[[RunConfig, str], int],
    habits: Habits | None = None,
) -> None:
    """Train a control: more SFT on the run's demonstrations, or on meetings of experts of these habits."""
    config = run.config
    first_row = count_rows(config, config.sft.max_steps) if habits else first_further_row(run)
    steps, start = count(config, owner), (run, source, owner)
    train_role(run, stage, owner, steps, first_row=first_row, start=start, habits=habits)


def count_control_steps(config: RunConfig, role: str) -> int:
    """SFT steps that learn from as many transcripts as the role's GRPO plays."""
    grpo = config.grpo
    count = grpo.max_steps * grpo.prompts_per_step * grpo.group_size
    return max(1, round(count / config.sft.batch_size))


def first_row_of(run: Run) -> int:
    """First row of a run's demonstrations: behind those of the run that `sft.start_from` goes on from."""
    before = run_of_start(run)
    return first_row_of(before) + count_rows(before.config, before.config.sft.max_steps) if before else 0


def first_further_row(run: Run) -> int:
    """First row of SFT after SFT: of the same demonstrations, or of new ones where they are unlimited."""
    if run.config.data.num_demonstrations:
        return 0
    return first_row_of(run) + count_rows(run.config, run.config.sft.max_steps)


def owner_of_start(config: RunConfig, owner: str) -> str | None:
    """The other owner from whose SFT weights this owner's SFT starts; None: from the base."""
    other = config.sft.transfer_from
    return None if other == owner else other


def run_of_start(run: Run) -> Run | None:
    """The run of `sft.start_from`; None: SFT starts in this run. Raises as `open_start`."""
    folder = run.config.sft.start_from
    return None if folder is None else open_start(run, "sft.start_from", folder)


def train_role(
    run: Run,
    stage: str,
    role: str,
    max_steps: int,
    *,
    first_row: int,
    start: tuple[Run, str, str],
    habits: Habits | None = None,
    own_rows: Sequence[TokenRow] = (),
    ranks: Ranks = ONE_RANK,
) -> None:
    """Draw the role's demonstrations from `first_row` on, and train on them and on `own_rows`.

    `start`: run, stage and owner of the weights to start from. With `habits` all demonstrations show the
    role's seat in meetings of experts of these habits.
    """
    config = run.config
    model, tokenizer = load_trainable(*start, dtype=config.model.dtype)
    chat = make_chat(tokenizer, config)

    def draw(split: Split, count: int, first: int) -> list[TokenRow]:
        num_replans = 0 if habits else round(count * config.data.replan_share)
        replans = [
            replan_rows(
                config, one, chat, run.path / "replans", num_rows=num_replans, first_row=first, split=split
            )
            for one in roles_of(role)
            if num_replans and one in TEAM_ROLES
        ]
        streams = [
            supervised_rows(
                config,
                one,
                chat,
                num_rows=count,
                first_row=first,
                seat_share=1.0 if habits else None,
                split=split,
                habits=habits,
            )
            for one in roles_of(role)
        ]
        streams[0] = report_drawn(streams[0], len(streams))
        return [*take_turns(streams, count - num_replans), *take_turns(replans, num_replans)]

    num_roles = len(roles_of(role))
    count = count_rows(config, max_steps, num_roles)
    own_count, rest = divmod(count, ranks.size * num_roles)
    if ranks.size == 1 or rest or config.data.replan_share:
        drawn = draw("train", count, first_row)
    else:  # each rank draws a stretch of every role's rows
        own = draw("train", own_count * num_roles, first_row + ranks.rank * own_count)
        drawn = [row for part in ranks.gather(own) for row in part]
    warn_of_long_turns(config, role, drawn)
    train_on_rows(
        run,
        stage,
        role,
        model,
        tokenizer,
        [*own_rows, *drawn],
        draw("validation", NUM_VALIDATION_ROWS if config.sft.validate_every else 0, 0),
        start=start,
        max_steps=max_steps,
        ranks=ranks,
    )


def report_drawn(rows: Iterable[TokenRow], num_streams: int) -> Iterator[TokenRow]:
    """Hand the rows on, and report how many demonstrations are drawn by now from so many streams in turn."""
    for count, row in enumerate(rows, 1):
        if count % ROWS_PER_REPORT == 0:
            report_progress(0, demonstrations=count * num_streams)
        yield row


def warn_of_long_turns(config: RunConfig, role: str, rows: Sequence[TokenRow]) -> None:
    """Warn of demonstrations that could not be played: a role that learns them is cut off in its turn."""
    for key, at_table in (("grpo.max_completion_tokens", False), ("marl.max_completion_tokens", True)):
        most = (config.marl if at_table else config.grpo).max_completion_tokens
        turns = [row.longest_turn for row in rows if row.at_table == at_table]
        cut = sum(turn > most for turn in turns)
        if cut > CUT_SHARE * len(turns):
            logger.warning(
                "%s: %s %d would cut off a turn of %d of %d demonstrations; begin again with %d or more",
                role, key, most, cut, len(turns), max(turns),
            )  # fmt: skip


def count_rows(config: RunConfig, max_steps: int, num_roles: int = 1) -> int:
    """Count the demonstrations to draw: all that the steps take, at most those of all its roles."""
    wanted = max(1, max_steps) * config.sft.batch_size
    return min(wanted, config.data.num_demonstrations * num_roles or wanted)


def train_on_rows(
    run: Run,
    stage: str,
    role: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[TokenRow],
    validation_rows: Sequence[TokenRow],
    *,
    start: tuple[Run, str, str],
    max_steps: int,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Train a model on the rows, publish its weights and mark the stage done.

    `start`: the run, stage and role whose weights it has now.

    All ranks are given the same rows and train their parts of each batch; the first one logs and publishes.

    Raises:
        UserError: a batch that the ranks cannot share evenly.
    """
    config = run.config
    opened = publishing(
        run, stage, role, model, tokenizer, memory_key="sft.micro_batch_size", start=start, ranks=ranks
    )
    with opened as (site, payload):
        payload["step"] = run_sft(
            model,
            tokenizer,
            rows,
            divide_batch(config.sft, ranks.size),
            site,
            max_steps=max_steps,
            validation_rows=validation_rows,
            gradient_checkpointing=config.model.gradient_checkpointing,
            shares_weights=ranks.shares_weights,
        )


@contextmanager
def publishing(
    run: Run,
    stage: str,
    role: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    memory_key: str = "",
    start: tuple[Run, str, str] | None = None,
    ranks: Ranks = ONE_RANK,
) -> Iterator[tuple[TrainingSite, dict[str, Any]]]:
    """Site of a trainer of TRL, and a payload to fill, `step` at least; at the end both are published.

    `memory_key`: as of `explain_memory_errors`. `start`: where the weights came from, for a sharded model.
    """
    before, name = copy_weights(model, role), f"{stage}/{role}"
    checkpoints = StageCheckpoints(run, name, every_steps=run.config.checkpoint_every)
    payload: dict[str, Any] = {}
    reported = 0

    def on_step(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal reported
        if ranks.rank == 0:
            run.log(name, step, metrics)
        if "loss" in metrics:
            report_progress(step - reported, loss=metrics["loss"])
            reported = step

    with (
        tempfile.TemporaryDirectory(prefix="emads-") as scratch,
        explain_memory_errors(name, memory_key),
    ):
        yield (
            TrainingSite(
                output_dir=Path(scratch), seed=run.config.seed, on_step=on_step, checkpoints=checkpoints
            ),
            payload,
        )
    trained = model if start is None else _gather_model(start, model, ranks)
    if ranks.rank == 0:
        finish_stage(run, stage, role, trained, tokenizer, before, train_s=checkpoints.train_s, **payload)
        checkpoints.clear()
    ranks.wait()


def divide_batch(config: SftConfig, num_ranks: int) -> SftConfig:
    """The config of one of several ranks; UserError: the batch is no multiple of their number."""
    if config.batch_size % num_ranks:
        raise UserError(f"sft.batch_size {config.batch_size} must be a multiple of {num_ranks} processes")
    share = config.batch_size // num_ranks
    micro = math.gcd(config.micro_batch_size, share) if config.micro_batch_size else 0
    return config.model_copy(update={"batch_size": share, "micro_batch_size": micro})


def _gather_model(start: tuple[Run, str, str], model: PreTrainedModel, ranks: Ranks) -> PreTrainedModel:
    """The model itself, or where it is sharded a whole one with its weights on the first rank."""
    if not is_sharded(model):
        return model
    whole_model = load_trainable(*start)[0] if ranks.rank == 0 else None
    copy_whole(trained_tensors(model), trained_tensors(whole_model) if whole_model else {})
    return whole_model or model
