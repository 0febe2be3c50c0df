"""Governed episodes as a whole: the same traces in any order, faults that stay, stores that can be named."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gate_probes import on_disk
from governed_tables import CALM, yes_man
from hostile_policies import hostile, silent
from team_tables import CHAT, WatchedEngine, oracle_engine
from trial_counts import num_trials

from reliability.governed.cases import KEY, draw_cases, expert_reviewer, make_seating, worlds
from reliability.governed.traces import TracedEpisode, trace
from roles.errors import InfrastructureError, UserError
from scenarios.team.playable import PlayableCase
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.runner import GovernedEpisode, open_services, play_governed

CASES = draw_cases(8)
KNOWN = list[PlayableCase](CASES)  # and what arises from their re-plans


def play(cases: list[Any], *, path: Path | None = None, **options: Any) -> list[TracedEpisode]:
    concurrency, engine = options.pop("concurrency", 8), options.pop("engine", None)
    reviewer = options.pop("reviewer", None) or expert_reviewer(error_rate=0.3, seed=1)

    async def run() -> list[TracedEpisode]:
        async with open_services(path, key=options.pop("key", KEY)) as services:
            seating = make_seating(CASES, engine=engine, known=KNOWN)
            outcomes = worlds(shock_share=0.6)
            played = await play_governed(
                cases, services, seating, reviewer, outcomes, concurrency=concurrency, **options
            )
            return trace(services, played)

    return asyncio.run(run())


class Shuffled:
    """An engine whose answers arrive in random order."""

    def __init__(self, seed: int) -> None:
        self.inner, self.rng = (
            oracle_engine(KNOWN, report_habit="measured", funding_habit="exact"),
            random.Random(seed),
        )

    async def complete(self, request: CompletionRequest) -> Completion:
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(0)
        return await self.inner.complete(request)

    def end_session(self, session: str) -> None:
        pass


def summarise(episodes: list[TracedEpisode]) -> dict[str, Any]:
    return {episode.thread: (episode.status, episode.trace) for episode in episodes}


def replay_shuffled(wanted: dict[str, Any], seed: int) -> None:
    """The same cases in another order, with answers that arrive in another order, alone and side by side."""
    cases = random.Random(seed).sample(CASES, len(CASES))
    for concurrency in (1, 8):
        episodes = play(cases, concurrency=concurrency, engine=Shuffled(seed))
        assert summarise(episodes) == wanted
        assert [e.case_key for e in episodes] == [case.key for case in cases]


def test_traces_depend_on_neither_arrival_nor_concurrency() -> None:
    """D2, on cases of which some are sent back and some are planned again."""
    wanted = play(CASES, concurrency=1, engine=Shuffled(0))
    assert len({episode.standing.attempt for episode in wanted}) > 1
    assert len({episode.standing.revision for episode in wanted}) > 1
    for seed in range(1, num_trials(2, 20) + 1):
        replay_shuffled(summarise(wanted), seed)


def test_later_calls_recall_what_earlier_ones_closed(tmp_path: Path) -> None:
    first = play(CASES, path=tmp_path / "s.db")
    assert all(episode.state["precedents"] == [] for episode in first)

    async def run() -> list[TracedEpisode]:
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            seating = make_seating(CASES, stream="later")
            return trace(services, await play_governed(CASES, services, seating, yes_man(), CALM))

    for episode in asyncio.run(run()):
        recalled = episode.state["precedents"]
        assert episode.case_key in [one["case"] for one in recalled]
        own = [one["company"] == episode.proposal["words"]["context"] for one in recalled]
        assert own == sorted(own, reverse=True)  # those of the same company first
        assert episode.case_key in episode.proposal["precedents"]


def test_replans_spend_what_is_left_and_say_what_execution_revealed() -> None:
    episodes = play(CASES, reviewer=yes_man())
    replanned = [episode for episode in episodes if episode.standing.attempt]
    assert replanned
    for episode in replanned:
        first, *later = observed_in(episode)
        assert first["alerts"]
        left = first["left"]
        for told in later:
            assert told["cost"] <= left
            cuts = [shock for shock in told["shocks"] if shock.startswith("The reserve is cut")]
            cut = sum(int(shock.rpartition(" by ")[2].split()[0]) for shock in cuts)
            assert told["left"] in (left - told["cost"] - cut, 0)
            left = told["left"]
        drafts = [body for kind, body in episode.trace if kind == "said" and body["step"] == "reconcile"]
        option = next(body["option"] for kind, body in episode.trace if kind == "committed")
        news = f"Execution of {option} did not hold:"
        assert any(body["message"].startswith(news) for body in drafts)
        assert episode.standing.attempt <= 3


def observed_in(episode: TracedEpisode) -> list[dict[str, Any]]:
    return [body for kind, body in episode.trace if kind == "observed"]


def test_only_seats_whose_facts_changed_report_again() -> None:
    for episode in play(CASES, reviewer=yes_man()):
        reports = [
            body["role"] for kind, body in episode.trace if kind == "said" and body["step"] == "report"
        ]
        again = list((Counter(reports) - Counter(list(episode.state["briefs"]))).elements())
        changed = [
            role for told in observed_in(episode)[: episode.standing.attempt] for role in told["changed"]
        ]
        assert sorted(again) == sorted(changed)
        for body in observed_in(episode):
            struck = {seat for seat, lost in body["lost"].items() if lost}
            assert struck <= set(body["changed"])


def test_an_engines_fault_stays_with_its_episode_which_can_be_taken_up(tmp_path: Path) -> None:
    class Failing(Shuffled):
        async def complete(self, request: CompletionRequest) -> Completion:
            if CASES[1].key in request.session and request.policy == "reconcile":
                raise InfrastructureError("gpu lost")
            return await super().complete(request)

    calm = play(CASES[:3], engine=Shuffled(0))
    broken = play(CASES[:3], path=tmp_path / "s.db", engine=Failing(0))
    assert [episode.status == "failed" for episode in broken] == [False, True, False]
    assert broken[1].error == "gpu lost"
    mended = play(CASES[:3], path=tmp_path / "s.db", engine=Shuffled(5))
    assert [e.trace for e in mended] == [e.trace for e in calm]


def test_a_turn_that_was_recorded_is_not_sampled_again(tmp_path: Path) -> None:
    class FailingOnce(WatchedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            if request.policy == "reconcile" and len(self.requests) < 5:
                self.requests.append(request)
                raise InfrastructureError("gpu lost")
            return await super().complete(request)

    engine = FailingOnce(oracle_engine(KNOWN, report_habit="measured", funding_habit="exact"))
    (failed,) = play(CASES[:1], path=tmp_path / "s.db", engine=engine)
    assert failed.status == "failed"
    (done,) = play(CASES[:1], path=tmp_path / "s.db", engine=engine)
    assert done.error is None
    opening = [
        r
        for r in engine.requests
        if r.policy != "reconcile"
        and "<|assistant|>" not in (CHAT.decode(r.prompt_ids).removesuffix("<|assistant|>"))
    ]
    assert len(opening) == 4
    assert engine.open_sessions == {}


@pytest.mark.parametrize("policy", [silent, hostile])
def test_malformed_answers_end_at_the_reviewer(policy: Any) -> None:
    roles = ("cto", "coo", "risk", "cost", "reconcile")
    engine = (
        ScriptedEngine(CHAT, dict.fromkeys(roles, silent))
        if policy is silent
        else ScriptedEngine(CHAT, seeded=dict.fromkeys(roles, hostile))
    )
    for episode in play(CASES[:4], engine=engine, reviewer=yes_man()):
        assert episode.status in ("handed_over", "completed", "completed_with_alerts")
        json.dumps(dict(episode.state), allow_nan=False)


@pytest.mark.parametrize("options", [{"rounds": -1}, {"concurrency": 0}])
def test_wrong_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be >="):
        play(CASES[:1], **options)


def test_one_case_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        play([CASES[0], CASES[0]])


def test_a_finished_thread_whose_log_is_damaged_is_a_users_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def play() -> list[GovernedEpisode]:
        async with open_services(path, key=KEY) as services:
            return await play_governed(CASES, services, make_seating(CASES), yes_man(), CALM)

    first = asyncio.run(play())
    assert {episode.status for episode in first} == {"completed"}
    assert asyncio.run(play()) == first
    on_disk(path, "UPDATE decision_log SET body = '{' WHERE kind = 'said' AND thread = ?", (first[0].thread,))
    with pytest.raises(UserError, match="not as it was written"):
        asyncio.run(play())
