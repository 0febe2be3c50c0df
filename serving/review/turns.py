"""Turns that people take at the table in the browser: what a seat has heard, and what its person answered.

They are lines of one file beside the gate's store: the simulation adds turns and waits, the review app adds
answers. A turn is named by all that its seat has heard, so a simulation that was stopped asks the same turn
again and finds the answer given meanwhile. The first answer counts, and whoever gives a seat's first one in a
case plays it to the end. Answers are under the seal of the store's key: nobody else speaks for a person.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from roles.base import Role
from roles.errors import UserError
from simulator.chat import Said, Speaker, read_opening
from simulator.governance.seals import digest_json, find_key, is_sealed, seal
from simulator.line_files import LineFile, read_lines


class _TurnRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SeatTurn(_TurnRecord):
    """One turn of a seat that a person plays.

    Example: SeatTurn(session="s/t1/coo", seat="coo", heard=(("system", "{...}"), ("user", "Report."),),
                      most_chars=16383)
    """

    session: str  # of the engine: stream, thread and seat
    seat: str
    heard: tuple[tuple[Speaker, str], ...]  # the whole transcript, the opening first
    most_chars: int  # of the answer

    @cached_property
    def id(self) -> str:
        """Name of the turn in addresses: 16 hexadecimal digits."""
        return digest_json([self.session, self.seat, self.heard])[:16]

    @cached_property
    def opening(self) -> tuple[Role, bool]:
        """The seat as it was introduced, and whether with its tools."""
        return read_opening(self.heard[0][1])


class SeatAnswer(_TurnRecord):
    """An answer of a person.

    Example: SeatAnswer(turn="9f...", text='{"vote": "accept"}', person="ann", time=time_now(), seal="4c...")
    """

    turn: str  # id
    text: str
    person: str
    time: AwareDatetime
    seal: str  # over turn, text and person


class _TurnLine(_TurnRecord):
    turn: SeatTurn | None = None
    answer: SeatAnswer | None = None


class SeatDesk:
    """The turns of one store; both processes read what the other has added."""

    def __init__(self, store: Path) -> None:
        """
        Raises:
            UserError: no key of the store can be used, see `find_key`.
        """
        self._key = find_key(store.with_name(f"{store.name}.key"))
        self.path = store.with_name(f"{store.name}.seats.jsonl")
        self._size, self._turns, self._answers = -1, dict[str, SeatTurn](), dict[str, SeatAnswer]()

    def ask(self, turn: SeatTurn) -> None:
        """Add a turn that is not there yet; it is on disk when this returns."""
        if turn.id not in self.list_turns():
            self._add(_TurnLine(turn=turn))

    def answer(self, turn: SeatTurn, text: str, person: str, time: datetime) -> None:
        """Add an answer to a turn; it is on disk when this returns. The first one counts."""
        sealed = seal(self._key, "seat", [turn.id, text, person])
        self._add(
            _TurnLine(answer=SeatAnswer(turn=turn.id, text=text, person=person, time=time, seal=sealed))
        )

    def list_turns(self) -> Mapping[str, SeatTurn]:
        """Return all turns by id, oldest first."""
        self._refresh()
        return self._turns

    def find_answer(self, turn_id: str) -> SeatAnswer | None:
        """Return the answer to a turn; None while there is none."""
        self._refresh()
        return self._answers.get(turn_id)

    def find_person(self, turn: SeatTurn) -> str | None:
        """Return who plays the turn's seat in its case; None before the first answer."""
        self._refresh()
        of_seat = (one.id for one in self._turns.values() if one.session == turn.session)
        return next((self._answers[one].person for one in of_seat if one in self._answers), None)

    def _add(self, line: _TurnLine) -> None:
        self.path.touch(mode=0o600)  # a seat's briefs are in it
        with LineFile(self.path) as file:
            file.add(line.model_dump_json(exclude_none=True).encode())

    def _refresh(self) -> None:
        size = self.path.stat().st_size if self.path.exists() else 0
        if size == self._size:
            return
        self._size, self._turns, self._answers = size, {}, {}
        for number, content in enumerate(read_lines(self.path), start=1):
            try:
                line = _TurnLine.model_validate_json(content)
            except ValidationError:
                raise UserError(
                    f"{self.path}:{number} is no turn of a seat; mend or remove the line"
                ) from None
            if line.turn is not None:
                self._turns.setdefault(line.turn.id, line.turn)
            if line.answer is not None:
                told = [line.answer.turn, line.answer.text, line.answer.person]
                if not is_sealed(self._key, "seat", told, line.answer.seal):
                    raise UserError(f"{self.path}:{number} was not written with this key; remove the line")
                self._answers.setdefault(line.answer.turn, line.answer)


def make_turn(session: str, seat: str, said: list[Said], most_chars: int) -> SeatTurn:
    """Return the turn of a transcript."""
    heard = tuple((one.speaker, one.text) for one in said)
    return SeatTurn(session=session, seat=seat, heard=heard, most_chars=most_chars)
