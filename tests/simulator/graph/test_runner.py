"""Many episodes at once: order, isolation of failures, fixed report sets, exact records."""

import asyncio
import gc
import json
import random
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from team_tables import CHAT, SAMPLING, SEATS, TEAM, WatchedEngine, draw_scenarios, oracle_engine
from tiny_models import small_model, tiny_chat

from roles.errors import InfrastructureError, UserError
from roles.team import RECONCILER
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.verdicts import verify_report
from simulator.agents.scripted_policies import oracle_team, read_table
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.concurrency import run_all, run_pool
from simulator.graph.runner import play_decisions, play_episodes
from simulator.records import Episode

SHORT = partial(PlanGame, style="short")
play_short = partial(play_episodes, make_game=SHORT)
decide_short = partial(play_decisions, make_game=SHORT)


class FailingEngine(WatchedEngine):
    """Raises where `fails` says so."""

    def __init__(self, engine: object, error: Exception, fails: Callable[[CompletionRequest], bool]) -> None:
        super().__init__(engine)  # type: ignore[arg-type]
        self.error, self.fails = error, fails

    async def complete(self, request: CompletionRequest) -> Completion:
        if self.fails(request):
            await asyncio.sleep(0)
            raise self.error
        return await super().complete(request)


@pytest.mark.parametrize("concurrency", [8, 64])
def test_results_do_not_depend_on_concurrency(concurrency: int) -> None:
    scenarios = draw_scenarios(12)
    one, many = (
        asyncio.run(
            play_short(
                scenarios, TEAM, oracle_engine(scenarios), CHAT, SAMPLING, num_repeats=3, concurrency=limit
            )
        )
        for limit in (1, concurrency)
    )
    assert one == many
    assert [episode.scenario_key for episode in one] == [s.key for s in scenarios for _ in range(3)]
    assert [episode.index_in_group for episode in one] == [0, 1, 2] * 12


def test_concurrency_is_a_limit_and_is_used() -> None:
    scenarios = draw_scenarios(10)
    most = []
    for concurrency in (1, 5):
        engine = WatchedEngine(oracle_engine(scenarios))
        asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING, concurrency=concurrency))
        most.append(engine.most_in_flight)
    assert most == [4, 20]  # the four specialists of every episode in flight


def test_repeats_differ_and_streams_differ() -> None:
    """Habits are drawn per session: not the same in every repeat or stream."""
    scenarios = draw_scenarios(10)
    engine = oracle_engine(scenarios)

    def play(stream: str) -> list[Episode]:
        return asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING, num_repeats=2, stream=stream))

    first, again, other = play("step1"), play("step1"), play("step2")
    assert first == again
    assert [e.reports for e in first] != [e.reports for e in other]
    assert [e.reports for e in first[::2]] != [e.reports for e in first[1::2]]


def test_sessions_are_unique_and_given_back() -> None:
    scenarios = draw_scenarios(5)
    engine = WatchedEngine(oracle_engine(scenarios))
    twice = [*scenarios, *scenarios]
    asyncio.run(play_short(twice, TEAM, engine, CHAT, SAMPLING, num_repeats=2))
    reports = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING, stream="other"))
    sets = list(zip(scenarios, reports, strict=True))
    asyncio.run(decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=2))
    sessions = {request.session for request in engine.requests}
    assert len(sessions) == 20 * 5 + 5 * 5 + 10 * 5
    assert engine.open_sessions == {}
    assert sessions <= set(engine.ended)


def test_trajectories_hold_the_exact_ids() -> None:
    scenario = draw_scenarios(1)[0]
    game = SHORT(scenario)
    (episode,) = asyncio.run(play_short([scenario], TEAM, oracle_engine([scenario]), CHAT, SAMPLING))
    assert list(episode.trajectories) == [*SEATS, RECONCILER]
    for role in SEATS:
        trajectory = episode.trajectories[role]
        opening = CHAT.open(game.prompt_role(role), game.write_report_brief(role), with_tools=False)
        report, vote = CHAT.encode(episode.reports[role]), CHAT.encode(episode.votes[role])
        assert trajectory.token_ids[: len(opening)] == opening
        assert trajectory.turns[0].completion_ids == (*report, CHAT.end_id)
        assert trajectory.turns[1].completion_ids == (*vote, CHAT.end_id)
        assert sum(trajectory.loss_mask) == len(report) + len(vote) + 2
        assert verify_report(scenario, role, episode.reports[role]).reward == 1.0
    (decision,) = episode.trajectories[RECONCILER].turns
    assert decision.text == episode.decision


