"""Puts into words what the seats of an episode read, looked up, offered, asked, decided and voted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.minutes.episode_in_words import MAX_BRIEF_CHARS, name_option, say_call, say_titles
from evaluation.minutes.table_in_words import OfferLine, list_bill, list_struck, make_offer_line
from evaluation.minutes.transcript import NOTHING, find_shared_lines, readable, visible
from roles.base import AnswerError, Role
from roles.team import RECONCILER, Decision
from scenarios.base import ToolCall
from scenarios.team import PlanGame, PlayableCase, Table, TeamScenario
from scenarios.team.experts import best_vote
from scenarios.team.reading import read_ask, read_decision, read_reply, read_vote
from scenarios.team.value import funded_plan
from scenarios.team.verdicts import verify_report
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange
from simulator.reading import ReadEpisode
from simulator.records import Episode, Question

Talk = Mapping[str, Sequence[Exchange]]  # role -> its transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One seat's brief, tool calls and report in words."""

    title: str  # of the role
    read: str  # without what all seats read
    known: str  # all that its tools could tell it; "" where nothing more
    notes: str  # its words, where it did not read them itself
    lookups: tuple[tuple[str, str], ...]  # tool call in words, observation
    is_valid: bool
    offers: tuple[OfferLine, ...]  # that stand
    limits: str  # what it says of its hard limit
    note: str  # its words for ReconcileGPT
    struck: tuple[str, ...]  # false claims
    written: str
    is_cut_off: bool
    own_verdict: str  # the report's own verdict; "" without truth


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOffer:
    """A question of ReconcileGPT and the seat's reply.

    Example: AskedOffer(question="asks CTO for another offer on A that costs at most 15 k$",
                        reply="CTO adds faster switch: cost 15, worth 22")
    """

    question: str
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One seat's vote on a draft.

    Example: Vote(title="CTO", vote="accepts", reason="", tone="good", rightness="wrong")
    """

    title: str  # of the role
    vote: str
    reason: str
    tone: str  # "good" for an acceptance, else "bad"
    rightness: str  # "right", "wrong", or "" without truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """One draft of ReconcileGPT and the votes on it."""

    heard: str  # what ReconcileGPT read for it
    lookups: tuple[tuple[str, str], ...]
    spoken: str  # the draft as the end of a sentence; "" where it is not valid
    bill: tuple[tuple[str, str], ...]  # what the plan consists of, line by line
    reason: str
    conflicts: tuple[str, ...]  # as it sees them
    written: str
    votes: tuple[Vote, ...]


def list_speeches(
    case: PlayableCase, episode: Episode, read: ReadEpisode, talk: Talk, roles: Mapping[str, Role]
) -> list[Speech]:
    """Put every seat's brief, tool calls and report into words; what all read stands with the case."""
    game = PlanGame(case)
    briefs = {
        role: talk[role][0].message if talk.get(role) else game.write_report_brief(role)
        for role in case.seats
    }
    num_shared = len(find_shared_lines(list(briefs.values())))
    return [
        _make_speech(case, episode, read, role, _cut(briefs[role], num_shared), talk.get(role, ()), roles)
        for role in case.seats
    ]


def _cut(text: str, num_lines: int) -> str:
    return "\n".join(text.split("\n")[num_lines:]).strip()


def _make_speech(
    case: PlayableCase,
    episode: Episode,
    read: ReadEpisode,
    role: str,
    brief: str,
    talk: Sequence[Exchange],
    roles: Mapping[str, Role],
) -> Speech:
    text, report = episode.reports.get(role, ""), read.table.get(role)
    notes = case.notes.get(role, "") if isinstance(case, FreeCase) else ""
    path = episode.trajectories.get(role)
    own = verify_report(case, role, text) if isinstance(case, TeamScenario) and text else None
    limits = [f"{option} cannot be run without a part of it" for option in (report.needs if report else ())]
    limits += [f"{option} breaks its limit whatever it buys" for option in (report.veto if report else ())]
    return Speech(
        title=say_titles([role], roles),
        read=visible(brief, max_chars=MAX_BRIEF_CHARS),
        known=_list_known(case, role, brief),
        notes="" if notes in brief else visible(notes, max_chars=MAX_BRIEF_CHARS),
        lookups=_list_lookups(talk[:1]),
        is_valid=report is not None,
        offers=tuple(make_offer_line(o, report, read.plan) for o in (report.offers if report else ()))
        if report
        else (),
        limits=visible("; ".join(limits)),
        note=visible(report.note) if report else "",
        struck=tuple(list_struck(report)),
        written=_as_written(text),
        is_cut_off=path is not None and path.truncated,
        own_verdict=f"{own.reward:.2f} by its own verifier: {own.explanation}" if own else "",
    )


def _list_known(case: PlayableCase, role: str, brief: str) -> str:
    game, structures = PlanGame(case), case.seats[role].facts.get("structures", {})
    told = {
        o: game.call_tool(role, ToolCall(name="describe", arguments={"option": o}), {}) for o in structures
    }
    new = (f"Option {option}\n{text}" for option, text in told.items() if text not in brief)
    return visible("\n".join(new), max_chars=MAX_BRIEF_CHARS)


