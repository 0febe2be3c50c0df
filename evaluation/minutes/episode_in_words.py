"""Puts the records of an episode into words for its minutes: reports, ballots, options, conflicts, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.minutes.transcript import NOTHING, readable, visible
from roles.base import Role
from roles.team import RECONCILER, Decision, SpecialistReport
from scenarios.base import ToolCall
from scenarios.team import (
    TeamScenario,
    decision_value,
    parse_decision,
    parse_report,
    parse_vote,
    verify_report,
    verify_vote,
)
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange
from simulator.agents.tool_calls import BadToolCallError, parse_tool_calls
from simulator.conflicts import Conflict
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

MAX_BRIEF_CHARS = 10_000
VOTE_ENDING = "Vote."  # of every question for a vote
ENDS = {
    "turn_tokens": "the tokens of a turn",
    "total_tokens": "the tokens in total",
    "turns": "the number of turns",
    "tool_calls": "the number of tool calls",
    "failed_calls": "the number of failed calls",
}  # by limit
PRESSING = (
    "does not press for it",
    "presses for it a little",
    "presses for it",
    "presses hard for it",
)  # by flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One seat's brief, tool calls and report in words."""

    title: str  # of the role
    read: str
    full_brief: str  # all that it read, where `read` is the part of its own; else ""
    notes: str  # its words, where it did not read them itself
    lookups: tuple[tuple[str, str], ...]  # tool call in words, observation
    spoken: str  # the report as a sentence; "" where it is not valid
    written: str
    is_cut_off: bool
    own_verdict: str  # the report's own verdict; "" without truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One seat's vote on a draft.

    Example: Vote(title="CTO", vote="accepts", tone="good", rightness="wrong")
    """

    title: str  # of the role
    vote: str
    tone: str  # "good" for an acceptance, else "bad"
    rightness: str  # "right", "wrong", or "" without truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """One draft of ReconcileGPT and the votes on it."""

    heard: str  # what ReconcileGPT read for it
    spoken: str  # the draft as the end of a sentence; "" where it is not valid
    written: str
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option, as the meeting saw it and as it really was."""

    letter: str
    meaning: str
    wanted_by: str
    ruled_out_by: str
    worth: str  # "" without truth
    is_chosen: bool


def find_title(case: PlayableCase) -> str:
    """Return the case's title in one line."""
    if isinstance(case, FreeCase):
        return visible(case.title)
    sector = case.sector.capitalize() if isinstance(case, TeamScenario) else "Company"
    return f"{sector} case: {len(case.options)} options"


def say_outcome(case: PlayableCase, episode: Episode, decision: Decision | None) -> str:
    """Say the outcome of an episode in one sentence."""
    if episode.error is not None:
        return "The meeting broke off: an engine failed."
    if decision is None:
        return "No valid decision was reached."
    if decision.escalate:
        return "The case goes to a human."
    return f"Decided: {_named(case, decision.option)}"


def _named(case: PlayableCase, option: str) -> str:
    meaning = case.meanings.get(option, "") if isinstance(case, FreeCase) else ""
    return visible(f"{option}. {meaning}") if meaning else f"option {option}"


def make_cards(
    case: PlayableCase,
    decision: Decision | None,
    votes: Sequence[str | None],
    conflicts: Sequence[Conflict],
    verdict: TeamVerdict | None,
    episode: Episode,
) -> list[tuple[str, str, str]]:
    """(value, what it is, tone), the most important first."""
    decided = "-" if decision is None else "human" if decision.escalate else decision.option
    num_hard = sum(conflict.is_hard for conflict in conflicts)
    return [
        (decided, "decision", ""),
        (f"{votes.count('accept')} of {len(case.seats)}" if episode.votes else "none", "votes to accept", ""),
        (str(num_hard), "hard conflict" if num_hard == 1 else "hard conflicts", ""),
        (f"{verdict.reward:.2f}" if verdict else "-", "team reward R" if verdict else "not scored", ""),
    ]