def test_with_tools_every_call_and_observation_is_in_the_trajectory() -> None:
    scenario = draw_scenarios(1)[0]
    engine = oracle_engine([scenario])
    (episode,) = asyncio.run(play_episodes([scenario], TEAM, engine, CHAT, SAMPLING))
    for role in SEATS:
        trajectory = episode.trajectories[role]
        offers = json.loads(episode.reports[role].split("\n")[-1])["offers"]
        assert trajectory.num_valid_tool_calls == trajectory.num_tool_calls == len(offers) > 0
        told = [CHAT.decode(turn.context_ids) for turn in trajectory.turns[1 : len(offers) + 1]]
        for offer, text in zip(offers, told, strict=True):
            assert f"cost {offer['cost']}, worth {offer['worth']}; hard limit holds" in text


@pytest.mark.parametrize(("policy", "call"), [("risk", 0), (RECONCILER, 0), ("coo", 1)])
def test_infrastructure_fault_stays_with_its_episode(policy: str, call: int) -> None:
    scenarios = draw_scenarios(6)
    calm = asyncio.run(play_short(scenarios, TEAM, oracle_engine(scenarios), CHAT, SAMPLING))

    def fails(request: CompletionRequest) -> bool:
        is_its_call = (request.session in engine.open_sessions) == bool(call)
        return scenarios[2].key in request.session and request.policy == policy and is_its_call

    engine = FailingEngine(oracle_engine(scenarios), InfrastructureError("gpu lost"), fails)
    episodes = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING))
    assert episodes[2].error == "gpu lost"
    assert episodes[2].trajectories == {}
    assert [*episodes[:2], *episodes[3:]] == [*calm[:2], *calm[3:]]
    assert engine.in_flight.total() == 0
    assert engine.open_sessions == {}


def test_a_failure_in_one_seat_stops_the_others_of_its_episode() -> None:
    """The other specialists wait for ever; they must be cancelled, not awaited and not left running."""
    scenario = draw_scenarios(1)[0]
    cancelled: list[str] = []

    class Stuck(WatchedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            voting = request.session in self.open_sessions
            if not voting:
                return await super().complete(request)
            if request.policy == "cost":
                raise InfrastructureError("worker lost")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.policy)
                raise
            raise AssertionError("unreachable")

    async def run() -> list[Episode]:
        engine = Stuck(oracle_engine([scenario]))
        return await asyncio.wait_for(play_short([scenario], TEAM, engine, CHAT, SAMPLING), timeout=10)

    assert asyncio.run(run())[0].error == "worker lost"
    assert sorted(cancelled) == ["coo", "cto", "risk"]


def test_our_own_bugs_stop_the_call() -> None:
    scenarios = draw_scenarios(4)
    bug = KeyError("broken invariant")
    engine = FailingEngine(oracle_engine(scenarios), bug, lambda request: scenarios[1].key in request.session)
    with pytest.raises(KeyError) as raised:
        asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING))
    assert raised.value is bug
    assert engine.in_flight.total() == 0
    assert engine.open_sessions == {}


def test_a_team_with_an_empty_seat_is_a_users_mistake() -> None:
    scenarios = draw_scenarios(1)
    team = {role: policy for role, policy in TEAM.items() if role != "risk"}
    with pytest.raises(UserError, match="risk"):
        asyncio.run(play_short(scenarios, team, oracle_engine(scenarios), CHAT, SAMPLING))


@pytest.mark.parametrize("limits", [{"rounds": -1}, {"num_repeats": 0}, {"concurrency": 0}])
def test_wrong_limits_are_refused(limits: dict[str, Any]) -> None:
    scenarios = draw_scenarios(1)
    with pytest.raises(ValueError, match="must be >="):
        asyncio.run(play_short(scenarios, TEAM, oracle_engine(scenarios), CHAT, SAMPLING, **limits))


def test_no_scenarios_no_episodes() -> None:
    assert asyncio.run(play_short([], TEAM, oracle_engine([]), CHAT, SAMPLING)) == []


def test_roles_may_share_a_policy() -> None:
    """One policy for two seats, as in a team with one shared adapter."""
    scenarios = draw_scenarios(3)
    policies = dict.fromkeys(TEAM, lambda transcript: "")
    engine = WatchedEngine(ScriptedEngine(CHAT, policies))
    team = {**TEAM, "coo": "cto"}
    episodes = asyncio.run(play_short(scenarios, team, engine, CHAT, SAMPLING, concurrency=1))
    assert len(engine.prompts("cto")) == 3 * 4
    assert all(episode.trajectories["coo"].turns[0].policy_version == "cto@0" for episode in episodes)


