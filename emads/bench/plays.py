"""Plays of single cases of a bench, and their file: a line each as soon as it is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from emads.bench.cases import TABLE, BenchCase
from emads.team import OpenTeam, Team
from roles.base import FORMAT_FAILURES
from roles.errors import InfrastructureError, UserError
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.team import PlanGame, TeamScenario
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import play_solo
from simulator.engines.openai.chat_engine import EndpointUsage
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from simulator.line_files import LineFile, read_lines
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import score_episode

MAX_TURNS = 24  # of an agent per message; the experts need half of them
MAX_FAILED_CALLS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlay:
    """One case as it was played.

    Example: BenchPlay(key="cto/test/2026/0/1", kind="cto", band="easy", difficulty=1, score=1.0,
                       reward=1.0, legal={"cto alone": (1, 1)}, turns=4, tool_calls=3,
                       ended_by={"cto": "answer"}, usage=EndpointUsage())
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    key: str
    kind: str  # a role family, or "table"
    band: str
    difficulty: int
    score: float  # alone: the verdict's reward; at the table: V of the decision
    reward: float  # alone: the same; at the table: the team reward R
    legal: dict[str, tuple[int, int]]  # "cto report" -> answers that could be read, answers asked for
    turns: int
    tool_calls: int
    ended_by: dict[str, str]  # seat -> "answer", or the limit that ended its work
    usage: EndpointUsage  # of API models


async def play_case(team: Team, opened: OpenTeam, case: BenchCase) -> BenchPlay | None:
    """Play one case; None where an engine failed: the next call asks again, and no fault is scored 0."""
    scenario = case.scenario
    stream = name_stream(scenario)
    if isinstance(scenario, TeamScenario):
        episode = await play_table(team, opened, scenario)
        if episode.error is not None:
            return None
        verdict = score_episode(scenario, episode, team.weights)
        score, reward, trajectories = verdict.value, verdict.reward, dict(episode.trajectories)
        legal = count_legal(scenario, episode)
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
        key=case.key,
        kind=case.cell.kind if isinstance(scenario, Scenario) else TABLE,
        band=case.cell.band,
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


def name_stream(scenario: Scenario | TeamScenario) -> str:
    """Begin the names of a case's sessions; the slash keeps case 1 apart from case 10."""
    return f"bench/{scenario.key}/"


def count_legal(scenario: TeamScenario, episode: Episode) -> dict[str, tuple[int, int]]:
    """Return (read, asked for) of every seat's report and vote and of the decision."""
    read, game = read_episode(scenario, episode), PlanGame(scenario)
    legal = {
        f"{seat} report": (int(game.read_report(seat, text) is not None), 1)
        for seat, text in episode.reports.items()
    }
    legal[f"{RECONCILER} decision"] = (int(read.decision is not None), 1)
    return legal | {f"{seat} vote": (int(read.votes[seat] is not None), 1) for seat in episode.votes}


class PlayFile:
    """The plays of one bench folder.

    Example: PlayFile(folder / "plays.jsonl").read()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._adapter = TypeAdapter(BenchPlay)

    def read(self) -> list[BenchPlay]:
        """Return all plays; a last line that a kill cut short is left out, no file holds nothing.

        Raises:
            UserError: a damaged line.
        """
        plays = []
        for number, line in enumerate(read_lines(self.path), start=1):
            try:
                plays.append(self._adapter.validate_json(line))
            except ValidationError:
                raise UserError(
                    f"{self.path}:{number} is no play; delete the line to play it again"
                ) from None
        return plays

    def add(self, play: BenchPlay) -> None:
        """Append a play; it is on disk when this returns."""
        with LineFile(self.path) as file:
            file.add(self._adapter.dump_json(play))
