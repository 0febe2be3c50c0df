"""Observers hear the events of an episode while it is played; without one nothing is done or measured.

An observer is told what roles write and read, never facts of the verifier: truth and scores are not here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from scenarios.team.playable import PlayableCase
from simulator.records import Turn


class Observer(Protocol):
    """Hears of one episode, in the order of events; the episode waits for every method."""

    def on_turn(self, role: str, turn: Turn, duration_s: float) -> None:
        """Hear that a role's completion came back, `duration_s` seconds after it was asked for."""

    def on_tool(self, role: str, call: str, observation: str) -> None:
        """Hear that a tool answered; `call` is the turn that called it, or one call of several."""

    def on_report(self, role: str, text: str, parsed: Any) -> None:
        """Hear that a specialist reported; `parsed` is None for a malformed report."""

    def on_ask(self, text: str, ask: Mapping[str, Any]) -> None:
        """Hear that ReconcileGPT asks a seat for another offer."""

    def on_reply(self, role: str, text: str, parsed: Any) -> None:
        """Hear the asked seat's reply; `parsed` is the offer that it adds, None where it adds none."""

    def on_decision(self, text: str, parsed: Any, round: int) -> None:
        """Hear that ReconcileGPT wrote its draft number `round`, from 1."""

    def on_vote(self, role: str, text: str, parsed: Any) -> None:
        """Hear a specialist's vote on the last draft; `parsed` is None for a malformed vote."""

    def on_governance(self, kind: str, body: Mapping[str, Any]) -> None:
        """Hear of a new entry in the decision log of a governed episode (see `decision_log.EntryKind`)."""

    def on_end(self, error: str | None) -> None:
        """Hear that the episode is over; `error` is its failure, None where there was none."""


Watch = Callable[[PlayableCase, str], Observer]  # (case, session of its episode)
_note_turn: ContextVar[Callable[[], None] | None] = ContextVar("who counts the turns", default=None)


@contextmanager
def counting_turns(note: Callable[[], None]) -> Iterator[None]:
    """While this is open, `note` is called after every turn of every agent that is played in it."""
    token = _note_turn.set(note)
    try:
        yield
    finally:
        _note_turn.reset(token)


def note_turn() -> None:
    """Tell whoever counts turns of one more."""
    if (note := _note_turn.get()) is not None:
        note()


@contextmanager
def watched(watch: Watch | None, case: PlayableCase, session: str) -> Iterator[Observer | None]:
    """Yield an episode's observer; it hears of the end even after a failure."""
    if watch is None:
        yield None
        return
    observer = watch(case, session)
    try:
        yield observer
    except BaseException as error:
        observer.on_end(str(error) or type(error).__name__)
        raise
    observer.on_end(None)
