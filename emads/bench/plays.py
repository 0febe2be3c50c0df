"""Plays of the bench: one line of a file each as soon as it is done, so that a killed call goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from emads.bench.cases import TABLE, BenchCase
from roles.base import FORMAT_FAILURES
from roles.errors import UserError
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.team import PlanGame, TeamScenario
from simulator.agents.solo import SoloEpisode
from simulator.engines.openai.chat_engine import Usage
from simulator.line_files import LineFile, read_lines
from simulator.reading import read_episode
from simulator.records import Episode, Trajectory
from simulator.reward import TeamVerdict

ALONE = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlay:
    """One case as it was played.

    Example: BenchPlay(key="cto/test/2026/0/1", kind="cto", band="easy", difficulty=1, score=1.0,
                       reward=1.0, legal={"cto alone": (1, 1)}, turns=4, tool_calls=3,
                       ended_by={"cto": "answer"}, usage=Usage())
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    key: str
    kind: str  # a role family, or "table"
    band: str
    difficulty: int
    score: float  # alone: the verdict's reward; at the table: V of the decision
    reward: float  # alone: the same; at the table: the team reward R
    legal: dict[
        str, tuple[int, int]
    ]  # "cto report" -> answers that could be read, answers that were asked for
    turns: int
    tool_calls: int
    ended_by: dict[str, str]  # seat -> "answer", or the limit that ended its work
    usage: Usage  # of API models


def describe_solo(case: BenchCase, episode: SoloEpisode, usage: Usage) -> BenchPlay:
    """Return the play of a role alone."""
    assert isinstance(case.scenario, Scenario)
    role, verdict, trajectory = case.scenario.role, episode.verdict, episode.trajectory
    return BenchPlay(
        key=case.key,
        kind=case.cell.kind,
        band=case.cell.band,
        difficulty=case.scenario.difficulty,
        score=verdict.reward,
        reward=verdict.reward,
        legal={f"{role} {ALONE}": (int(verdict.failure not in FORMAT_FAILURES), 1)},
        turns=len(trajectory.turns),
        tool_calls=trajectory.num_tool_calls,
        ended_by={role: trajectory.ended_by},
        usage=usage,
    )


def describe_table(case: BenchCase, episode: Episode, verdict: TeamVerdict, usage: Usage) -> BenchPlay:
    """Return the play of a table."""
    assert isinstance(case.scenario, TeamScenario)
    trajectories: Sequence[Trajectory] = list(episode.trajectories.values())
    return BenchPlay(
        key=case.key,
        kind=TABLE,
        band=case.cell.band,
        difficulty=case.scenario.difficulty,
        score=verdict.value,
        reward=verdict.reward,
        legal=count_legal(case.scenario, episode),
        turns=sum(len(one.turns) for one in trajectories),
        tool_calls=sum(one.num_tool_calls for one in trajectories),
        ended_by={seat: one.ended_by for seat, one in episode.trajectories.items()},
        usage=usage,
    )


def count_legal(scenario: TeamScenario, episode: Episode) -> dict[str, tuple[int, int]]:
    """Return (read, asked for) of every seat's report and vote and of the decision."""
    read = read_episode(scenario, episode)
    game = PlanGame(scenario)
    legal = {
        f"{seat} report": (int(game.read_report(seat, text) is not None), 1)
        for seat, text in episode.reports.items()
    }
    legal[f"{RECONCILER} decision"] = (int(read.decision is not None), 1)
    for seat in episode.votes:
        legal[f"{seat} vote"] = (int(read.votes[seat] is not None), 1)
    return legal


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
