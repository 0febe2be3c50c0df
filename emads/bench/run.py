"""`emads bench`: plays the set with a team, case by case, and writes its card."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from emads.bench.card import PLAYS, build_card, write_card
from emads.bench.cases import SET_VERSION, BenchCase, check_pins, list_cases
from emads.bench.estimate import estimate
from emads.bench.playing import play_case
from emads.bench.plays import PlayFile
from emads.seats.mixed_team import MixedTeam
from emads.seats.players import Seats
from emads.seats.prices import ApiOptions
from emads.teams import load_team
from roles.errors import UserError
from roles.registry import ROLES
from scenarios.base import Scenario
from scenarios.team import TeamScenario
from simulator.export.atomic_files import claim_folder, explain_os_errors, write_atomic
from simulator.graph.concurrency import run_pool
from training.runs.progress import progress
from training.runs.provenance import find_versions

REPLIES, HEADING = "replies.jsonl", "bench.json"
CONCURRENCY = 8  # cases at once, where endpoints set no other number

Confirm = Callable[[str], bool]


def name_folder(parent: str, seats: Seats) -> Path:
    """Return the folder of these players, in letters that every file system takes."""
    return Path(parent) / "-".join(re.findall(r"[A-Za-z0-9.]+", seats.label))[:100]


def run_bench(
    seats: Seats,
    api: ApiOptions,
    folder: Path,
    *,
    limit: int | None = None,
    confirm: Confirm,
) -> str | None:
    """Play what the folder lacks of the set (`limit`: at most so many cases of each cell) and write the card.

    `confirm` is shown the cost before anything is played.

    Returns: why the set was left before its end, None where all was played.

    Raises:
        UserError: the folder holds another team's plays, or the generators are not those of the set.
    """
    team = load_team(seats=seats, api=replace(api, replies=folder / REPLIES))
    assert isinstance(team, MixedTeam)
    check_pins()
    cases = list_cases(limit)
    name = f"bench set {SET_VERSION}"
    return play_into(folder, team, cases, name, confirm=confirm)


def play_into(
    folder: Path,
    team: MixedTeam,
    cases: Sequence[BenchCase],
    set_name: str,
    *,
    confirm: Confirm,
) -> str | None:
    """Play the cases that the folder lacks and write the card of all that it holds of them.

    Returns, raises: as `run_bench`.
    """
    with explain_os_errors("write bench folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    with claim_folder(folder):
        check_heading(folder, team, set_name)
        file = PlayFile(folder / PLAYS)
        done = {play.key for play in file.read()}
        todo = [case for case in cases if case.key not in done]
        if todo and not confirm(estimate(team, todo)):
            raise UserError("nothing was played; --yes starts without a question")
        start_s = time.monotonic()
        stop = _play_all(team, todo, file, len(cases))
        heading = _add_time(folder, time.monotonic() - start_s)
        plays = {play.key: play for play in file.read()}
        card = build_card(
            [plays[case.key] for case in cases if case.key in plays],
            set_name=set_name,
            label=team.seats.label,
            seats={seat: str(team.seats.player_of(seat)) for seat in ROLES},
            cost=team.spent,
            wall_s=heading["wall_s"],
            versions={name: version or "not installed" for name, version in find_versions().items()},
            num_cases=len(cases),
        )
        write_card(folder, card)
    missing = len(cases) - card["num_cases"]["played"]
    if stop is not None or not missing:
        return stop
    return f"{missing} cases got no answer from an engine; run the same command again to play them"


def _play_all(team: MixedTeam, cases: Sequence[BenchCase], file: PlayFile, num_cases: int) -> str | None:
    """Play cases at once, each noted when it is done; why it stopped early, None where it did not."""
    if not cases:
        return None
    tables = [case.scenario for case in cases if isinstance(case.scenario, TeamScenario)]
    alone = [case.scenario for case in cases if isinstance(case.scenario, Scenario)]
    width = int(team.api.settings.get("concurrency", CONCURRENCY))
    with team.open(tables, alone) as opened, progress("bench", total=num_cases) as bar:
        bar.advance(num_cases - len(cases), worked=False)

        async def play(case: BenchCase) -> None:
            if team.ledger.stop is not None:
                return
            played = await play_case(team, opened, case)
            if played is not None:
                file.add(played)
                bar.advance(1, cost=team.spent or 0.0)

        asyncio.run(run_pool([partial(play, case) for case in cases], concurrency=width))
    if team.ledger.stop is not None:
        return f"{team.ledger.stop}; raise max_cost and run the same command again to go on"
    return None


def check_heading(folder: Path, team: MixedTeam, set_name: str) -> None:
    """Note in the folder who plays what, so that it never holds plays of two teams or two sets.

    Raises:
        UserError: it holds others.
    """
    found = _read_heading(folder)
    expected = {"set": set_name, "seats": team.seats.label}
    for key, value in expected.items():
        if found and found[key] != value:
            raise UserError(
                f"{folder} holds plays of {key} {found[key]!r}, not {value!r}; choose another --out"
            )
    if not found:
        write_atomic(folder / HEADING, json.dumps({**expected, "wall_s": 0.0}) + "\n")


def _read_heading(folder: Path) -> dict[str, Any]:
    path = folder / HEADING
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _add_time(folder: Path, wall_s: float) -> dict[str, Any]:
    """Add this call's time to that of the calls before; return the heading."""
    found = _read_heading(folder)
    found["wall_s"] += wall_s
    write_atomic(folder / HEADING, json.dumps(found) + "\n")
    return found
