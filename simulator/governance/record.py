"""The record of a governed episode, for export and for minutes, read from its thread's log.

No truth and no score is in a record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roles.team import RECONCILER
from scenarios.team.playable import PlayableCase
from simulator.governance.gate import Standing
from simulator.governance.log import Entry
from simulator.governance.outcomes import Observation
from simulator.governance.seals import NotApprovedError
from simulator.records import Episode, Question, Trajectory

if TYPE_CHECKING:  # the runner is heavy, and records alone need nothing of it
    from simulator.governance.runner import GovernanceServices, GovernedEpisode


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
class GateAnswer:
    """One display of a proposal at the gate, and how the gate settled it.

    Example: GateAnswer(shown_at_s=1, reviewer="ann", ruling="approve", reason="", option=None, feedback="",
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
    proposal: Mapping[str, Any]  # of `proposal.Proposal`
    answers: tuple[GateAnswer, ...]
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
    """

    episode: Episode  # reports, last draft and its votes, all turns
    thread: str
    status: str
    error: str | None
    accountable: str
    precedents: tuple[Mapping[str, Any], ...]
    chapters: tuple[Chapter, ...]
    undecided: tuple[Draft, ...]  # drafts that never reached the gate
    log: tuple[Entry, ...]  # this thread's, without what seats said
    is_log_sound: bool  # whether the thread's entries verify


@dataclass(slots=True)
class _Said:
    """What was said since the request before: reports, and drafts with their questions and votes."""

    reports: dict[str, str]
    drafts: list[Draft]


def read_record(
    case: PlayableCase, played: "GovernedEpisode", services: "GovernanceServices", *, stream: str
) -> GovernedRecord:
    """Read the record of a played thread; `stream` is the seating's."""
    entries = list(services.log.entries(played.thread))
    try:
        services.log.verify(played.thread)
        is_sound = True
    except NotApprovedError:
        is_sound = False
    said, undecided = _split_by_request(entries, list(case.seats))
    requested = [entry for entry in entries if entry.kind == "requested"]
    return GovernedRecord(
        episode=_read_episode(case, played, entries, stream),
        thread=played.thread,
        status=played.status,
        error=played.error,
        accountable=requested[-1].body["request"]["proposal"]["accountable"] if requested else "",
        precedents=tuple(played.state["precedents"]),
        chapters=_read_chapters(entries, services.gate.stand(played.thread) if is_sound else None, said),
        undecided=tuple(undecided.drafts),
        log=tuple(entry for entry in entries if entry.kind != "said"),
        is_log_sound=is_sound,
    )


def _read_episode(
    case: PlayableCase, played: "GovernedEpisode", entries: Sequence[Entry], stream: str
) -> Episode:
    spoken: dict[str, list[dict[str, Any]]] = {}
    last_votes: dict[str, str] = {}
    asked: list[Question] = []
    question = ""
    for entry in entries:
        body = entry.body
        if entry.kind == "replanned":
            asked = []
        if entry.kind != "said":
            continue
        spoken.setdefault(body["role"], []).append(body)
        if body["step"] == "reply":
            asked.append(Question(ask=question, reply=body["text"]))
        elif body["step"] == "reconcile":
            question, last_votes = body["text"], {}
        elif body["step"] == "vote":
            last_votes[body["role"]] = body["text"]
    reports = {role: [one["text"] for one in spoken[role] if one["step"] == "report"] for role in spoken}
    return Episode(
        scenario_key=case.key,
        index_in_group=0,
        trajectories={
            role: _join(role, f"{stream}/{played.thread}/{role}", spoken[role])
            for role in (*case.seats, RECONCILER)
            if role in spoken
        },
        reports={role: reports[role][-1] for role in case.seats if reports.get(role)},
        decision=spoken[RECONCILER][-1]["text"] if RECONCILER in spoken else "",
        votes={role: last_votes[role] for role in case.seats if role in last_votes},
        asked=tuple(asked),
        error=played.error,
    )


def _join(role: str, session: str, spoken: Sequence[Mapping[str, Any]]) -> Trajectory:
    """Join all turns of a role in a thread."""
    from simulator.governance.runner import TURNS

    last = spoken[-1]
    return Trajectory(
        role=role,
        session=session,
        turns=tuple(turn for one in spoken for turn in TURNS.validate_python(one["turns"])),
        num_tool_calls=last["num_tool_calls"],
        num_valid_tool_calls=last["num_valid_tool_calls"],
        ended_by=last["ended_by"],
        final_text=last["text"],
    )


def _split_by_request(entries: Sequence[Entry], seats: Sequence[str]) -> tuple[dict[str, _Said], _Said]:
    """Return what was said before each request, by its name, and what was said after the last."""
    found: dict[str, _Said] = {}
    said, questions, num_turns = _Said({}, []), list[Question](), 0
    for entry in entries:
        body = entry.body
        if entry.kind == "requested":
            found[body["interrupt_id"]], said = said, _Said({}, [])
        if entry.kind != "said":
            continue
        match body["step"]:
            case "report":
                said.reports[body["role"]] = body["text"]
                said.reports = {role: said.reports[role] for role in seats if role in said.reports}
            case "reconcile":
                num_turns += len(body["turns"])
                said.drafts.append(
                    Draft(
                        message=body["message"],
                        text=body["text"],
                        num_turns=num_turns,
                        asked=tuple(questions),
                        votes={},
                    )
                )
                questions, num_turns = [], 0
            case "reply" if said.drafts:  # what looked like a draft was a question
                question = said.drafts.pop()
                questions = [*question.asked, Question(ask=question.text, reply=body["text"])]
                num_turns = question.num_turns
            case "vote" if said.drafts:
                votes = {**said.drafts[-1].votes, body["role"]: body["text"]}
                in_order = {role: votes[role] for role in seats if role in votes}
                said.drafts[-1] = replace(said.drafts[-1], votes=in_order)
    return found, said


def _read_chapters(
    entries: Sequence[Entry], standing: Standing | None, said: Mapping[str, _Said]
) -> tuple[Chapter, ...]:
    """Return one chapter per displayed proposal; none of a log that was changed."""
    if standing is None:
        return ()
    by_digest: dict[str, list[Entry]] = {}
    for entry in standing.find("requested"):
        by_digest.setdefault(entry.body["digest"], []).append(entry)
    chapters = []
    for digest, shown in by_digest.items():
        before = said[shown[0].body["interrupt_id"]]
        observed = standing.find_observed(digest)
        proposal = shown[0].body["request"]["proposal"]
        chapters.append(
            Chapter(
                attempt=proposal["attempt"],
                reports=before.reports,
                drafts=tuple(before.drafts),
                digest=digest,
                proposal=proposal,
                answers=tuple(_read_answer(standing, entry) for entry in shown),
                is_committed=any(one.body["digest"] == digest for one in standing.find("committed")),
                delivered=tuple(standing.list_executed(digest)),
                observation=observed
                and {name: value for name, value in observed.items() if name in Observation.__annotations__},
                alerts=tuple(observed["alerts"]) if observed else (),
            )
        )
    return tuple(chapters)


def _read_answer(standing: Standing, shown: Entry) -> GateAnswer:
    interrupt_id = shown.body["interrupt_id"]
    settled, answer = standing.find_settled(interrupt_id), standing.find_answer(interrupt_id)
    return GateAnswer(
        shown_at_s=shown.at_s,
        reviewer=answer.body["reviewer"] if answer else "",
        ruling=settled["ruling"] if settled else "waiting",
        reason=settled["reason"] if settled else "",
        option=settled["option"] if settled else None,
        feedback=settled["feedback"] if settled else "",
        answered_at_s=answer.at_s if answer else None,
    )
