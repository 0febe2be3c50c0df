"""Plays many episodes at once on one engine: whole ones, or decisions on fixed reports.

Results come in the order of the inputs whatever the concurrency. An InfrastructureError stays with its
episode; anything else stops the call. Nodes, agents and engines never see a scenario's truth.

Common arguments: `team` names each role's policy; `concurrency` is episodes in flight; `stream` begins every
session's name, so calls with different streams sample differently and may run at the same time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from roles.base import Role
from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.team import PlanGame
from scenarios.team.playable import PlayableCase
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame, TeamGame
from simulator.graph.concurrency import deferred_garbage_collection, run_pool
from simulator.graph.seating import Seating, list_roles, make_context
from simulator.graph.state import TeamState, Utterance
from simulator.graph.team_graph import play_graph
from simulator.observer import Watch, watched
from simulator.records import Episode, Question

MAX_TURNS = 24  # of an agent per message

_Play = Callable[
    [Seating, PlayableCase, str, int], Coroutine[Any, Any, Episode]
]  # ..., session, index in group


async def play_episodes(
    scenarios: Sequence[PlayableCase],
    team: Mapping[str, str],
    engine: Engine,
    chat: Chat,
    sampling: Sampling,
    *,
    rounds: int = 1,
    num_repeats: int = 1,
    concurrency: int = 256,
    stream: str = "",
    max_turns: int = MAX_TURNS,
    roles: Mapping[str, Role] = ROLES,
    watch: Watch | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    make_game: MakeGame = PlanGame,
    first_place: int = 0,
) -> list[Episode]:
    """Play every scenario `num_repeats` times: reports, decision, then up to `rounds` rounds of votes.

    Returns the episodes scenario by scenario, the repeats of one scenario side by side. `watch` makes an
    observer for each, told what happens while it happens. `kinds`: the agent in a seat; where none is named
    one with tools if the game gives the seat any. `limits`: of every agent. `make_game`: the joint game. A
    part of a longer list samples as in the whole list if `first_place` says where it begins.

    Raises:
        UserError: a seat or the reconciler has no policy in the team.
        ValueError: rounds < 0, num_repeats or concurrency < 1.
    """
    seating = Seating(
        team=team,
        engine=engine,
        chat=chat,
        sampling=sampling,
        stream=f"{stream}/episodes",
        max_turns=max_turns,
        roles=roles,
        watch=watch,
        kinds=kinds or {},
        limits=limits or AgentLimits(),
        make_game=make_game,
    )
    _check_rounds(rounds)
    plays = [(scenario, partial(_play_episode, rounds=rounds)) for scenario in scenarios]
    return await _play_groups(seating, plays, num_repeats, concurrency, first_place)


async def play_decisions(
    report_sets: Sequence[tuple[PlayableCase, Episode]],
    team: Mapping[str, str],
    engine: Engine,
    chat: Chat,
    sampling: Sampling,
    *,
    num_decisions: int,
    with_votes: bool = True,
    with_replies: bool = True,
    rounds: int = 1,
    concurrency: int = 256,
    stream: str = "",
    max_turns: int = MAX_TURNS,
    roles: Mapping[str, Role] = ROLES,
    make_game: MakeGame = PlanGame,
    first_place: int = 0,
) -> list[Episode]:
    """Play ReconcileGPT and the votes `num_decisions` times on each fixed set of reports.

    A report set is any episode of the scenario; of it only the reports count. Their turns open the
    specialists' trajectories of every returned episode, token for token, and the votes follow. Decisions
    on one set stand side by side, `index_in_group` counting them. A set's infrastructure fault is handed on.

    Without votes ReconcileGPT plays one draft: far cheaper where many decisions on one set are compared.
    Without replies it also asks nothing: the episodes hold its trajectory alone, and reports may be left out
    of the set (text "").
    `first_place` is as for `play_episodes`, counted in sets.

    Raises:
        ValueError: a set was not played on its scenario, or with other roles, chat or max_turns.
    """
    seating = Seating(
        team=team,
        engine=engine,
        chat=chat,
        sampling=sampling,
        stream=f"{stream}/decisions",
        max_turns=max_turns,
        roles=roles,
        make_game=make_game,
    )
    _check_rounds(rounds)
    has_seats = with_votes or with_replies
    play = partial(_play_decision, rounds=rounds if with_votes else 0, has_seats=has_seats)
    plays = [(scenario, partial(play, reports=reports)) for scenario, reports in report_sets]
    return await _play_groups(seating, plays, num_decisions, concurrency, first_place)


def _check_rounds(rounds: int) -> None:
    if rounds < 0:
        raise ValueError(f"rounds must be >= 0, got {rounds}")


async def _play_groups(
    seating: Seating,
    plays: Sequence[tuple[PlayableCase, _Play]],
    num_repeats: int,
    concurrency: int,
    first_place: int,
) -> list[Episode]:
    if num_repeats < 1:
        raise ValueError(f"episodes per group must be >= 1, got {num_repeats}")
    seating.check(scenario for scenario, _ in plays)
    jobs = [
        partial(_contain, seating, scenario, f"{seating.stream}/{place}.{index}/{scenario.key}", index, play)
        for place, (scenario, play) in enumerate(plays, first_place)
        for index in range(num_repeats)
    ]
    with deferred_garbage_collection(concurrency):
        return await run_pool(jobs, concurrency=concurrency)


async def _contain(
    seating: Seating, scenario: PlayableCase, session: str, index: int, play: _Play
) -> Episode:
    """Play one episode; an engine's failure becomes its error, and no session outlives it."""
    try:
        return await play(seating, scenario, session, index)
    except InfrastructureError as error:
        return _failed(scenario, index, str(error) or type(error).__name__)
    finally:
        seating.end_sessions(scenario, session)


