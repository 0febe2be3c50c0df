"""Watching governed episodes: everything once and in order, also after a stop, and nothing that permits."""

import asyncio
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from episode_events import Diary
from governed_tables import Person
from rich.console import Console
from team_tables import SEATS

from evaluation.minutes.live_view import live_view
from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating, worlds
from reliability.governed.traces import TracedEpisode, trace
from roles.errors import InfrastructureError
from scenarios.team.playable import PlayableCase
from simulator.engines.base import Completion, CompletionRequest
from simulator.governance.log import Entry
from simulator.governance.reviewers import AbsentReviewer, Reviewer
from simulator.governance.runner import open_services, play_governed
from simulator.observer import Watch

SCENARIOS = draw_cases(9)
RESTLESS = SCENARIOS[2]  # with shocks everywhere it is planned again twice


class Diaries:
    """One diary per thread."""

    def __init__(self) -> None:
        self.by_thread: dict[str, Diary] = {}

    def __call__(self, case: PlayableCase, session: str) -> Diary:
        return self.by_thread.setdefault(session, Diary())


def expert() -> Reviewer:
    return expert_reviewer(error_rate=0.3, seed=30)


def play(
    watch: Watch, *, store: Path | None = None, reviewer: Reviewer | None = None, **changed: Any
) -> tuple[TracedEpisode, list[Entry]]:
    async def run() -> tuple[TracedEpisode, list[Entry]]:
        async with open_services(store, key=KEY) as services:
            services.reviewers.register("ann")
            seating = replace(make_seating(SCENARIOS), watch=watch, **changed)
            (episode,) = await play_governed(
                [RESTLESS], services, seating, reviewer or expert(), worlds(shock_share=1.0)
            )
            assert services.log.listeners == {}
            entries = services.log.entries(episode.thread)
            decided = [entry for entry in entries if entry.kind not in ("opened", "said")]
            return trace(services, [episode])[0], decided

    return asyncio.run(run())


def governance(diary: Diary) -> list[tuple[str, Mapping[str, Any]]]:
    return [(event[1], event[2]) for event in diary.events if event[0] == "governance"]


def test_an_observer_hears_every_entry_of_the_log_and_every_word() -> None:
    diaries = Diaries()
    episode, log = play(diaries)
    (diary,) = diaries.by_thread.values()
    assert governance(diary) == [(entry.kind, entry.body) for entry in log]
    kinds = [event[0] for event in diary.events]
    assert kinds[-1] == "end"
    assert diary.events[-1] == ("end", "", None)
    changed = [role for entry in log if entry.kind == "replanned" for role in entry.body["changed"]]
    reported = [event[1] for event in diary.events if event[0] == "report"]
    assert sorted(reported) == sorted([*SEATS, *changed])
    spoken = sum(kind == "said" for kind, _ in episode.trace)
    assert kinds.count("report") + kinds.count("decision") + kinds.count("vote") == spoken
    assert kinds.count("turn") == spoken
    assert kinds.index("decision") < kinds.index("governance")


def test_what_was_told_before_a_stop_is_not_told_again(tmp_path: Path) -> None:
    diaries = Diaries()
    waiting, _ = play(diaries, store=tmp_path / "s.db", reviewer=AbsentReviewer())
    assert waiting.status == "waiting"
    (first,) = diaries.by_thread.values()
    num_before = len(first.events)
    assert first.events[-1] == ("end", "", None)
    _, log = play(diaries, store=tmp_path / "s.db", reviewer=Person())
    assert governance(first) == [(entry.kind, entry.body) for entry in log]
    reports = [event for event in first.events if event[0] == "report"]
    changed = [role for entry in log if entry.kind == "replanned" for role in entry.body["changed"]]
    assert len(reports) == len(SEATS) + len(changed)
    told = first.events[num_before:]
    at = [kind for _, kind, _ in (e for e in told if e[0] == "governance")]
    again = next((number for number, event in enumerate(told) if event[0] == "report"), len(told))
    assert "replanned" not in at or again > [event[1] for event in told].index("replanned")


class Broken:
    """An engine that is down."""

    async def complete(self, request: CompletionRequest) -> Completion:
        raise InfrastructureError("the engine is down")

    def end_session(self, session: str) -> None:
        pass


def test_a_fault_ends_it_with_its_words() -> None:
    diaries = Diaries()
    episode, _ = play(diaries, engine=Broken())
    (diary,) = diaries.by_thread.values()
    assert (episode.status, diary.events[-1]) == ("failed", ("end", "", "the engine is down"))


def test_the_live_view_tells_the_gate_and_the_plan_in_words() -> None:
    out = io.StringIO()
    _, log = play(live_view(Console(file=out, width=200).print, with_keys=False))
    lines = out.getvalue().splitlines()
    wanted = {
        "requested": "at the gate: ",
        "committed": "approved by simulated: ",
        "rejected": "rejected by simulated: ",
        "edited": "edited by simulated: ",
        "observed": "observed: ",
        "replanned": ": planning again with ",
        "closed": "closed: ",
    }
    for kind, words in wanted.items():
        assert sum(words in line for line in lines) == sum(entry.kind == kind for entry in log), kind
    assert any("carries out: " in line and " on option " in line for line in lines)
    assert any("unforeseen: " in line for line in lines)
