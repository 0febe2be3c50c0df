"""The record of a governed episode, for export and for minutes.

`governed_reading` reads it from a store. No truth and no score is in a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.governance.store.decision_log import Entry
from simulator.records import Episode, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One draft of ReconcileGPT and the votes on it.

    Example: Draft(message="Option A: ...", text='{"option": "B", "fund": ["cto"], "escalate": false}',
                   num_turns=1, asked=(), votes={"cto": '{"vote": "accept"}'})
    """

    message: str
    text: str
    num_turns: int  # of ReconcileGPT, tool calls and questions included
    asked: tuple[Question, ...]  # what ReconcileGPT asked before it, and the seats' replies
    votes: Mapping[str, str]  # empty: not voted on


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One display of a proposal at the gate, and how the gate settled it.

    Example: Answer(shown_at_s=1, reviewer="ann", ruling="approve", reason="", option=None, feedback="",
                    answered_at_s=2)
    """

    shown_at_s: int | None
    reviewer: str  # "" while it is open
    ruling: str  # approve, edit, reject, refused (did not count), waiting
    reason: str  # of a refusal
    option: str | None  # the reviewer's own, after an edit
    feedback: str
    answered_at_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One proposal: the reports and drafts before it, the rulings on it, and the outcome of its execution."""

    attempt: int  # 0 the first plan, then re-plans
    reports: Mapping[str, str]  # seat -> what it reported since the chapter before
    drafts: tuple[Draft, ...]  # empty: the reviewer's own option
    digest: str
    proposal: Mapping[str, Any]  # of `approvals.Proposal`
    answers: tuple[Answer, ...]
    is_committed: bool
    delivered: tuple[str, ...]  # seats
    observation: Mapping[str, Any] | None  # of `outcomes.Observation`; None: nothing observed
    alerts: tuple[str, ...]

    @property
    def kpis(self) -> Mapping[str, int]:
        """Seat -> percent of its hard limit; empty: nothing observed."""
        return {} if self.observation is None else self.observation["kpis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedRecord:
    """The whole record of one governed episode.

    Example: read_record(case, played, services, stream="s").chapters[0].answers[0].ruling == "approve"
    (`read_record` is in `governed_reading`)
    """

    episode: Episode  # reports, last draft and its votes, all turns
    thread: str
    status: str
    error: str | None
    accountable: str
    precedents: tuple[Mapping[str, Any], ...]
    chapters: tuple[Chapter, ...]
    undecided: tuple[Draft, ...]  # drafts that never reached the gate
    log: tuple[Entry, ...]  # this thread's
    is_log_sound: bool  # whether the whole store's chain verifies
