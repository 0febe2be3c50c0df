"""Teams that play cases: a run's trained team, scripted experts that need no run, or any mix by seat.

Importing this module imports no torch; loading a trained team does.
"""

import difflib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from emads.seats.mixed_team import MixedTeam
from emads.seats.players import STAGES, ApiPlayer, RunPlayer, ScriptPlayer, Seats, read_seats
from emads.seats.prices import ApiOptions
from emads.seats.scripts import check_habits, refuse_words
from roles.errors import UserError, check_number, unknown
from roles.registry import ROLES
from scenarios.team import PlanGame, TeamScenario, generate
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from serving.endpoint.served_team import ServedTeam
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.openai.chat_engine import Ledger
from simulator.engines.openai.endpoint import Budget
from simulator.engines.scripted import ScriptedEngine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.export.team_folder import find_stage

if TYPE_CHECKING:
    from emads.trained_team import TrainedTeam

SCRIPTED = "scripted"
DEFAULT_STAGE = "marl"
SCRIPTED_DIFFICULTIES = (1, 2)
SCRIPTED_ANSWER_TOKENS = 20_000  # a token of the scripted team is a character


class Team(ServedTeam, Protocol):
    """Whoever plays: one policy per role, and how its prompts and answers are read.

    Example: load_team("scripted").label == "scripted team"
    """

    @property
    def weights(self) -> TeamRewardWeights: ...

    @property
    def stop(self) -> str | None:
        """The reason for which play ended early, such as a cost limit; None where it did not."""
        ...

    def describe_usage(self) -> list[str]:
        """Say what play took of endpoints, in lines; none where there are no endpoints."""
        ...

    def draw_case(self, index: int) -> TeamScenario:
        """Return the test scenario of this index."""
        ...

    def serve(self, cases: Sequence[PlayableCase]) -> AbstractContextManager[Engine]:
        """Return the engine that speaks for every role in these cases, open for the block."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTeam:
    """Experts in code: they hold the figures of every case and answer in milliseconds.

    Example: ScriptedTeam().draw_case(0).key == "team/test/0/0/1"
    """

    label: str = "scripted team"
    stream: str = SCRIPTED
    chat: Chat = field(default_factory=PlainChat)
    sampling: Sampling = field(
        default_factory=partial(Sampling, temperature=0.0, max_completion_tokens=SCRIPTED_ANSWER_TOKENS)
    )
    rounds: int = 1
    weights: TeamRewardWeights = field(default_factory=TeamRewardWeights)
    questions: int | None = None  # most questions of ReconcileGPT, which asks none where it is None
    stop: str | None = None

    @property
    def make_game(self) -> MakeGame:
        """The game in full prompts."""
        return partial(PlanGame, questions=self.questions)

    def describe_usage(self) -> list[str]:
        """Nothing is asked of an endpoint."""
        return []

    def draw_case(self, index: int) -> TeamScenario:
        """Return the test scenario of this index, of difficulty 1 and 2 in turn."""
        return generate("test", 0, index, SCRIPTED_DIFFICULTIES[index % len(SCRIPTED_DIFFICULTIES)])

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case.

        Raises:
            UserError: a damaged file, or a seat that gives words alone.
        """
        case = read_case(path)
        if unlisted := case.list_unlisted():
            raise refuse_words(path, unlisted[0])
        return case

    def serve(self, cases: Sequence[PlayableCase]) -> AbstractContextManager[Engine]:
        """Return the scripted engine of these cases."""
        return nullcontext(ScriptedEngine(self.chat, seeded=oracle_team(cases, asks=bool(self.questions))))


def load_team(
    source: str | Path | None = None,
    *,
    stage: str | None = None,
    engine: str | None = None,
    seats: Sequence[str] | Mapping[str, str] | Seats = (),
    api: ApiOptions | None = None,
    questions: int | None = None,
) -> Team:
    """Return the scripted team for "scripted", else the team of the run, or the exported team, in `source`.

    `stage`: its weights after base, sft, grpo or marl; None: marl, or what was exported. `engine`:
    transformers or vllm, default the run's own. `seats` give seats other players: "cto=openai:MODEL@URL",
    "risk=scripted", "coo=run:RUN/STAGE", "all=...", or a dict such as {"all": "scripted"}; without `source`
    they must name all. `api`: how endpoints are asked.
    `questions`: most questions of ReconcileGPT per case; None: as the run was trained, one with full prompts.
    A scripted ReconcileGPT asks only where a number is given.

    Raises:
        UserError: no such run, unknown stage, engine, seat or player, no sound weights of the stage, a
            damaged folder.

    Examples:
        >>> load_team("scripted").label
        'scripted team'
        >>> load_team(seats=["all=scripted", "cto=scripted:lean"]).label
        'team of cto=scripted:lean, others scripted'
    """
    chosen = _read_seats(seats)
    if source is not None and not isinstance(source, str | Path):
        raise UserError(f'source {source!r} must be "scripted" or the folder of a run or an exported team')
    if questions is not None:
        check_number("questions", questions, 0)
    stage = stage or (DEFAULT_STAGE if source is None else find_stage(Path(source)))
    if chosen.players:
        return _seat_team(chosen, source, stage, engine, api or ApiOptions(), questions)
    if source is None:
        raise UserError('nobody plays: name a run, or "scripted", or players by seat')
    return _load_one(source, stage, engine, questions)


def _load_one(source: str | Path, stage: str, engine: str | None, questions: int | None) -> Team:
    if stage not in STAGES:
        raise unknown("stage", stage, list(STAGES))
    if str(source) == SCRIPTED:
        if engine is not None:
            raise UserError(f"engine {engine!r} goes with a run: the scripted team needs none")
        return ScriptedTeam(questions=questions)
    if not Path(source).exists() and difflib.get_close_matches(str(source), [SCRIPTED]):
        raise UserError(f"no run in {source}, and no such team; did you mean {SCRIPTED!r}?")
    return _load_run(Path(source), stage, engine, questions)


def _read_seats(seats: Sequence[str] | Mapping[str, str] | Seats) -> Seats:
    if isinstance(seats, Seats):
        return seats
    if isinstance(seats, str):
        raise UserError(f"seats {seats!r} must be a list or a dict: [{seats!r}]")
    return read_seats(
        [f"{seat}={player}" for seat, player in seats.items()] if isinstance(seats, Mapping) else seats
    )


def _load_run(path: Path, stage: str, engine: str | None, questions: int | None = None) -> "TrainedTeam":
    from emads.trained_team import load_trained_team

    return load_trained_team(path, stage, engine, questions)


def _seat_team(
    seats: Seats,
    source: str | Path | None,
    stage: str,
    engine: str | None,
    api: ApiOptions,
    questions: int | None,
) -> MixedTeam:
    """Return the team of these seats; whoever is not named is played by `source`."""
    if source is not None:
        seats = seats.or_else(ScriptPlayer() if str(source) == SCRIPTED else RunPlayer(Path(source), stage))
    for role in ROLES:
        seats.player_of(role)
    api.check([player for player in seats.players if isinstance(player, ApiPlayer)])
    check_habits(seats)
    runs = {
        player: _load_run(player.run, player.stage, engine)
        for player in seats.players
        if isinstance(player, RunPlayer)
    }
    return MixedTeam(
        seats=seats,
        api=api,
        runs=runs,
        home=next(iter(runs.values()), ScriptedTeam()),
        ledger=Ledger(budget=Budget(max_cost=api.max_cost)),
        questions=questions,
    )