def test_decisions_on_fixed_reports() -> None:
    scenarios = draw_scenarios(8)
    reporting = oracle_engine(scenarios)
    reports = asyncio.run(play_short(scenarios, TEAM, reporting, CHAT, SAMPLING, num_repeats=2))
    sets = list(zip([s for s in scenarios for _ in range(2)], reports, strict=True))
    engine = WatchedEngine(oracle_engine(scenarios))
    episodes = asyncio.run(decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=5))
    assert len(episodes) == 16 * 5
    for place, episode in enumerate(episodes):
        fixed = reports[place // 5]
        assert episode.scenario_key == fixed.scenario_key
        assert episode.index_in_group == place % 5
        assert episode.reports == fixed.reports
        for role in SEATS:
            played = episode.trajectories[role]
            assert played.turns[:1] == fixed.trajectories[role].turns[:1]
            assert len(played.turns) == 2
            assert played.turns[1].text == episode.votes[role]
        assert episode.trajectories[RECONCILER].final_text == episode.decision
    assert len(engine.requests) == 16 * 5 * 5  # a decision and four votes; no report was sampled again
    groups = [{episode.decision for episode in episodes[start : start + 5]} for start in range(0, 80, 5)]
    assert any(len(group) > 1 for group in groups)  # several habits came up on the same reports


def test_decisions_without_votes_may_ask_and_are_answered() -> None:
    scenarios, make_game = draw_scenarios(8), partial(PlanGame, questions=2)
    experts = oracle_team(scenarios, report_habit="measured", funding_habit="exact", asks=True)
    engine = ScriptedEngine(CHAT, seeded=experts)
    first = asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, make_game=make_game))
    sets = list(zip(scenarios, first, strict=True))
    decide = partial(play_decisions, sets, TEAM, engine, CHAT, SAMPLING, num_decisions=1, with_votes=False)
    again = asyncio.run(decide(make_game=make_game))
    assert [one.asked for one in again] == [one.asked for one in first]
    assert max(len(one.asked) for one in again) == 2
    assert [one.decision for one in again] == [one.decision for one in first]
    assert not any(one.votes for one in again)


def test_episodes_that_are_over_do_not_hold_the_engine() -> None:
    """Its cache is large: it must not wait for the garbage collector."""
    engine, model, chat = TransformersEngine(end_id=None), small_model(0), tiny_chat()
    for role in TEAM:
        engine.set_policy(role, model, version="0")
    sampling = Sampling(temperature=1.0, max_completion_tokens=4)
    gc.disable()
    try:
        asyncio.run(play_short(draw_scenarios(1), TEAM, engine, chat, sampling))
        held = weakref.ref(engine)
        del engine
        assert held() is None
    finally:
        gc.enable()


def test_decisions_without_votes_and_with_a_report_left_out() -> None:
    scenarios = draw_scenarios(5)
    engine = oracle_engine(scenarios, funding_habit="exact")
    reports = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING))
    sets = [
        (scenario, replace(episode, reports={**episode.reports, "risk": ""}))
        for scenario, episode in zip(scenarios, reports, strict=True)
    ]
    watched = WatchedEngine(engine)
    episodes = asyncio.run(
        decide_short(
            sets,
            TEAM,
            watched,
            CHAT,
            SAMPLING,
            num_decisions=1,
            with_votes=False,
            with_replies=False,
            concurrency=1,
        )
    )
    assert {request.policy for request in watched.requests} == {RECONCILER}
    for episode, (_, left_out), prompt in zip(episodes, sets, watched.prompts(RECONCILER), strict=True):
        assert "risk no report" in prompt
        assert prompt.count("no report") == 1
        assert (episode.reports, episode.votes) == (left_out.reports, {})
        assert list(episode.trajectories) == [RECONCILER]
        assert '"option"' in episode.decision


def test_no_rounds_no_votes() -> None:
    scenarios = draw_scenarios(2)
    engine = WatchedEngine(oracle_engine(scenarios))
    episodes = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING, rounds=0))
    assert len(engine.requests) == 2 * 5
    assert all(episode.votes == {} and '"option"' in episode.decision for episode in episodes)


def test_a_whole_episode_serves_as_report_set() -> None:
    scenarios = draw_scenarios(4)
    engine = oracle_engine(scenarios, funding_habit="exact")
    whole = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING, rounds=2))
    sets = list(zip(scenarios, whole, strict=True))
    again = asyncio.run(decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=1, rounds=2))
    for before, after in zip(whole, again, strict=True):
        assert (after.reports, after.decision, after.votes) == (before.reports, before.decision, before.votes)
        assert {role: t.token_ids for role, t in after.trajectories.items()} == {
            role: t.token_ids for role, t in before.trajectories.items()
        }


