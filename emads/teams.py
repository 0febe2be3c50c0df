"""Teams that play cases: a run's trained team, or scripted experts that need no run.

Importing this module imports no torch; loading a trained team does.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from roles.errors import UserError, unknown
from scenarios.team import TeamScenario, generate
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.reward import TeamRewardWeights

SCRIPTED = "scripted"
STAGES = ("base", "sft", "grpo", "marl")
SCRIPTED_DIFFICULTIES = (1, 2)
SCRIPTED_ANSWER_TOKENS = 300  # a token of the scripted team is a character


class Team(Protocol):
    """Whoever plays: one policy per role, and how its prompts and answers are read.

    Example: load_team("scripted").label == "scripted team"
    """

    @property
    def label(self) -> str:
        """Names the team in minutes."""
        ...

    @property
    def stream(self) -> str:
        """Begins the names of its sessions; the same stream samples the same."""
        ...

    @property
    def chat(self) -> Chat: ...

    @property
    def sampling(self) -> Sampling: ...

    @property
    def rounds(self) -> int:
        """Rounds of votes at most, in the protocol `assess`."""
        ...

    @property
    def weights(self) -> TeamRewardWeights: ...

    def draw_case(self, index: int) -> TeamScenario:
        """Return the test scenario of this index."""
        ...

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case as this team reads it.

        Raises:
            UserError: a damaged file, or a case that this team cannot play.
        """
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

    def draw_case(self, index: int) -> TeamScenario:
        """Return the test scenario of this index, of difficulty 1 and 2 in turn."""
        return generate("test", 0, index, SCRIPTED_DIFFICULTIES[index % len(SCRIPTED_DIFFICULTIES)])

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case.

        Raises:
            UserError: a damaged file, or a seat that gives words alone.
        """
        case = read_case(path)
        for role, seat in case.seats.items():
            if not seat.facts:
                raise UserError(
                    f"{path}: seats.{role} gives words alone, and the scripted experts read figures;"
                    " add stakes, limit and utilities, or play it with a run whose model reads words"
                )
        return case

    def serve(self, cases: Sequence[PlayableCase]) -> AbstractContextManager[Engine]:
        """Return the scripted engine of these cases."""
        return nullcontext(ScriptedEngine(self.chat, seeded=oracle_team(cases)))


def load_team(source: str | Path, *, stage: str = "marl", engine: str | None = None) -> Team:
    """Return the scripted team for "scripted", else the team of the run in the folder `source`.

    `stage`: its weights after base, sft, grpo or marl. `engine`: transformers or vllm, default the run's own.

    Raises:
        UserError: no such run, unknown stage or engine, no sound weights of the stage.

    Examples:
        >>> load_team("scripted").label
        'scripted team'
    """
    if stage not in STAGES:
        raise unknown("stage", stage, list(STAGES))
    if str(source) == SCRIPTED:
        if engine is not None:
            raise UserError(f"engine {engine!r} goes with a run: the scripted team needs none")
        return ScriptedTeam()
    from emads.trained_team import load_trained_team

    return load_trained_team(Path(source), stage, engine)
