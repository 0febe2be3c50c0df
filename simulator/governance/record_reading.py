"""Reads the record of a governed episode from its store.

The store is asked, not the graph's state: what was displayed, ruled, delivered and logged stands there. Only
reports, the last votes, and what the world answered are the state's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.team import RECONCILER
from scenarios.team import PlanGame
from scenarios.team.playable import PlayableCase
from simulator.game import MakeGame, TeamGame
from simulator.governance.durable_agents import read_turns
from simulator.governance.gate.standing import Standing
from simulator.governance.runner import GovernanceServices, GovernedEpisode
from simulator.governance.store.decision_log import Entry, verify_chain
from simulator.governance.store.episode_record import Answer, Chapter, Draft, GovernedRecord
from simulator.records import Episode, Question, Trajectory

_Request = tuple[str, str, dict[str, Any]]  # interrupt, digest, proposal
_Group = tuple[Mapping[str, str], tuple[Draft, ...]]  # reports and drafts of one proposal


def read_record(
    case: PlayableCase,
    played: GovernedEpisode,
    services: GovernanceServices,
    *,
    stream: str,
    make_game: MakeGame = PlanGame,
) -> GovernedRecord:
    """Read the record of a played thread; `stream` and `make_game` are the seating's."""
    log = tuple(services.log.entries(played.thread))
    state = played.state
    draft_groups = list(_group_drafts(played, services, make_game(case)))
    chapters = list(_read_chapters(played, services, log, draft_groups))
    return GovernedRecord(
        episode=_read_episode(case, played, services, stream),
        thread=played.thread,
        status=played.status,
        error=played.error,
        accountable=(state["duty"] or {}).get("accountable", ""),
        precedents=tuple(state["precedents"]),
        chapters=tuple(chapters),
        undecided=tuple(draft for _, group in draft_groups for draft in group),
        log=log,
        is_log_sound=verify_chain(services.log.entries(), head=services.log.head()) is None,
    )


def _read_episode(
    case: PlayableCase, played: GovernedEpisode, services: GovernanceServices, stream: str
) -> Episode:
    state = played.state
    spoken: dict[str, list[Mapping[str, Any]]] = {}
    for _, node, result in services.ledger.trace(played.thread):
        role = node.partition("/")[2]
        if isinstance(result, dict) and "turns" in result:
            spoken.setdefault(role, []).append(result)
    order = [role for role in (*case.seats, RECONCILER) if role in spoken]
    decision = state["decision"]
    return Episode(
        scenario_key=case.key,
        index_in_group=0,
        trajectories={role: _join(role, f"{stream}/{played.thread}/{role}", spoken[role]) for role in order},
        reports={role: state["reports"][role]["text"] for role in case.seats if role in state["reports"]},
        decision=decision["text"] if decision else "",
        votes={role: state["votes"][role]["text"] for role in case.seats if role in state["votes"]},
        asked=tuple(
            Question(ask=one["ask"]["text"], reply=one["reply"]["text"]) for one in state["answered"]
        ),
        error=played.error,
    )


def _join(role: str, session: str, spoken: Sequence[Mapping[str, Any]]) -> Trajectory:
    """Join all turns of a role in a thread, in the order of supersteps."""
    last = spoken[-1]
    return Trajectory(
        role=role,
        session=session,
        turns=tuple(turn for one in spoken for turn in read_turns(role, one)),
        num_tool_calls=last["num_tool_calls"],
        num_valid_tool_calls=last["num_valid_tool_calls"],
        ended_by=last["ended_by"],
        final_text=last["text"],
    )


