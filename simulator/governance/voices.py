"""The team's voices in a durable episode: every turn is recorded and none is sampled twice.

What a role was asked so far is in the state; what it answered, token for token, is in the effects ledger.
After a crash its transcript goes on from there, without a model call or a tool call.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from scenarios.team import parse_decision, parse_report, parse_vote
from scenarios.team.playable import PlayableCase
from simulator.agents.agent import Agent
from simulator.governance.store.database import digest_json
from simulator.governance.store.effects import EffectKey, EffectsLedger
from simulator.graph.seating import Seating
from simulator.observer import Observer
from simulator.records import Turn

_TURNS = TypeAdapter(tuple[Turn, ...])


class Voices:
    """Everybody at one table, in one thread."""

    def __init__(
        self,
        seating: Seating,
        scenario: PlayableCase,
        thread: str,
        ledger: EffectsLedger,
        observer: Observer | None = None,
    ) -> None:
        self._cast, self._scenario, self._thread, self._ledger = seating, scenario, thread, ledger
        self._observer, self._num_drafts = observer, 0
        self._session = f"{seating.stream}/{thread}"
        self._live: dict[str, tuple[list[str], Agent]] = {}  # role -> what it was asked, and its agent

    async def say(self, node: str, superstep: int, role: str, asked: Sequence[str]) -> str:
        """The role's answer to the last of `asked`; the others are what it was asked before, in order."""
        digests = [_digest(role, asked[: count + 1]) for count in range(len(asked))]
        key = EffectKey(
            thread=self._thread, node=f"{node}/{role}", superstep=superstep, input_digest=digests[-1]
        )
        known = self._ledger.recall(key)
        if known is None:
            agent = self._seat(role, list(asked[:-1]), digests[:-1])
            agent.observer = self._observer
            num_turns = len(agent.turns)
            text = await (agent.follow_up(asked[-1]) if len(asked) > 1 else agent.start(asked[-1]))
            self._live[role] = (list(asked), agent)
            turns = _TURNS.dump_python(agent.turns[num_turns:], mode="json")
            known = self._ledger.record(key, {"text": text, "turns": turns, **agent.account()})
            self._tell(node, role, text)
        return str(known["text"])

    def _tell(self, node: str, role: str, text: str) -> None:
        """Tell the observer what was said, with what it parses to."""
        if self._observer is None:
            return
        if node == "report":
            report = parse_report(self._scenario, text)
            self._observer.on_report(role, text, report and report.model_dump())
        elif node == "reconcile":
            self._num_drafts += 1
            decision = parse_decision(self._scenario, text)
            self._observer.on_decision(text, decision and decision.model_dump(), self._num_drafts)
        else:
            self._observer.on_vote(role, text, parse_vote(text))

    def end(self) -> None:
        """Give all sessions back to the engine."""
        self._cast.end_sessions(self._scenario, self._session)

    def _seat(self, role: str, heard: list[str], digests: list[str]) -> Agent:
        """The role's agent after what it heard: the live one, or one made from the recorded turns."""
        live_heard, agent = self._live.get(role, ([], None))
        if agent is not None and live_heard == heard:
            return agent
        recorded = self._ledger.results_by_input(self._thread, digests)
        turns = [turn for result in recorded for turn in _read_turns(role, result)]
        self._cast.engine.end_session(f"{self._session}/{role}")
        last = (recorded[-1] if recorded else None) or {}
        return self._cast.seat_after(
            role,
            self._scenario.seats.get(role),
            self._session,
            turns,
            num_tool_calls=last.get("num_tool_calls", 0),
            num_valid_tool_calls=last.get("num_valid_tool_calls", 0),
        )


def _read_turns(role: str, result: Any) -> tuple[Turn, ...]:
    if result is None:
        raise ValueError(f"the ledger lacks a turn of {role}: it does not belong to this checkpoint")
    return _TURNS.validate_python(result["turns"])


def _digest(role: str, asked: Sequence[str]) -> str:
    return digest_json({"role": role, "asked": list(asked)})
