"""`emads bench`: plays the set with a team, case by case, and writes its card."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from emads.bench.card import PLAYS, BenchPlay, PlayFile, build_card, write_card
from emads.bench.cases import SET_VERSION, BenchCase, check_pins, find_cell, list_cases
from emads.seats.players import ApiOptions, Seats
from emads.team import OpenTeam, Team, load_team
from roles.base import FORMAT_FAILURES
from roles.errors import InfrastructureError, UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.team import PlanGame, TeamScenario
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import play_solo
from simulator.export.atomic_files import claim_folder, write_atomic
from simulator.graph.concurrency import run_pool
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import score_episode
from training.runs.progress import progress
from training.runs.run_folder import find_versions

REPLIES, HEADING = "replies.jsonl", "bench.json"
MAX_TURNS = 24  # of an agent per message; the experts need half of them
MAX_FAILED_CALLS = 8
CONCURRENCY = 8  # cases at once, where endpoints set no other number


def run_bench(
    seats: Seats, api: ApiOptions, out: Path | None, *, limit: int | None
) -> tuple[Path, str | None]:
    """Play what the folder lacks of the set (`limit`: at most so many cases of each cell); write the card.

    Returns: the folder, and why the set was left before its end (None where all was played).

    Raises:
        UserError: the folder holds another team's plays, or the generators are not those of the set.
    """
    folder = out or name_folder("runs/bench", seats)
    team = load_team(seats=seats, api=replace(api, replies=folder / REPLIES))
    check_pins()
    return folder, play_into(folder, team, list_cases(limit), f"bench set {SET_VERSION}")


def name_folder(parent: str, seats: Seats) -> Path:
    """Return the folder of these players, in letters that every file system takes."""
    return Path(parent) / "-".join(re.findall(r"[A-Za-z0-9.]+", seats.label))[:100]


def play_into(folder: Path, team: Team, cases: Sequence[BenchCase], set_name: str) -> str | None:
    """Play the cases that the folder lacks and write the card of all that it holds of them.

    Returns: why play stopped before the end; None where all was played.

    Raises:
        UserError: the folder holds plays of another team or set.
    """
    with claim_folder(folder, "bench folder"):
        heading = check_heading(folder, team, set_name)
        file = PlayFile(folder / PLAYS)
        done = {play.key for play in file.read()}
        start_s = time.monotonic()
        stop = _play_all(team, [case for case in cases if case.key not in done], file, len(cases))
        heading["wall_s"] += time.monotonic() - start_s
        write_atomic(folder / HEADING, json.dumps(heading) + "\n")
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


def _play_all(team: Team, cases: Sequence[BenchCase], file: PlayFile, num_cases: int) -> str | None:
    """Play cases at once, each noted when it is done; why it stopped early, None where it did not."""
    if not cases:
        return None
    tables = [case for case in cases if isinstance(case, TeamScenario)]
    alone = [case for case in cases if isinstance(case, Scenario)]
    width = int(team.api.settings.get("concurrency", CONCURRENCY))
    with team.open(tables, alone) as opened, progress("bench", total=num_cases, unit="cases") as bar:
        bar.advance(num_cases - len(cases), worked=False)

        async def play(case: BenchCase) -> None:
            if team.stop is not None:
                return
            played = await play_case(team, opened, case)
            if played is not None:
                file.add(played)
                bar.advance(1, cost=team.spent or 0.0)

        asyncio.run(run_pool([partial(play, case) for case in cases], concurrency=width))
    if team.stop is not None:
        return f"{team.stop}; raise max_cost and run the same command again to go on"
    return None


async def play_case(team: Team, opened: OpenTeam, scenario: BenchCase) -> BenchPlay | None:
    """Play one case; None where an engine failed: the next call asks again, and no fault is scored 0."""
    stream, cell = name_stream(scenario), find_cell(scenario)
    if isinstance(scenario, TeamScenario):
        episode = await play_table(team, opened, scenario)
        if episode.error is not None:
            return None
        verdict = score_episode(scenario, episode, team.weights)
        score, reward, trajectories = verdict.value, verdict.reward, dict(episode.trajectories)
        read, game = read_episode(scenario, episode), PlanGame(scenario)
        legal = {
            f"{seat} report": (int(game.read_report(seat, text) is not None), 1)
            for seat, text in episode.reports.items()
        }
        legal[f"{RECONCILER} decision"] = (int(read.decision is not None), 1)
        legal |= {f"{seat} vote": (int(read.votes[seat] is not None), 1) for seat in episode.votes}
    else:
        families = team.families_of(scenario.role)
        try:
            solo = await play_solo(
                families[scenario.family].generate(
                    scenario.split, scenario.seed, scenario.index, scenario.difficulty
                ),
                policy=scenario.role,
                engine=opened.alone,
                chat=opened.chat,
                sampling=team.sampling,
                session=f"{stream}{scenario.role}",
                max_turns=MAX_TURNS,
                max_failed_calls=MAX_FAILED_CALLS,
                families=families,
            )
        except InfrastructureError:
            return None
        score = reward = solo.verdict.reward
        trajectories = {scenario.role: solo.trajectory}
        legal = {f"{scenario.role} alone": (int(solo.verdict.failure not in FORMAT_FAILURES), 1)}
    return BenchPlay(
        key=scenario.key,
        kind=cell.kind,
        band=cell.band,
        difficulty=scenario.difficulty,
        score=score,
        reward=reward,
        legal=legal,
        turns=sum(len(one.turns) for one in trajectories.values()),
        tool_calls=sum(one.num_tool_calls for one in trajectories.values()),
        ended_by={seat: one.ended_by for seat, one in trajectories.items()},
        usage=team.ledger.sum_of(prefix=stream),
    )


async def play_table(team: Team, opened: OpenTeam, scenario: TeamScenario) -> Episode:
    """Play a joint case with the whole team."""
    (episode,) = await play_episodes(
        [scenario],
        {role: role for role in list_roles(scenario)},
        opened.table,
        opened.chat,
        team.sampling,
        stream=name_stream(scenario),
        max_turns=MAX_TURNS,
        limits=AgentLimits(failed_calls=MAX_FAILED_CALLS),
        make_game=team.make_game,
    )
    return episode


def name_stream(scenario: BenchCase) -> str:
    """Begin the names of a case's sessions; the slash keeps case 1 apart from case 10."""
    return f"bench/{scenario.key}/"


def check_heading(folder: Path, team: Team, set_name: str) -> dict[str, Any]:
    """Note in the folder who plays what, so that it never holds plays of two teams or two sets.

    Returns: the note: set, players, and the seconds played so far.

    Raises:
        UserError: it holds others.
    """
    path = folder / HEADING
    found = dict(json.loads(path.read_text())) if path.is_file() else {}
    expected = {"set": set_name, "seats": team.seats.label}
    for key, value in expected.items():
        if found and found[key] != value:
            raise UserError(
                f"{folder} holds plays of {key} {found[key]!r}, not {value!r}; choose another --out"
            )
    if not found:
        found = {**expected, "wall_s": 0.0}
        write_atomic(path, json.dumps(found) + "\n")
    return found