def list_options(
    case: PlayableCase,
    reports: Mapping[str, SpecialistReport | None],
    decision: Decision | None,
    roles: Mapping[str, Role],
) -> list[OptionRow]:
    """Return every option with who wants it, who rules it out, and what it was worth."""
    heard = {role: report for role, report in reports.items() if report is not None}
    return [
        OptionRow(
            letter=option,
            meaning=visible(case.meanings[option]) if isinstance(case, FreeCase) else "",
            wanted_by=say_titles([role for role, report in heard.items() if report.pick == option], roles),
            ruled_out_by=say_titles([role for role, report in heard.items() if option in report.veto], roles),
            worth=_worth(case, option, roles) if isinstance(case, TeamScenario) else "",
            is_chosen=decision is not None and decision.option == option,
        )
        for option in case.options
    ]


def _worth(case: TeamScenario, option: str, roles: Mapping[str, Role]) -> str:
    forbidding = case.truth["vetoes"][option]
    if forbidding:
        return f"forbidden by {say_titles(forbidding, roles)}"
    value = decision_value(case, Decision(option=option, escalate=False))
    return f"V = {value:.2f}{', the best' if option == case.truth['best'] else ''}"


def make_speech(
    case: PlayableCase, episode: Episode, role: str, talk: Sequence[Exchange], roles: Mapping[str, Role]
) -> Speech:
    """Put one seat's brief, tool calls and report into words."""
    text = episode.reports.get(role, "")
    brief = case.seats[role].brief
    notes = case.notes.get(role, "") if isinstance(case, FreeCase) else ""
    path = episode.trajectories.get(role)
    own = verify_report(case, role, text) if isinstance(case, TeamScenario) and text else None
    read = talk[0].message if talk else brief
    first_line = read.partition("\n")[0]
    is_shared = isinstance(case, FreeCase) and notes in read and "\n" in read
    return Speech(
        title=say_titles([role], roles),
        read=visible(f"{first_line}\n{notes}" if is_shared else read, max_chars=MAX_BRIEF_CHARS),
        full_brief=visible(read, max_chars=MAX_BRIEF_CHARS) if is_shared else "",
        notes="" if notes in read else visible(notes, max_chars=MAX_BRIEF_CHARS),
        lookups=tuple((say_call(call), visible(told)) for call, told in (talk[0].tool_calls if talk else ())),
        spoken=_say_report(parse_report(case, text)),
        written=_as_written(text),
        is_cut_off=path is not None and path.truncated,
        own_verdict=f"{own.reward:.2f} by its own verifier: {own.explanation}" if own else "",
    )


def list_ballots(
    case: PlayableCase, episode: Episode, talk: Mapping[str, Sequence[Exchange]], roles: Mapping[str, Role]
) -> list[Ballot]:
    """Return every draft with the votes on it; the last one alone where the talk is not known."""
    drafts = talk.get(RECONCILER) or [Exchange(message="", tool_calls=(), answer=episode.decision)]
    said = {
        role: [one.answer for one in talk.get(role, ()) if one.message.endswith(VOTE_ENDING)]
        for role in case.seats
    }
    made = []
    for number, draft in enumerate(drafts, 1):
        votes = {role: texts[number - 1] for role, texts in said.items() if len(texts) >= number}
        if number == len(drafts):
            votes = dict(episode.votes)
        made.append(make_ballot(case, draft.message, draft.answer, votes, roles))
    return made if episode.decision or episode.trajectories else []


def make_ballot(
    case: PlayableCase, heard: str, text: str, votes: Mapping[str, str], roles: Mapping[str, Role]
) -> Ballot:
    """Return a draft and the votes on it in words."""
    decision = parse_decision(case, text)
    return Ballot(
        heard=visible(heard, max_chars=MAX_BRIEF_CHARS),
        spoken=_say_decision(case, decision),
        written=_as_written(text),
        votes=tuple(_make_vote(case, role, decision, said, roles) for role, said in votes.items()),
    )


