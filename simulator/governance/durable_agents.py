"""The agents of a durable episode: every turn is recorded and none is sampled twice.

What a role was asked so far is in the state; what it answered, token for token, is in the effects ledger.
After a crash its transcript goes on from there, without a model call or a tool call.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scenarios.team.playable import PlayableCase
from simulator.agents.agent import Agent
from simulator.game import TeamGame
from simulator.governance.context import Place, locate
from simulator.governance.gate.approvals import refuse
from simulator.governance.state import FullState
from simulator.governance.store.database import digest_json
from simulator.governance.store.effects import EffectKey, EffectsLedger
from simulator.graph.context import Reply, Step
from simulator.graph.seating import Seating
from simulator.graph.state import list_parsed
from simulator.observer import Observer
from simulator.records import Turn

_TURNS = TypeAdapter(tuple[Turn, ...])


class DurableAgents:
    """The agents of one thread."""

    def __init__(
        self,
        seating: Seating,
        scenario: PlayableCase,
        game: TeamGame,
        thread: str,
        ledger: EffectsLedger,
        *,
        observer: Observer | None = None,
        locate: Callable[[], Place] = locate,
    ) -> None:
        """`game`: of the thread's course, so that tools are those of the case as it stands."""
        self._seating, self._scenario, self._thread, self._ledger = seating, scenario, thread, ledger
        self._game = game
        self._observer, self._locate = observer, locate
        self._session = f"{seating.stream}/{thread}"
        self._live: dict[str, tuple[list[str], Agent]] = {}  # role -> what it was asked, and its agent

    async def ask(self, step: Step, role: str, message: str, state: FullState) -> Reply:
        """See TeamAgents.ask; an answer that the ledger holds is read there."""
        asked = [*state["asked"].get(role, []), message]
        digests = [_digest(role, asked[: count + 1]) for count in range(len(asked))]
        key = EffectKey(
            thread=self._thread,
            node=f"{step}/{role}",
            superstep=self._locate().superstep,
            input_digest=digests[-1],
        )
        known = self._ledger.recall(key)
        is_new = known is None
        if known is None:
            agent = self._seat(role, asked[:-1], digests[:-1])
            agent.observer = self._observer
            num_turns = len(agent.turns)
            agent.see(list_parsed(state["reports"]))
            text = await agent.answer(message)
            self._live[role] = (asked, agent)
            turns = _TURNS.dump_python(agent.turns[num_turns:], mode="json")
            known = self._ledger.record(key, {"text": text, "turns": turns, **agent.account()})
        return Reply(text=str(known["text"]), number=len(asked), is_new=is_new, asked=asked)

    def end(self) -> None:
        """Give all sessions back to the engine."""
        self._seating.end_sessions(self._scenario, self._session)

    def _seat(self, role: str, heard: list[str], digests: list[str]) -> Agent:
        """Return the role's agent after these messages: the live one, or one made from the recorded turns."""
        live_heard, agent = self._live.get(role, ([], None))
        if agent is not None and live_heard == heard:
            return agent
        recorded = self._ledger.results_by_input(self._thread, digests)
        turns = [turn for result in recorded for turn in read_turns(role, result)]
        self._seating.engine.end_session(f"{self._session}/{role}")
        last = (recorded[-1] if recorded else None) or {}
        return self._seating.resume_agent(
            role,
            self._game,
            self._session,
            turns,
            num_messages=len(heard),
            num_tool_calls=last.get("num_tool_calls", 0),
            num_valid_tool_calls=last.get("num_valid_tool_calls", 0),
        )


def read_turns(role: str, result: Any) -> tuple[Turn, ...]:
    """Return the turns of a recorded result.

    Raises:
        NotApprovedError: "tampered": there is none, or it was damaged.
    """
    try:
        return _TURNS.validate_python(result["turns"])
    except (TypeError, KeyError, ValidationError):
        refuse("tampered", f"the ledger lacks a turn of {role}, or it was damaged")


def _digest(role: str, asked: Sequence[str]) -> str:
    return digest_json({"role": role, "asked": list(asked)})
