"""The record of a governed episode, for export and for minutes, read from its thread's log; and its score.

No truth and no score is in a record. It is scored by the world that its plans met, with the truth in
`outcomes`: the team reward of what is in place at its end; pure, never in the graph.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from roles.team import NO_OPTION, RECONCILER
from scenarios.execution import look_back, value_situation
from scenarios.team import judge_decision
from scenarios.team.playable import PlayableCase
from simulator.governance.gate import Display, Standing
from simulator.governance.log import Entry
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes, read_plan
from simulator.governance.proposal import Proposal
from simulator.governance.seals import NotApprovedError
from simulator.reading import read_episode
from simulator.records import Episode, Question, Trajectory
from simulator.reward import TeamRewardWeights, TeamVerdict, combine_parts, list_right_votes

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
    accountable: str  # of the latest plan
    precedents: tuple[Mapping[str, Any], ...]
    chapters: tuple[Chapter, ...]  # none of a log that was changed
    undecided: tuple[Draft, ...]  # drafts that never reached the gate
    log: tuple[Entry, ...]  # this thread's, without what seats said
    is_log_sound: bool  # whether the thread's entries verify


@dataclass(slots=True)
class _Said:
    """Words since the previous request: reports by seat, and drafts with their questions and votes."""

    reports: dict[str, str] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)


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
    standing = services.gate.stand(played.thread) if is_sound else Standing(played.thread, [])
    return GovernedRecord(
        episode=_read_episode(case, played, entries, stream),
        thread=played.thread,
        status=played.status,
        error=played.error,
        accountable=standing.latest.proposal.accountable if standing.displays else "",
        precedents=tuple(played.state["precedents"]),
        chapters=tuple(_read_chapters(standing, said)),
        undecided=tuple(undecided.drafts),
        log=tuple(entry for entry in entries if entry.kind != "said"),
        is_log_sound=is_sound,
    )


def _read_episode(
    case: PlayableCase, played: "GovernedEpisode", entries: Sequence[Entry], stream: str
) -> Episode:
    spoken: dict[str, list[dict[str, Any]]] = {}
    reports: dict[str, str] = {}
    votes: dict[str, str] = {}  # on the last draft
    asked: list[Question] = []
    decision = ""
    for entry in entries:
        role, text = entry.body.get("role", ""), entry.body.get("text", "")
        match entry.kind, entry.body.get("step"):
            case "replanned", _:
                asked = []
            case "said", "report":
                reports[role] = text
            case "said", "reconcile":
                decision, votes = text, {}
            case "said", "reply":
                asked.append(Question(ask=decision, reply=text))
            case "said", "vote":
                votes[role] = text
        if entry.kind == "said":
            spoken.setdefault(role, []).append(entry.body)
    return Episode(
        scenario_key=case.key,
        index_in_group=0,
        trajectories={
            role: _join(role, f"{stream}/{played.thread}/{role}", spoken[role])
            for role in (*case.seats, RECONCILER)
            if role in spoken
        },
        reports={role: reports[role] for role in case.seats if role in reports},
        decision=decision,
        votes={role: votes[role] for role in case.seats if role in votes},
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
    said, questions, num_turns = _Said(), list[Question](), 0
    for entry in entries:
        body = entry.body
        if entry.kind == "requested":
            found[body["interrupt_id"]], said = said, _Said()
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


def _read_chapters(standing: Standing, said: Mapping[str, _Said]) -> Iterator[Chapter]:
    """Yield one chapter per displayed proposal."""
    by_digest: dict[str, list[Display]] = {}
    for display in standing.displays:
        by_digest.setdefault(display.digest, []).append(display)
    for digest, shown in by_digest.items():
        before = said[shown[0].interrupt_id]
        observed = next((display.observed for display in shown if display.observed is not None), None)
        proposal = shown[0].entry.body["request"]["proposal"]
        yield Chapter(
            attempt=proposal["attempt"],
            reports=before.reports,
            drafts=tuple(before.drafts),
            digest=digest,
            proposal=proposal,
            answers=tuple(map(_read_answer, shown)),
            is_committed=any(display.is_committed for display in shown),
            delivered=tuple(role for display in shown for role in display.executed),
            observation=observed
            and {name: value for name, value in observed.items() if name in Observation.__annotations__},
            alerts=tuple(observed["alerts"]) if observed else (),
        )


def _read_answer(display: Display) -> GateAnswer:
    answer = display.answer
    return GateAnswer(
        shown_at_s=display.entry.at_s,
        reviewer=answer.body["reviewer"] if answer else "",
        ruling=display.ruling,
        reason=display.refusal,
        option=display.option,
        feedback=answer.body["feedback"] if answer else "",
        answered_at_s=answer.at_s if answer else None,
    )


def list_carried(record: GovernedRecord) -> list[CarriedPlan]:
    """Return the plans that were carried out, in order."""
    carried = [chapter.proposal for chapter in record.chapters if chapter.observation is not None]
    return [read_plan(Proposal.model_validate(dict(proposal))) for proposal in carried]


def value_plans(record: GovernedRecord, outcomes: SimulatedOutcomes) -> list[float]:
    """Return what is in place after each carried-out plan, valued in hindsight, in [0, 1]."""
    plans = list_carried(record)
    return [value_situation(outcomes.world, outcomes.follow(plans[:end])) for end in range(1, len(plans) + 1)]


def score_governed(
    record: GovernedRecord, outcomes: SimulatedOutcomes, weights: TeamRewardWeights
) -> TeamVerdict:
    """Score a closed episode: R = V (1 + c C) / (1 + c) - k U - h H as for `assess`, with

    - V what is in place at the end, as a share of what could be reached in this world from budget and
      reserve; how many plans there were does not count. Handing the case over is worth 1 where no option
      could be run from the beginning, else 0;
    - C the seats that rightly accept or object to the last draft, by what they could know; a seat that the
      house does not ask (routine drafts, escalations) has accepted;
    - U the seats whose hard limit is broken in the end;
    - H needless or missed escalation of the last draft on the case that it was made on.
    A last draft that does not reach execution as written (malformed, or not to be run, or rejected) has V 0
    and H 1, and U of what it names: the least of the case where it is malformed.

    Raises:
        ValueError: the episode ended in an infrastructure fault, or before a proposal.
    """
    if record.error is not None or not record.chapters:
        raise ValueError(f"an episode without an outcome has no reward: {record.error or record.status}")
    last = record.chapters[-1]
    scenario = outcomes.continue_case(list_carried(record)[: last.attempt])  # that the plan was made on
    read = read_episode(scenario, record.episode)
    decision, judged = read.decision, judge_decision(scenario, read.table, read.decision)
    is_carried = decision is not None and last.is_committed and last.proposal["option"] == decision.option
    value, unresolved = 0.0, len(judged.broken_limits) / len(scenario.seats)
    if is_carried and decision is not None and decision.escalate:
        is_lost = last.attempt == 0 and scenario.optimum is None
        value = float(is_lost or look_back(outcomes.world).best is None)
    elif is_carried:
        value = value_plans(record, outcomes)[-1]
        unresolved = sum(kpi < 100 for kpi in last.kpis.values()) / len(scenario.seats)
    given = {seat: read.votes[seat] if seat in record.episode.votes else "accept" for seat in scenario.seats}
    consensus = len(list_right_votes(scenario, replace(read, votes=given))) / len(given)
    escalation = float(not is_carried or judged.escalation_fault)
    return TeamVerdict(
        reward=combine_parts(value, consensus, unresolved, escalation, weights),
        value=value,
        consensus=consensus,
        unresolved=unresolved,
        escalation=escalation,
        explanation=_explain(last, value),
    )


def open_episode(record: GovernedRecord) -> Episode:
    """Return the episode up to the first proposal: reports, questions, last draft and votes on it."""
    if not record.chapters or not record.chapters[0].drafts:
        return record.episode
    first = record.chapters[0]
    draft = first.drafts[-1]
    asked = tuple(question for one in first.drafts for question in one.asked)
    return replace(record.episode, reports=first.reports, asked=asked, decision=draft.text, votes=draft.votes)


def _explain(last: Chapter, value: float) -> str:
    option = last.proposal["option"]
    what = "handed over" if option == NO_OPTION else f"option {option}"
    in_place = "" if last.observation is None else f", {last.observation['worth']} k$ in place"
    return f"{what} with plan {last.attempt + 1}{in_place}: value in hindsight {value:.2f}"
