"""The inbox: seats to play, plans that wait at the gate and answers to judge, with the state of each."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from evaluation.minutes.governed import find_ruling, say_time
from evaluation.minutes.words import Tone, visible
from roles.team import NO_OPTION
from serving.review.room import Room
from serving.review.turns import SeatTurn
from simulator.governance.proposal import ReviewRequest
from training.feedback.labels import Label, QueuedItem, resolve_labels

RowKind = Literal["seat", "approval", "answer"]
RowState = Literal["waiting", "disputed", "done"]
KINDS: tuple[RowKind, ...] = get_args(RowKind)
STATES: tuple[RowState, ...] = get_args(RowState)
MOST_ROWS = 500
MAX_FACT_CHARS = 120  # of what was last said to a seat


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """One line of the inbox.

    Example: InboxRow(kind="approval", id="9f2c", link="/approvals/9f2c", title="Bank case",
                      key="team/test/0/7/2", state="waiting", word="waits", tone="warn", facts="option B",
                      risk=4, since="2026-01-01 00:00:00 UTC")
    """

    kind: RowKind
    id: str
    link: str
    title: str
    key: str  # of the case
    state: RowState  # for the reviewer that looks
    word: str  # the state in words
    tone: Tone
    facts: str
    risk: int | None
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Choice of the rows that are shown. Example: Filters(state="waiting", kind="", words="bank")"""

    state: str = "waiting"  # of STATES; "" for all
    kind: str = ""  # of KINDS; "" for all
    words: str = ""  # all of them are in title, key or facts

    def fits(self, row: InboxRow) -> bool:
        """Return whether the row is shown."""
        text = f"{row.title} {row.key} {row.facts}".casefold()
        return (
            self.state in ("", row.state)
            and self.kind in ("", row.kind)
            and all(word in text for word in self.words.casefold().split())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemState:
    """Progress of an item of the queue.

    Example: ItemState(state="waiting", word="1 of 2 labels", tone="warn", may_adjudicate=False)
    """

    state: RowState
    word: str
    tone: Tone
    may_adjudicate: bool  # the reviewer that looks may decide between the others


def list_rows(room: Room, reviewer: str) -> list[InboxRow]:
    """Return all rows as this reviewer sees them: what waits first, of that seats, then plans by risk."""
    rows = [*_list_turns(room, reviewer), *_list_approvals(room, reviewer), *_list_answers(room, reviewer)]
    rows.sort(key=lambda row: (STATES.index(row.state), KINDS.index(row.kind), -(row.risk or 0)))
    return rows[:MOST_ROWS]


def make_version(rows: Sequence[InboxRow]) -> str:
    """Return a name for what is shown, so that a page asks only for what has changed."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def judge_item(room: Room, item: QueuedItem, reviewer: str) -> ItemState:
    """Return how far an item is for this reviewer."""
    return judge_labels(room.labels_of(item), reviewer, room.settings.labels_per_item)


def judge_labels(labels: Sequence[Label], reviewer: str, labels_per_item: int) -> ItemState:
    """Return how far an item with these labels is. Labels of different kinds are never compared."""
    authors = {label.reviewer for label in labels}
    resolved = resolve_labels(labels)
    if resolved.disputed and len(authors) >= labels_per_item:
        return ItemState(
            state="disputed",
            word="reviewers disagree",
            tone="bad",
            may_adjudicate=reviewer not in authors,
        )
    wanted = max(labels_per_item, 1)
    if len(authors) >= wanted or any(label.adjudicates for label in labels):
        return ItemState(state="done", word="labelled", tone="good", may_adjudicate=False)
    if reviewer in authors:
        word = f"labelled by you, {len(authors)} of {wanted}"
        return ItemState(state="done", word=word, tone="", may_adjudicate=False)
    word = "waits" if wanted == 1 else f"{len(authors)} of {wanted} labels"
    return ItemState(state="waiting", word=word, tone="warn", may_adjudicate=False)


def judge_turn(room: Room, turn: SeatTurn, reviewer: str) -> ItemState:
    """Return how far a turn of a seat is for this reviewer; whoever began to play the seat goes on."""
    person = room.seats.find_person(turn)
    state: RowState = "waiting"
    word, tone = "the table waits for it", "warn"
    if room.seats.find_answer(turn.id) is not None:
        state, word, tone = "done", f"answered by {visible(person or '')}", "good"
    elif person not in (None, reviewer):
        state, word, tone = "done", f"{visible(person or '')} plays this seat", ""
    return ItemState(state=state, word=word, tone=tone, may_adjudicate=False)


def _list_turns(room: Room, reviewer: str) -> Iterator[InboxRow]:
    """Yield a row for every turn of a seat that a person plays, the newest first."""
    for turn in reversed(list(room.seats.list_turns().values())):
        found = judge_turn(room, turn, reviewer)
        yield InboxRow(
            kind="seat",
            id=turn.id,
            link=f"/seats/{turn.id}",
            title=f"{turn.opening[0].title}'s turn",
            key=visible((room.find_case(turn) or ("", turn.session))[1]),
            state=found.state,
            word=found.word,
            tone=found.tone,
            facts=visible(turn.heard[-1][1].partition("\n")[0], max_chars=MAX_FACT_CHARS),
            risk=None,
            since="",
        )


def _list_approvals(room: Room, reviewer: str) -> Iterator[InboxRow]:
    """Yield a row for every request, the newest first; what may be ruled on the gate alone says."""
    services = room.services
    for interrupt_id in services.gate.list_requests()[:MOST_ROWS]:
        request = room.read_request(interrupt_id)
        if request is None:
            continue
        standing = services.gate.stand(request.thread)
        display = standing.find(interrupt_id)
        if display is None:
            continue
        state: RowState = "done"
        if display is standing.open_display:
            state, word, tone = "waiting", "waits", "warn"
            authors = [answer.body["reviewer"] for answer in display.answers]
            if reviewer in authors:
                state, word, tone = "done", "approved by you, a second is needed", ""
            elif authors:
                word = "one approval, a second is needed"
        else:
            word, tone = find_ruling("superseded" if display.ruling == "waiting" else display.ruling)
            if display.answer is not None:
                word += f" by {visible(str(display.answer.body['reviewer']))}"
        yield _make_approval_row(request, state, word, tone, say_time(display.entry.at_s))


def _make_approval_row(
    request: ReviewRequest, state: RowState, word: str, tone: Tone, since: str
) -> InboxRow:
    proposal = request.proposal
    plan = (
        "handed to you: the team has no plan"
        if proposal.option == NO_OPTION
        else f"option {visible(proposal.option)},"
        f" {visible(proposal.words.meanings.get(proposal.option, 'no words were given'))};"
        f" cost {proposal.cost} of {proposal.budget} k$,"
        f" worth {proposal.worth} k$"
    )
    again = f"; re-plan {proposal.attempt}" if proposal.attempt else ""
    again += f"; revision {proposal.revision}" if proposal.revision else ""
    return InboxRow(
        kind="approval",
        id=request.interrupt_id,
        link=f"/approvals/{request.interrupt_id}",
        title=visible(proposal.words.title),
        key=visible(proposal.case),
        state=state,
        word=word,
        tone=tone,
        facts=f"{plan}; {proposal.decision_type}{again}",
        risk=proposal.risk_score,
        since=since,
    )


def _list_answers(room: Room, reviewer: str) -> Iterator[InboxRow]:
    for item in room.list_items().values():
        found = judge_item(room, item, reviewer)
        yield InboxRow(
            kind="answer",
            id=item.id,
            link=f"/answers/{item.id}",
            title=visible(item.title),
            key=visible(item.case),
            state=found.state,
            word=found.word,
            tone=found.tone,
            facts=f"{', '.join(item.reasons)}; margin {item.margin:.2f}",
            risk=None,
            since="",
        )