def _list_lookups(talk: Sequence[Exchange]) -> tuple[tuple[str, str], ...]:
    return tuple((say_call(call), visible(told)) for one in talk for call, told in one.tool_calls)


def list_asked(case: PlayableCase, asked: Sequence[Question], roles: Mapping[str, Role]) -> list[AskedOffer]:
    """Put the questions of ReconcileGPT and the replies into words."""
    return [_make_asked(case, one, roles) for one in asked]


def _make_asked(case: PlayableCase, one: Question, roles: Mapping[str, Role]) -> AskedOffer:
    try:
        ask = read_ask(case.public, one.ask).ask
    except AnswerError:
        return AskedOffer(question=f"asks: {readable(one.ask)}", reply=readable(one.reply))
    title = say_titles([ask.seat], roles)
    question = f"asks {title} for another offer on {ask.option} that costs at most {ask.cost_at_most} k$"
    try:
        offer = read_reply(one.reply).offer
    except AnswerError:
        return AskedOffer(question=question, reply=f"{title} says nothing valid: {readable(one.reply)}")
    if offer is None:
        return AskedOffer(question=question, reply=f"{title} has none")
    what = visible(f"{', '.join(offer.part)}: cost {offer.cost}, worth {offer.worth}")
    return AskedOffer(question=question, reply=f"{title} offers {what}")


def list_ballots(
    case: PlayableCase, episode: Episode, read: ReadEpisode, talk: Talk, roles: Mapping[str, Role]
) -> list[Ballot]:
    """Return every draft with the votes on it; the last one alone where the talk is not known."""
    if not episode.decision and not episode.trajectories:
        return []
    said = talk.get(RECONCILER) or [Exchange(message="", tool_calls=(), answer=episode.decision)]
    drafts = [one for one in said if not _is_question(case, one.answer)]
    votes_of = {role: _list_votes(case, role, talk.get(role, ())) for role in case.seats}
    made = []
    for number, draft in enumerate(drafts, 1):
        votes = {role: texts[number - 1] for role, texts in votes_of.items() if len(texts) >= number}
        if number == len(drafts):
            votes = dict(episode.votes)
        made.append(
            make_ballot(case, read.table, draft.message, draft.answer, votes, roles, draft.tool_calls)
        )
    return made


def _is_question(case: PlayableCase, text: str) -> bool:
    try:
        read_ask(case.public, text)
    except AnswerError:
        return False
    return True


def _list_votes(case: PlayableCase, role: str, talk: Sequence[Exchange]) -> list[str]:
    """Return what the seat answered when it was asked to vote."""
    return [one.answer for one in talk[1:] if not _is_reply(one.answer)]


def _is_reply(text: str) -> bool:
    try:
        read_reply(text)
    except AnswerError:
        return False
    return True


def make_ballot(
    case: PlayableCase,
    table: Table,
    heard: str,
    text: str,
    votes: Mapping[str, str],
    roles: Mapping[str, Role],
    lookups: Sequence[tuple[str, str]] = (),
) -> Ballot:
    """Return a draft on these reports and the votes on it in words."""
    try:
        decision: Decision | None = read_decision(case.public, table, text)
    except AnswerError:
        decision = None
    plan = None if decision is None or decision.escalate else funded_plan(table, decision)
    return Ballot(
        heard=visible(heard, max_chars=MAX_BRIEF_CHARS),
        lookups=tuple((say_call(call), visible(told)) for call, told in lookups),
        spoken=_say_decision(case, decision),
        bill=tuple(list_bill(case, table, plan, roles)) if plan else (),
        reason=visible(decision.reason) if decision else "",
        conflicts=tuple(map(visible, decision.conflicts)) if decision else (),
        written=_as_written(text),
        votes=tuple(_make_vote(case, role, table, decision, said, roles) for role, said in votes.items()),
    )


def _make_vote(
    case: PlayableCase,
    role: str,
    table: Table,
    decision: Decision | None,
    text: str,
    roles: Mapping[str, Role],
) -> Vote:
    try:
        vote, reason = read_vote(text).vote, read_vote(text).reason
    except AnswerError:
        vote, reason = None, ""
    rightness = ""
    if isinstance(case, TeamScenario):
        escalated = decision is not None and decision.escalate
        plan = None if decision is None or escalated else funded_plan(table, decision)
        right = best_vote(case, role, plan, escalated=escalated).vote
        rightness = "right" if vote == right else "wrong"
    return Vote(
        title=say_titles([role], roles),
        vote={"accept": "accepts", "object": "objects"}.get(vote or "", f"no valid vote: {readable(text)}"),
        reason=visible(reason),
        tone="good" if vote == "accept" else "bad",
        rightness=rightness,
    )


def _say_decision(case: PlayableCase, decision: Decision | None) -> str:
    if decision is None:
        return ""
    return (
        "hands the case to a human."
        if decision.escalate
        else f"decides for {name_option(case, decision.option)}."
    )


def _as_written(text: str) -> str:
    return visible(text.strip()) or NOTHING
