"""CPU milliseconds per episode of five nodes (four reports, one decision), by way of playing and concurrency.

    PYTHONPATH=tests python -m benchmarks.simulator.episodes --in-flight 1,64,2000 --episodes 2000 --repeats 3

The engine is scripted and all ways make the same calls. CPU time of the whole process is measured, threads
included, so that other load and waiting for the disk do not count; garbage is collected before each timing.
The repeats go through all ways in turn, so that what disturbs one disturbs all; the median of each is shown.

    plain asyncio      the same agents and parsers, no graph
    assess             `play_episodes`, as training plays it: nothing is kept
    naive saver        the same graph on LangGraph's AsyncSqliteSaver as it comes, durability "sync"
    full, memory       the governed graph to its end, store in memory: 14 supersteps, 20 nodes, the gate
    full, durable      the same in a file: the sealed log of all that was said, ruled and done
"""

import argparse
import asyncio
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langsmith.run_helpers import tracing_context

from reliability.governed.memory_growth import draw_cases, make_seating
from roles.team import RECONCILER, SPECIALISTS
from scenarios.team import PlanGame, TeamScenario
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.reviewers import SimulatedReviewer
from simulator.governance.runner import open_services, play_governed
from simulator.graph.concurrency import run_all, run_pool
from simulator.graph.runner import play_episodes
from simulator.graph.seating import make_context
from simulator.graph.state import open_case
from simulator.graph.team_graph import team_graph

make_game = partial(PlanGame, style="short")
Way = Callable[[Sequence[TeamScenario], int], Awaitable[None]]


async def play_plain(cases: Sequence[TeamScenario], in_flight: int) -> None:
    """The same agents and parsers under asyncio alone."""
    seating = make_seating()

    async def play(case: TeamScenario) -> None:
        game = make_game(case)
        agents = seating.make_agents(case, game, f"growth/{case.key}")
        texts = await run_all(agents[seat].answer(game.write_report_brief(seat)) for seat in case.seats)
        reports = {seat: game.read_report(seat, text) for seat, text in zip(case.seats, texts, strict=True)}
        game.read_decision(reports, await agents[RECONCILER].answer(game.write_decision_brief(reports)))
        for agent in agents.values():
            agent.trajectory()

    await run_pool([partial(play, case) for case in cases], concurrency=in_flight)


async def play_assess(cases: Sequence[TeamScenario], in_flight: int) -> None:
    """The graph as training plays it: nothing is kept."""
    seating = make_seating()
    await play_episodes(
        cases,
        seating.team,
        seating.engine,
        seating.chat,
        seating.sampling,
        rounds=0,
        concurrency=in_flight,
        make_game=make_game,
    )


async def play_saver(cases: Sequence[TeamScenario], in_flight: int, saver: BaseCheckpointSaver[Any]) -> None:
    """The same graph with a checkpoint per step."""
    seating = make_seating()
    graph = team_graph(SPECIALISTS).builder.compile(checkpointer=saver, interrupt_before=["vote"])

    async def play(case: TeamScenario) -> None:
        game = make_game(case)
        context = make_context(game, seating.make_agents(case, game, f"growth/{case.key}"))
        with tracing_context(enabled=False):
            config: RunnableConfig = {"configurable": {"thread_id": case.key}}
            start = open_case(case, game, rounds=0)
            await graph.ainvoke(start, config, context=context, durability="sync")

    await run_pool([partial(play, case) for case in cases], concurrency=in_flight)


async def play_naive_saver(cases: Sequence[TeamScenario], in_flight: int) -> None:
    """LangGraph's own SQLite saver."""
    with tempfile.TemporaryDirectory() as folder:
        async with aiosqlite.connect(Path(folder) / "naive.db") as connection:
            await play_saver(cases, in_flight, AsyncSqliteSaver(connection))


async def play_full(cases: Sequence[TeamScenario], in_flight: int, *, on_disk: bool) -> None:
    """The governed graph to its end, every proposal approved."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db" if on_disk else None
        async with open_services(path, key=b"k" * 32) as services:
            reviewer = SimulatedReviewer(lambda request, option: 1.0)
            worlds = partial(SimulatedOutcomes, shock_share=0.0)
            await play_governed(
                cases, services, make_seating(), reviewer, worlds, rounds=0, concurrency=in_flight
            )


WAYS: dict[str, Way] = {
    "plain asyncio": play_plain,
    "assess": play_assess,
    "naive saver": play_naive_saver,
    "full, memory": partial(play_full, on_disk=False),
    "full, durable": partial(play_full, on_disk=True),
}


def measure(way: Way, cases: Sequence[TeamScenario], in_flight: int) -> float:
    """CPU milliseconds per episode."""
    gc.collect()
    start = time.process_time()
    asyncio.run(_run(way, cases, in_flight))
    return 1e3 * (time.process_time() - start) / len(cases)


async def _run(way: Way, cases: Sequence[TeamScenario], in_flight: int) -> None:
    await way(cases, in_flight)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of an episode with a scripted engine.")
    parser.add_argument("--in-flight", default="1,64,2000", help="episodes at once")
    parser.add_argument("--episodes", type=int, default=2000, help="most episodes per timing")
    parser.add_argument("--repeats", type=int, default=3, help="timings; the median is shown")
    parser.add_argument("--ways", default=";".join(WAYS), help="which rows, between semicolons")
    given = parser.parse_args()
    loads, ways = [int(load) for load in given.in_flight.split(",")], given.ways.split(";")
    times: dict[tuple[str, int], list[float]] = {}
    for load in loads:
        cases = draw_cases(min(given.episodes, max(20, 2 * load)))
        for name in ways:
            measure(WAYS[name], cases[:2], 1)
        for _, name in itertools.product(range(given.repeats), ways):
            times.setdefault((name, load), []).append(measure(WAYS[name], cases, load))
    print(f"| CPU ms per episode | {' | '.join(f'{load} in flight' for load in loads)} |")
    print(f"|{'---|' * (1 + len(loads))}")
    for name in ways:
        cells = " | ".join(f"{statistics.median(times[name, load]):.2f}" for load in loads)
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()
