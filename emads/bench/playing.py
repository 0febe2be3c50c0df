"""Plays single cases of a bench: a role alone, or a whole table."""

from emads.bench.cases import BenchCase
from emads.bench.plays import BenchPlay, describe_solo, describe_table
from emads.seats.mixed_team import MixedTeam, OpenTeam
from roles.errors import InfrastructureError
from scenarios.base import Scenario
from scenarios.team import TeamScenario
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from simulator.records import Episode
from simulator.reward import score_episode

MAX_TURNS = 24  # of an agent per message; the experts need half of them
MAX_FAILED_CALLS = 8


async def play_case(team: MixedTeam, opened: OpenTeam, case: BenchCase) -> BenchPlay | None:
    """Play one case; None where an engine failed: it is asked again by the next call, never scored 0."""
    if isinstance(case.scenario, TeamScenario):
        episode = await play_table(team, opened, case.scenario)
        if episode.error is not None:
            return None
        verdict = score_episode(case.scenario, episode, team.weights)
        return describe_table(case, episode, verdict, team.ledger.sum_of(prefix=_stream(case.scenario)))
    try:
        solo = await play_alone(team, opened, case.scenario)
    except InfrastructureError:
        return None
    return describe_solo(case, solo, team.ledger.sum_of(prefix=_stream(case.scenario)))


async def play_alone(team: MixedTeam, opened: OpenTeam, scenario: Scenario) -> SoloEpisode:
    """Play a case of a role family with the player of that seat, in the prompts that it reads.

    Raises:
        InfrastructureError: an engine failed.
    """
    families = team.families_of(scenario.role)
    draw = families[scenario.family].generate
    return await play_solo(
        draw(scenario.split, scenario.seed, scenario.index, scenario.difficulty),
        policy=scenario.role,
        engine=opened.alone,
        chat=team.chat,
        sampling=team.sampling,
        session=f"{_stream(scenario)}{scenario.role}",
        max_turns=MAX_TURNS,
        max_failed_calls=MAX_FAILED_CALLS,
        families=families,
    )


async def play_table(team: MixedTeam, opened: OpenTeam, scenario: TeamScenario) -> Episode:
    """Play a joint case with the whole team."""
    (episode,) = await play_episodes(
        [scenario],
        {role: role for role in list_roles(scenario)},
        opened.table,
        team.chat,
        team.sampling,
        stream=_stream(scenario),
        max_turns=MAX_TURNS,
        limits=AgentLimits(failed_calls=MAX_FAILED_CALLS),
        make_game=team.make_game,
    )
    return episode


def _stream(scenario: Scenario | TeamScenario) -> str:
    """Begin the names of a case's sessions; the slash keeps case 1 apart from case 10."""
    return f"bench/{scenario.key}/"
