"""Tokens that each phase of a config reads, samples and trains on, from transcripts of its scenarios."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from simulator.chat import Chat, PlainChat
from training.config.run_config import RunConfig
from training.data.demonstrations import TokenRow, corpus, rows_of_run

SAMPLES = 16  # transcripts per role that lengths are taken from
TOKENIZER_SCENARIOS = 100  # per family, for the tiny preset's own tokenizer
CHARACTERS_PER_TOKEN = 3.0  # of other presets: large vocabularies write figures digit by digit
JOINT = "joint RL"
VOTE_SHARE = 0.15  # of a report's length: a vote reads the decision and says one word


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tokens of one phase, all roles together.

    Example: Workload(name="SFT", trained=1.2e6, read=0, sampled=0, batch=0, row=80)
    """

    name: str
    trained: float  # positions of all forward and backward passes
    read: float = 0.0  # prompt and observation tokens that an engine computes
    sampled: float = 0.0  # tokens that an engine samples, one by one
    batch: float = 0.0  # transcripts that are sampled side by side
    row: float = 0.0  # mean positions of a row
    widest: float = 0.0  # positions of the longest transcripts
    step_rows: float = 0.0  # rows of one forward and backward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean tokens of a transcript. Example: Lengths(context=70.0, own=25.0)"""

    context: float  # prompt and tool observations
    own: float  # the role's words

    @property
    def row(self) -> float:
        return self.context + self.own


def list_phases(config: RunConfig) -> list[Workload]:
    """The training phases of a run; evaluation is not among them."""
    share = config.data.seat_share
    chat = _make_chat(config)
    alone = {role: measure_lengths(config, role, 0.0, chat) for role in ROLES}
    seated = {role: measure_lengths(config, role, 1.0, chat) for role in TEAM_ROLES}
    rows = dict.fromkeys(alone, config.sft.max_steps * config.sft.batch_size)
    lengths = {
        role: share * seated[role].row + (1 - share) * length.row if role in seated else length.row
        for role, length in alone.items()
    }
    sft = Workload(
        name="SFT",
        trained=sum(rows[role] * lengths[role] for role in rows),
        row=statistics.fmean(lengths.values()),
        step_rows=config.sft.micro_batch_size or config.sft.batch_size,
    )
    return [sft, _grpo(config, alone), _marl(config, seated)]


def _grpo(config: RunConfig, alone: dict[str, Lengths]) -> Workload:
    grpo = config.grpo
    batch = grpo.prompts_per_step * grpo.group_size
    played = dict.fromkeys(alone, grpo.max_steps * batch)
    share = (grpo.trained_per_group or grpo.group_size) / grpo.group_size
    passes = grpo.updates_per_batch * share
    row = statistics.fmean(lengths.row for lengths in alone.values())
    return Workload(
        name="GRPO per role",
        trained=sum(played[role] * passes * lengths.row for role, lengths in alone.items()),
        read=sum(played[role] * lengths.context for role, lengths in alone.items()),
        sampled=sum(played[role] * lengths.own for role, lengths in alone.items()),
        batch=batch,
        row=row,
        step_rows=min(math.ceil(batch * share), math.ceil(grpo.memory.micro_batch_tokens / row)),
    )


def _marl(config: RunConfig, seated: dict[str, Lengths]) -> Workload:
    marl = config.marl
    sets = marl.max_steps * marl.scenarios_per_step * marl.report_sets
    reports = [lengths for role, lengths in seated.items() if role != RECONCILER]
    votes, decisions = marl.rounds * VOTE_SHARE, marl.decisions_per_set
    own = sets * (sum(x.own for x in reports) + decisions * seated[RECONCILER].own)
    context = sets * (sum(x.context * (1 + votes) for x in reports) + decisions * seated[RECONCILER].context)
    rows = sets * (len(reports) + decisions)
    return Workload(
        name=JOINT,
        trained=own + context,
        read=context,
        sampled=own,
        batch=marl.scenarios_per_step * marl.report_sets * (len(reports) + decisions),
        row=(own + context) / max(1, rows),
        widest=max(x.row + x.context * votes for x in seated.values()),
        step_rows=marl.memory.micro_batch_tokens / max(1.0, (own + context) / max(1, rows)),
    )


def measure_lengths(config: RunConfig, role: str, seat_share: float, chat: Chat) -> Lengths:
    """Mean lengths of demonstrations: exact with the tiny preset's tokenizer, else from their characters."""
    rows = list(rows_of_run(config, role, chat, num_rows=SAMPLES, first_row=0, seat_share=seat_share))
    own = statistics.fmean(sum(row.loss_mask) for row in rows)
    context = statistics.fmean(_context(rows))
    if not isinstance(chat, PlainChat):
        return Lengths(context=context, own=own)
    opening = 0 if config.model.short_prompts else _mandate_characters(role)
    return Lengths(context=(opening + context) / CHARACTERS_PER_TOKEN, own=own / CHARACTERS_PER_TOKEN)


def _make_chat(config: RunConfig) -> Chat:
    if config.model.preset != "tiny":
        return PlainChat()
    from simulator.engines.embedded.hf_chat import HFChat
    from training.models.base_model import train_tokenizer

    num, data = TOKENIZER_SCENARIOS, config.data
    texts = corpus(
        num_role=num,
        num_team=num,
        seed=data.seed,
        difficulties=data.difficulties,
        style=config.model.prompts,
        questions=config.model.questions,
    )
    return HFChat(train_tokenizer(texts, config.model.vocab_size), short_prompts=config.model.short_prompts)


def _context(rows: Sequence[TokenRow]) -> list[int]:
    return [len(row.token_ids) - sum(row.loss_mask) for row in rows]


def _mandate_characters(role: str) -> int:
    return len(ROLES[role].mandate) + sum(len(str(tool.as_chat_tool())) for tool in ROLES[role].tools)