def _read_chapters(
    played: GovernedEpisode,
    services: GovernanceServices,
    log: Sequence[Entry],
    draft_groups: list[_Group],
) -> Iterator[Chapter]:
    """Yield one chapter per displayed proposal; takes its drafts off the head of `draft_groups`."""
    standing = services.gate.stand(played.thread)
    requests = _read_requests(services, standing)
    history = {attempt["attempt"]: attempt for attempt in played.state["history"]}
    was_edited = False
    for digest in dict.fromkeys(request[1] for request in requests):
        shown = [request for request in requests if request[1] == digest]
        proposal = shown[0][2]
        reports, drafts = draft_groups.pop(0) if draft_groups and not was_edited else ({}, ())
        answers = tuple(_read_answer(services, standing, request[0]) for request in shown)
        was_edited = answers[-1].ruling == "edit"
        done = [entry for entry in log if entry.body.get("digest") == digest]
        is_committed = any(entry.kind == "committed" for entry in done)
        came = history.get(proposal["attempt"]) if is_committed else None
        yield Chapter(
            attempt=proposal["attempt"],
            reports=reports,
            drafts=drafts,
            digest=digest,
            proposal=proposal,
            answers=answers,
            is_committed=is_committed,
            delivered=tuple(entry.body["role"] for entry in done if entry.kind == "executed"),
            observation=came["observation"] if came else None,
            alerts=tuple(came["alerts"]) if came else (),
        )


def _group_drafts(played: GovernedEpisode, services: GovernanceServices, game: TeamGame) -> Iterator[_Group]:
    """Group the drafts by proposal, with the reports that came before.

    A draft belongs to the one before where it answers objections.
    """
    group: list[Draft] = []
    reports: Mapping[str, str] = {}
    for said, draft in _list_drafts(played, services):
        if group and not (not said and _goes_on(group[-1], draft, game)):
            yield reports, tuple(group)
            group = []
        reports = reports if group else said
        group.append(draft)
    if group:
        yield reports, tuple(group)


def _list_drafts(played: GovernedEpisode, services: GovernanceServices) -> list[tuple[dict[str, str], Draft]]:
    """List all drafts, each with the reports since the one before and the questions that led to it."""
    messages = iter(played.state["asked"].get(RECONCILER, []))
    drafts: list[tuple[dict[str, str], Draft]] = []
    reports: dict[str, str] = {}
    asked: tuple[Question, ...] = ()
    num_turns = 0
    for _, node, result in services.ledger.trace(played.thread):
        kind, _, role = node.partition("/")
        if kind == "report":
            reports[role] = str(result["text"])
        elif kind == "reconcile":
            num_turns += len(result["turns"])
            message, text = next(messages, ""), str(result["text"])
            draft = Draft(message=message, text=text, num_turns=num_turns, asked=asked, votes={})
            drafts.append((reports, draft))
            reports, asked, num_turns = {}, (), 0
        elif kind == "reply" and drafts:
            reports, question = drafts.pop()
            asked = (*question.asked, Question(ask=question.text, reply=str(result["text"])))
            num_turns = question.num_turns
        elif kind == "vote" and drafts:
            said, draft = drafts[-1]
            votes = {**draft.votes, role: str(result["text"])}
            in_order = {seat: votes[seat] for seat in played.state["briefs"] if seat in votes}
            drafts[-1] = said, replace(draft, votes=in_order)
    return drafts


def _goes_on(before: Draft, after: Draft, game: TeamGame) -> bool:
    votes = {role: game.read_vote(text) for role, text in before.votes.items()}
    is_objected = any(vote is not None and vote["vote"] == "object" for vote in votes.values())
    return is_objected and after.message == game.write_objection_brief(votes)


def _read_requests(services: GovernanceServices, standing: Standing) -> list[_Request]:
    """Return (interrupt, digest, proposal) of every display, in order."""
    shown = [str(entry.body["interrupt_id"]) for entry in standing.find("requested")]
    found = [(interrupt_id, services.gate.requests.read(interrupt_id)) for interrupt_id in shown]
    return [(interrupt_id, request.digest, request.body["proposal"]) for interrupt_id, request in found]


def _read_answer(services: GovernanceServices, standing: Standing, interrupt_id: str) -> Answer:
    settled, shown = standing.find_settled(interrupt_id), standing.find_shown(interrupt_id)
    signed = services.desk.find_answer(interrupt_id) or {} if settled else {}
    return Answer(
        shown_at_s=shown.at_s if shown else None,
        reviewer=str(signed.get("reviewer", "")),
        ruling=settled["ruling"] if settled else "waiting",
        reason=settled["reason"] if settled else "",
        option=settled["option"] if settled else None,
        feedback=settled["feedback"] if settled else "",
        answered_at_s=signed.get("issued_at_s"),
    )