async def _play_episode(
    seating: Seating, scenario: PlayableCase, session: str, index: int, *, rounds: int
) -> Episode:
    with watched(seating.watch, scenario, session) as observer:
        game = seating.make_game(scenario)
        agents = seating.make_agents(scenario, game, session, observer)
        case = seating.open_case(scenario, game, rounds=rounds)
        final = await play_graph(case, make_context(game, agents, observer))
    return _record(scenario, index, agents, final)


async def _play_decision(
    seating: Seating,
    scenario: PlayableCase,
    session: str,
    index: int,
    *,
    rounds: int,
    has_seats: bool,
    reports: Episode,
) -> Episode:
    if reports.error is not None:
        return _failed(scenario, index, reports.error)
    game = seating.make_game(scenario)
    game = game if has_seats else game.without_questions()
    agents = seating.make_agents(scenario, game, session)
    case = _with_reports(seating.open_case(scenario, game, rounds=rounds), scenario, game, reports)
    for role in scenario.seats if has_seats else ():
        agents[role], text = await seating.replay_report(
            role, case["briefs"][role], session, game, reports.trajectories[role]
        )
        if text != reports.reports[role]:
            raise ValueError(f"the report of {role} on {scenario.key} plays back differently")
    final = await play_graph(case, make_context(game, agents))
    for role in () if has_seats else scenario.seats:
        del agents[role]
    return _record(scenario, index, agents, final)


def _with_reports(case: TeamState, scenario: PlayableCase, game: TeamGame, reports: Episode) -> TeamState:
    """Return the case with all reports given, so that the graph goes straight to reconcile."""
    if reports.scenario_key != scenario.key or set(reports.reports) != set(scenario.seats):
        raise ValueError(f"episode of {reports.scenario_key} holds no reports on {scenario.key}")
    said = {
        role: Utterance(text=text, parsed=game.read_report(role, text))
        for role, text in reports.reports.items()
    }
    return TeamState(**{**case, "reports": said})


def _record(scenario: PlayableCase, index: int, agents: Mapping[str, Agent], final: TeamState) -> Episode:
    return Episode(
        scenario_key=scenario.key,
        index_in_group=index,
        trajectories={role: agent.trajectory() for role, agent in agents.items()},
        reports={role: final["reports"][role]["text"] for role in scenario.seats},
        asked=tuple(
            Question(ask=one["ask"]["text"], reply=one["reply"]["text"]) for one in final["answered"]
        ),
        decision=final["decision"]["text"] if final["decision"] else "",
        votes={role: vote["text"] for role, vote in final["votes"].items()},
    )


def _failed(scenario: PlayableCase, index: int, error: str) -> Episode:
    return Episode(
        scenario_key=scenario.key,
        index_in_group=index,
        trajectories={},
        reports={},
        decision="",
        votes={},
        error=error,
    )


def play_team(
    scenarios: Sequence[PlayableCase],
    *,
    engine: Engine,
    chat: Chat,
    temperature: float,
    max_completion_tokens: int,
    stream: str,
    make_game: MakeGame,
    rounds: int = 1,
    first_place: int = 0,
) -> list[Episode]:
    """One episode per scenario with the policies named like the roles."""
    team = {role: role for scenario in scenarios for role in list_roles(scenario)}
    sampling = Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens)
    return asyncio.run(
        play_episodes(
            scenarios,
            team,
            engine,
            chat,
            sampling,
            rounds=rounds,
            concurrency=len(scenarios),
            stream=f"{stream}/{temperature}",
            first_place=first_place,
            make_game=make_game,
        )
    )