def test_questions_and_tools_play_back_from_a_report_set() -> None:
    """Full style: the report with its tool calls is replayed, the reconciler asks anew, the seat replies."""
    scenarios = draw_scenarios(3)
    experts = oracle_team(scenarios, report_habit="lean", funding_habit="exact")
    decide = experts[RECONCILER]

    def asks_first(transcript: str, rng: random.Random) -> str:
        option = read_table(transcript).public.options
        ask = {"seat": "cost", "option": next(iter(option)), "cost_at_most": 99}
        return decide(transcript, rng) if '"ask": {"seat": "cost"' in transcript else json.dumps({"ask": ask})

    engine = ScriptedEngine(CHAT, seeded={**experts, RECONCILER: asks_first})
    whole = asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING))
    assert all(len(episode.asked) == 1 for episode in whole)
    assert all('"offer"' in episode.asked[0].reply for episode in whole)
    sets = list(zip(scenarios, whole, strict=True))
    again = asyncio.run(play_decisions(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=1))
    for before, after in zip(whole, again, strict=True):
        assert (after.asked, after.decision, after.votes) == (before.asked, before.decision, before.votes)
        assert {role: t.token_ids for role, t in after.trajectories.items()} == {
            role: t.token_ids for role, t in before.trajectories.items()
        }


def test_cut_reports_play_back_as_cut() -> None:
    """A report that ran into the token limit is "", and stays so on a fixed set."""
    scenarios = draw_scenarios(2)
    engine = oracle_engine(scenarios)
    short = Sampling(max_completion_tokens=20)
    reports = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, short))
    assert all(text == "" for episode in reports for text in episode.reports.values())
    sets = list(zip(scenarios, reports, strict=True))
    (first, _) = asyncio.run(decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=1))
    prompt = CHAT.decode(first.trajectories[RECONCILER].turns[0].context_ids)
    assert prompt.count("no report") == 4
    assert first.trajectories["cto"].turns[1].context_ids[0] == CHAT.end_id  # closes the cut turn


def test_report_sets_of_another_case_or_chat_are_refused() -> None:
    scenarios = draw_scenarios(2)
    engine = oracle_engine(scenarios)
    reports = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING))

    def decide(sets: list[tuple[TeamScenario, Episode]], **changed: Any) -> Any:
        return decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=1, **changed)

    with pytest.raises(ValueError, match="holds no reports"):
        asyncio.run(decide([(scenarios[0], reports[1])]))
    with pytest.raises(ValueError, match="not the recorded transcript"):
        asyncio.run(decide([(scenarios[0], reports[0])], make_game=PlanGame))
    edited = replace(reports[0], reports={**reports[0].reports, "cto": "other"})
    with pytest.raises(ValueError, match="plays back differently"):
        asyncio.run(decide([(scenarios[0], edited)]))


def test_fault_of_a_report_set_is_handed_on() -> None:
    scenarios = draw_scenarios(1)
    engine = FailingEngine(oracle_engine(scenarios), InfrastructureError("gpu lost"), lambda _: True)
    reports = asyncio.run(play_short(scenarios, TEAM, engine, CHAT, SAMPLING))
    sets = [(scenarios[0], reports[0])]
    episodes = asyncio.run(decide_short(sets, TEAM, engine, CHAT, SAMPLING, num_decisions=3))
    assert [(e.error, e.index_in_group) for e in episodes] == [
        ("gpu lost", 0),
        ("gpu lost", 1),
        ("gpu lost", 2),
    ]


def test_run_all_prefers_a_bug_over_an_infrastructure_fault() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def both() -> None:
        await run_all([fail(InfrastructureError("lost")), fail(ZeroDivisionError("bug"))])

    with pytest.raises(ZeroDivisionError):
        asyncio.run(both())


def test_run_pool_keeps_order_and_limit() -> None:
    running: list[int] = []
    peak: list[int] = []

    async def job(index: int) -> int:
        running.append(index)
        peak.append(len(running))
        for _ in range(7 - index):
            await asyncio.sleep(0)
        running.remove(index)
        return index

    jobs = [lambda index=index: job(index) for index in range(7)]
    assert asyncio.run(run_pool(jobs, concurrency=3)) == list(range(7))
    assert max(peak) == 3
