"""`emads evaluate --suite hidden-profile` and `--suite negotiation`: a team of any mix plays their cases."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from emads.bench.run import REPLIES, Confirm, check_heading, name_folder
from emads.seats.mixed_team import MixedTeam, OpenTeam
from emads.seats.players import ApiPlayer, Seats
from emads.seats.prices import ApiOptions
from emads.teams import load_team
from evaluation.scoring.outcomes import OutcomeFile, SuiteOutcome
from evaluation.scoring.table_suites import ROUNDS, TableSuite, open_table_suite, sum_up_suite
from roles.errors import InfrastructureError, UserError
from roles.team import RECONCILER
from scenarios.suites.table_talk import TalkCase
from simulator.agents.agent import Agent
from simulator.export.atomic_files import claim_folder, explain_os_errors
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles

BLOCK = 8  # cases at once; a killed call loses no finished block, and no paid reply


def evaluate_table_suite(
    name: str,
    seats: Seats,
    api: ApiOptions,
    *,
    file: Path | None,
    count: int,
    seed: int,
    out: Path | None,
    confirm: Confirm,
) -> str | None:
    """Play the suite's first `count` cases, write `outcomes.jsonl` and print the table.

    Returns: why play stopped before the end; None where all was played.

    Raises:
        UserError: a damaged file, a wrong player, or a folder that holds other plays.
    """
    suite = open_table_suite(name, file=file, count=count, seed=seed)
    folder = out or name_folder(f"runs/suites/{name}", seats)
    team = load_team(seats=seats, api=replace(api, replies=folder / REPLIES))
    assert isinstance(team, MixedTeam)
    if not confirm(_estimate(team, suite)):
        raise UserError("nothing was played; --yes starts without a question")
    with explain_os_errors("write folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    with claim_folder(folder), team.open(suite.cases, script=suite.script) as opened:
        check_heading(folder, team, suite.label)
        outcomes = OutcomeFile(folder / "outcomes.jsonl", SuiteOutcome)
        try:
            played = outcomes.complete(
                [case.key for case in suite.cases],
                lambda start, end: asyncio.run(_play(team, opened, suite, suite.cases[start:end])),
                block_size=BLOCK,
            )
        except InfrastructureError as error:
            return f"{team.stop or error}; run the same command again to go on"
    _show(f"{suite.label}: {team.label}", suite, played)
    print(f"outcomes: {outcomes.path}")
    return None


async def _play(
    team: MixedTeam, opened: OpenTeam, suite: TableSuite, cases: Sequence[TalkCase]
) -> list[SuiteOutcome]:
    """Play a block.

    Raises:
        InfrastructureError: an engine failed; no case is scored 0 for it.
    """
    episodes = await play_episodes(
        cases,
        {seat: seat for case in cases for seat in list_roles(case)},
        opened.table,
        team.chat,
        team.sampling,
        rounds=ROUNDS,
        stream="suite",
        make_game=suite.make_game,
    )
    failed = next((episode.error for episode in episodes if episode.error is not None), None)
    if failed is not None:
        raise InfrastructureError(failed)
    alone = await asyncio.gather(*(_ask_single(team, opened, suite, case) for case in cases))
    return [
        SuiteOutcome(
            key=case.key,
            difficulty=getattr(case, "difficulty", 1),
            figures=suite.score(case, episode, text),
            said={
                **{f"{seat} report": said for seat, said in episode.reports.items()},
                "decision": episode.decision,
                **{f"{seat} vote": said for seat, said in episode.votes.items()},
                **({"single agent": text} if suite.single else {}),
            },
        )
        for case, episode, text in zip(cases, episodes, alone, strict=True)
    ]


async def _ask_single(team: MixedTeam, opened: OpenTeam, suite: TableSuite, case: TalkCase) -> str:
    """Return what ReconcileGPT's player answers alone, with all facts; "" where the suite asks nobody."""
    if suite.single is None:
        return ""
    role, brief = suite.single(case)
    agent = Agent(
        role=role,
        policy=RECONCILER,
        engine=opened.table,
        chat=team.chat,
        sampling=team.sampling,
        session=f"suite/single/{case.key}/{RECONCILER}",
    )
    text = await agent.answer(brief)
    agent.trajectory()
    return text


def _estimate(team: MixedTeam, suite: TableSuite) -> str:
    asked = 0
    for case in suite.cases:
        for seat in list_roles(case):
            if isinstance(team.seats.player_of(seat), ApiPlayer):
                asked += 2 if seat != RECONCILER or suite.single else 1
    if not asked:
        return f"{len(suite.cases)} cases; no seat is played by an API model, nothing is paid"
    return (
        f"{len(suite.cases)} cases, about {asked:,} requests, more where seats object (bound: --api max_cost)"
    )


def _show(title: str, suite: TableSuite, outcomes: list[SuiteOutcome]) -> None:
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in ("figure", "n", "mean [95 % interval]"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, one in sum_up_suite(suite, outcomes).items():
        table.add_row(name, str(one.n), f"{one.mean:.3f} \\[{one.low:.3f}, {one.high:.3f}]")
    Console(width=None if Console().is_terminal else 140).print(table)
