"""`emads evaluate --suite` and `--tasks`: games and questions of others, for the table or one role."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emads.bench.run import REPLIES, check_heading, name_folder
from emads.seats.players import ApiOptions, Seats
from emads.team import OpenTeam, Team, load_team
from evaluation.scoring.external_tasks import (
    FAMILY,
    ROUNDS,
    SOLVERS,
    TableSuite,
    open_table_suite,
    read_suite,
    read_task_folder,
    sum_up_suite,
    sum_up_tasks,
)
from evaluation.scoring.outcomes import (
    OutcomeFile,
    RoleOutcome,
    SuiteOutcome,
    complete_files,
    describe_solo,
)
from evaluation.summary.tables import PlainTable, print_tables, role_title, short
from roles.errors import InfrastructureError
from roles.team import RECONCILER
from scenarios.suites import TalkCase
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import play_solos
from simulator.engines.base import Sampling
from simulator.engines.embedded.own_pass import count_positions
from simulator.export.atomic_files import claim_folder
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from training.models.base_model import quiet_libraries
from training.models.engine_factory import serve
from training.models.weights import load_weights
from training.runs.run_folder import Run
from training.stages.from_config import make_chat

BLOCK = 8  # cases at once; a killed call loses no finished block, and no paid reply
MAX_TURNS = 8


def evaluate_table_suite(
    name: str, seats: Seats, api: ApiOptions, *, file: Path | None, count: int, out: Path | None
) -> str | None:
    """Play the first `count` cases of "hidden-profile" or "negotiation" with any team; print the table.

    `file`: HiddenBench's tasks. Figures and texts go to `outcomes.jsonl`.

    Returns: why play stopped before the end; None where all was played.

    Raises:
        UserError: a damaged file, a wrong player, or a folder that holds other plays.
    """
    suite = open_table_suite(name, file=file, count=count, seed=0)
    folder = out or name_folder(f"runs/suites/{name}", seats)
    team = load_team(seats=seats, api=replace(api, replies=folder / REPLIES))
    with claim_folder(folder, "folder"), team.open(suite.cases, script=suite.script) as opened:
        check_heading(folder, team, suite.label)
        outcomes = OutcomeFile(folder / "outcomes.jsonl", SuiteOutcome)
        try:
            (played,) = complete_files(
                [outcomes],
                [case.key for case in suite.cases],
                lambda start, end: [asyncio.run(_play_games(team, opened, suite, suite.cases[start:end]))],
                block_size=BLOCK,
            )
        except InfrastructureError as error:
            return f"{team.stop or error}; run the same command again to go on"
    rows = tuple(
        (name, str(one.n), f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]")
        for name, one in sum_up_suite(suite, played).items()
    )
    titles = ("figure", "n", "mean [95 % interval]")
    print_tables([PlainTable(title=f"{suite.label}: {team.label}", titles=titles, rows=rows)])
    print(f"outcomes: {outcomes.path}")
    return None


async def _play_games(
    team: Team, opened: OpenTeam, suite: TableSuite, cases: Sequence[TalkCase]
) -> list[SuiteOutcome]:
    """Play a block.

    Raises:
        InfrastructureError: an engine failed; no case is scored 0 for it.
    """
    episodes = await play_episodes(
        cases,
        {seat: seat for case in cases for seat in list_roles(case)},
        opened.table,
        opened.chat,
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


async def _ask_single(team: Team, opened: OpenTeam, suite: TableSuite, case: TalkCase) -> str:
    """Return what ReconcileGPT's player answers alone, with all facts; "" where the suite asks nobody."""
    if suite.single is None:
        return ""
    role, brief = suite.single(case)
    agent = Agent(
        role=role,
        policy=RECONCILER,
        engine=opened.table,
        chat=opened.chat,
        sampling=team.sampling,
        session=f"suite/single/{case.key}/{RECONCILER}",
    )
    text = await agent.answer(brief)
    agent.trajectory()
    return text


def evaluate_tasks(
    path: Path, *, folder: Path | None = None, suite: str = "", count: int = 0, stage: str, role: str
) -> Path:
    """Play the questions of a folder, or the first `count` of a suite, by a role with a calculator.

    A killed call goes on where it was. Returns the file of outcomes.

    Raises:
        UserError: no usable question, unknown suite or its package missing, no weights, or outcomes of
            other questions.
    """
    if folder is not None:
        name, tasks, family = folder.resolve().name, read_task_folder(folder), FAMILY
    else:
        tasks, family = read_suite(suite, count)
        name = f"{suite}-{count}"
    quiet_libraries()
    run = Run.open(path)
    model, tokenizer = load_weights(run, stage, role)
    chat = make_chat(tokenizer, run.config)
    tokens = run.config.grpo.max_completion_tokens

    def answer_all(start: int, end: int) -> list[RoleOutcome]:
        plays = play_solos(
            tasks.scenarios[start:end],
            policy=role,
            engine=engine,
            chat=chat,
            sampling=Sampling(temperature=0.0, max_completion_tokens=tokens),
            stream="tasks",
            first_place=start,
            max_turns=MAX_TURNS,
            families={family.name: family},
            roles=SOLVERS,
            limits=AgentLimits(total_tokens=count_positions(model.config)),
        )
        return [describe_solo(solo, sector=str(solo.scenario.facts["source"])) for solo in asyncio.run(plays)]

    file = run.path / "scores" / "tasks" / f"{name}-{stage}-{role}.jsonl"
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        (outcomes,) = complete_files(
            [OutcomeFile(file, RoleOutcome)],
            [one.key for one in tasks.scenarios],
            lambda start, end: [answer_all(start, end)],
        )
    rows = tuple(
        (what, str(one.n), f"{short(one.mean)} [{short(one.low)}, {short(one.high)}]")
        for what, one in sum_up_tasks(outcomes).items()
    )
    titles = ("questions", "n", "right [95 % interval]")
    print_tables([PlainTable(title=f"{name}: {role_title(role)} after {stage}", titles=titles, rows=rows)])
    if tasks.rejected:
        print(f"left out: {len(tasks.rejected)} rows, the first: {tasks.rejected[0]}")
    if tasks.num_with_files:
        print(f"left out: {tasks.num_with_files} rows that come with a file")
    print(f"outcomes: {file}")
    return file
