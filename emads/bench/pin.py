"""Writes set.json: digests of the set's texts, and sizes of the experts' plays. For a new SET_VERSION only.

python -m emads.bench.pin
"""

import asyncio
import json
from pathlib import Path

from emads.bench.cases import CELLS, PINS, SET_VERSION, Cell, compute_digest, draw_cell
from emads.bench.playing import play_alone, play_table
from emads.seats.mixed_team import MixedTeam
from emads.teams import load_team
from scenarios.base import Scenario
from scenarios.team import TeamScenario
from simulator.records import Trajectory

SAMPLE = 5  # cases of a cell whose sizes are measured


def main() -> None:
    """Write the file beside this module."""
    pins = {
        "set_version": SET_VERSION,
        "digests": {cell.name: compute_digest(cell) for cell in CELLS},
        "sizes": {cell.name: measure_sizes(cell) for cell in CELLS},
    }
    Path(__file__).with_name(PINS).write_text(json.dumps(pins, indent=1) + "\n")


def measure_sizes(cell: Cell) -> dict[str, list[float]]:
    """Return (requests, characters read, characters written) of a case by seat, as the experts play it."""
    team = load_team(seats=["all=scripted"])
    assert isinstance(team, MixedTeam)
    cases = [case.scenario for case in draw_cell(cell)[:SAMPLE]]
    tables = [case for case in cases if isinstance(case, TeamScenario)]
    alone = [case for case in cases if isinstance(case, Scenario)]

    async def play() -> list[Trajectory]:
        episodes = [await play_table(team, opened, case) for case in tables]
        solos = [await play_alone(team, opened, case) for case in alone]
        at_table = [one for episode in episodes for one in episode.trajectories.values()]
        return [*at_table, *(solo.trajectory for solo in solos)]

    with team.open(tables, alone) as opened:
        played = asyncio.run(play())
    sizes: dict[str, list[float]] = {}
    for trajectory in played:
        read, seen = 0, 0
        for turn in trajectory.turns:
            seen += len(turn.context_ids)
            read += seen
            seen += len(turn.completion_ids)
        written = sum(len(turn.completion_ids) for turn in trajectory.turns)
        before = sizes.setdefault(trajectory.role, [0.0, 0.0, 0.0])
        sizes[trajectory.role] = [
            old + new / len(cases)
            for old, new in zip(before, (len(trajectory.turns), read, written), strict=True)
        ]
    return sizes


if __name__ == "__main__":
    main()
