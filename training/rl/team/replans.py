"""Demonstrations of re-plans: governed episodes of experts in which a plan was overtaken and made again.

A role's row is its whole transcript, every message that it wrote from the first plan to the last. Experts
know the case as far as it is known when they write; what happens to their plans is the world's doing.
"""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path

from roles.registry import ROLES
from roles.team import RECONCILER, Decision
from scenarios.base import Split, Style
from scenarios.team import PlanGame, PlayableCase, TeamScenario
from scenarios.team.demonstrations import draw_report_habit, show_report
from scenarios.team.experts import FUNDING_HABITS, best_decision, sample_habit
from scenarios.team.texts.table_texts import TEXTS
from simulator.agents.scripted_policies import (
    ReadTable,
    list_specialists,
    oracle_team,
    reconciler_policy,
    remember_cases,
    seat_policy,
)
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from simulator.export.atomic_files import write_atomic
from simulator.governance.record import GovernedRecord
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating
from training.config.run_config import RunConfig
from training.data.demonstrations import TokenRow, team_scenario
from training.rl.team.play import play_governed_groups

FIRST_INDEX = 500_000  # of the cases that are played: beyond all other demonstrations, before GRPO's
CASES_PER_ROW = 16  # that rows lie apart, so that later rows are of other cases than earlier ones
BLOCK = 32  # cases that are played side by side
MAX_TOKENS = 2000  # of a message: experts are never cut off


def replan_rows(
    config: RunConfig,
    role: str,
    chat: Chat,
    folder: Path,
    *,
    num_rows: int,
    first_row: int,
    split: Split = "train",
) -> list[TokenRow]:
    """The role's transcripts of so many re-planned episodes.

    Those of all roles are played at once and kept in the run's `folder` for the other roles.
    """
    path = folder / f"{split}-{first_row}-{num_rows}.json"
    if not path.is_file():
        records = islice(_play_again(config, chat, first_row, split), num_rows)
        rows = [
            {
                one: (t.token_ids, "".join(map(str, t.loss_mask)))
                for one, t in record.episode.trajectories.items()
            }
            for record in records
        ]
        write_atomic(path, json.dumps(rows))
    stored = json.loads(path.read_text())
    return [
        TokenRow(token_ids=tuple(ids), loss_mask=tuple(map(int, mask)))
        for ids, mask in (one[role] for one in stored)
    ]


def _play_again(config: RunConfig, chat: Chat, first_row: int, split: Split) -> Iterator[GovernedRecord]:
    """Episodes of experts in which a plan was made again."""
    for first in count(FIRST_INDEX + first_row * CASES_PER_ROW, BLOCK):
        cases = [team_scenario(config.data, split, first + place) for place in range(BLOCK)]
        for record in play_experts(cases, chat, config.model.prompts):
            if any(chapter.attempt and chapter.drafts for chapter in record.chapters):
                yield record


def play_experts(cases: Sequence[TeamScenario], chat: Chat, style: Style) -> list[GovernedRecord]:
    """Governed episodes of experts of mixed habits, one per case."""
    known: list[PlayableCase] = list(cases)  # those that arise from re-plans are added
    speakers = oracle_team(known) if style == "full" else write_short(known)
    seating = Seating(
        team={role: role for role in ROLES},
        engine=ScriptedEngine(chat, seeded=speakers),
        chat=chat,
        sampling=Sampling(max_completion_tokens=MAX_TOKENS),
        stream="replans",
        max_turns=MAX_TURNS,
        roles=ROLES,
        make_game=remember_cases(known, partial(PlanGame, style=style)),
    )
    groups = asyncio.run(play_governed_groups(cases, seating, 1, num_sets=1))
    records = [group.report_sets[0].governed for group in groups]
    return [record for record in records if record is not None]


def write_short(cases: Sequence[PlayableCase]) -> Mapping[str, SeededPolicy]:
    """Experts who write as demonstrations in short style do: the habit, then parts by code."""

    def make(role: str) -> SeededPolicy:
        def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
            game = PlanGame(case, "short")
            return show_report(game, role, draw_report_habit(game, role, rng), with_tools=False)[-1].text

        return seat_policy(cases, role, report)

    def decide(table: ReadTable, rng: random.Random) -> str:
        habit = sample_habit(rng, FUNDING_HABITS)
        decision: Decision = best_decision(table.public, table.reports, habit)
        fund = sorted(decision.fund, key=lambda label: order[label.rstrip("123")])
        in_order = decision.model_copy(update={"fund": fund})
        return f"{habit}\n{TEXTS['short'].write_decision(in_order)}"

    seats = list_specialists(cases)
    order = {seat: place for place, seat in enumerate(seats)}  # of labels: a seat's name and offer's number
    return {**{role: make(role) for role in seats}, RECONCILER: reconciler_policy(decide)}