def _make_vote(
    case: PlayableCase, role: str, decision: Decision | None, text: str, roles: Mapping[str, Role]
) -> Vote:
    vote = parse_vote(text)
    rightness = ""
    if isinstance(case, TeamScenario):
        rightness = "right" if verify_vote(case, role, decision, text).exact else "wrong"
    return Vote(
        title=say_titles([role], roles),
        vote={"accept": "accepts", "object": "objects"}.get(vote or "", f"no valid vote: {readable(text)}"),
        tone="good" if vote == "accept" else "bad",
        rightness=rightness,
    )


def _say_report(report: SpecialistReport | None) -> str:
    if report is None:
        return ""
    ruled_out = f"Rules out {join_words(report.veto)}." if report.veto else "Rules out nothing."
    return f"Recommends {report.pick} and {PRESSING[report.flag]}. {ruled_out}"


def _say_decision(case: PlayableCase, decision: Decision | None) -> str:
    if decision is None:
        return ""
    return (
        "hands the case to a human." if decision.escalate else f"decides for {_named(case, decision.option)}."
    )


def _as_written(text: str) -> str:
    return visible(text.strip()) or NOTHING


def say_conflict(conflict: Conflict, roles: Mapping[str, Role]) -> tuple[bool, str]:
    """Return whether the conflict breaks a hard limit, and a sentence that states it."""
    who = f"{say_titles(conflict.wanted_by, roles)} {_verb('want', conflict.wanted_by)} {conflict.option}"
    if not conflict.is_hard:
        return False, f"{who}."
    against = conflict.ruled_out_by
    return True, f"{who}; {say_titles(against, roles)} {_verb('rule', against)} it out."


def _verb(stem: str, subjects: Sequence[str]) -> str:
    return stem if len(subjects) > 1 else f"{stem}s"


def say_titles(names: Sequence[str], roles: Mapping[str, Role]) -> str:
    """Roles by their titles: "CTO and Risk"."""
    return join_words([roles[name].title if name in roles else visible(name) for name in names])


def join_words(words: Sequence[str]) -> str:
    """ "A, B and C"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def say_call(text: str) -> str:
    """Return a turn with a tool call as "measure(option=B)"."""
    try:
        calls = parse_tool_calls(text)
    except BadToolCallError as error:
        return visible(f"a call that is none ({error}): {text}")
    if not calls:
        return visible(text.strip())
    return visible("; ".join(_say_one_call(call) for call in calls))


def _say_one_call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value}' for name, value in call.arguments.items())})"


def say_formula(verdict: TeamVerdict | None, weights: TeamRewardWeights | None) -> str:
    """Return the team reward with its numbers."""
    if verdict is None or weights is None:
        return ""
    c, k, h = weights.consensus, weights.unresolved, weights.escalation
    return (
        f"R = V (1 + c C) / (1 + c) - k U - h H = {verdict.value:.3f} x (1 + {c:g} x {verdict.consensus:.3f})"
        f" / {1 + c:g} - {k:g} x {verdict.unresolved:.3f} - {h:g} x {verdict.escalation:g}"
        f" = {verdict.reward:.3f}"
    )


def count_visits(episode: Episode, ballots: Sequence[Ballot]) -> dict[str, int]:
    seats = dict.fromkeys(episode.reports, 1)
    num_votes = sum(bool(one.votes) for one in ballots)
    return {**seats, RECONCILER: len(ballots), "vote": num_votes}


def measure_share(role: str, episode: Episode, roles: Mapping[str, Role]) -> tuple[str, ...]:
    """Title, policy versions, turns, tokens read and written, tool calls, how it ended."""
    path = episode.trajectories[role]
    calls = f"{path.num_valid_tool_calls} of {path.num_tool_calls}" if path.num_tool_calls else "-"
    return (
        say_titles([role], roles),
        visible(" ".join(dict.fromkeys(turn.policy_version for turn in path.turns))) or NOTHING,
        str(len(path.turns)),
        str(sum(len(turn.context_ids) for turn in path.turns)),
        str(sum(len(turn.completion_ids) for turn in path.turns)),
        calls,
        f"cut off by {ENDS[path.ended_by]}" if path.truncated else "by itself",
    )
