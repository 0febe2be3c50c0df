"""The minutes of one episode, plain or governed: a single HTML file that reads like those of a meeting.

No script, no network: the page's own policy forbids both. What a case or a model wrote is escaped, and its
control characters are spelled out. Truth and scores are shown where a case has them, and left out where not.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.minutes.episode_in_words import (
    MAX_BRIEF_CHARS,
    Ballot,
    count_visits,
    find_title,
    list_ballots,
    list_options,
    make_ballot,
    make_cards,
    make_speech,
    measure_share,
    say_conflict,
    say_formula,
    say_outcome,
    say_titles,
)
from evaluation.minutes.governed_overview import (
    STATUS,
    count_full_visits,
    list_events,
    list_log,
    make_governed_cards,
    say_decision,
)
from evaluation.minutes.graph_picture import Edge, draw_graph
from evaluation.minutes.page_files import load_template, write_page
from evaluation.minutes.plan_chapters import (
    list_conflicts,
    make_plan_chapters,
    measure_kpi_scale,
    say_time,
)
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER, Decision, SpecialistReport
from scenarios.team import TeamScenario, parse_decision, parse_report, parse_vote
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange, read_exchanges
from simulator.chat import Chat
from simulator.conflicts import find_conflicts
from simulator.governance.governed_graph import full_graph_edges, full_graph_mermaid
from simulator.governance.resolution import MAX_RISK
from simulator.governance.store.episode_record import GovernedRecord
from simulator.graph.team_graph import graph_edges, graph_mermaid
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

TEMPLATE_FILE = "minutes_template.html"
NOT_SCORED = "Not scored: nobody knows the right answer of a case that a person wrote."
NODE_TITLES = {"replan": "re-plan", "review": "human review"}

Reports = Mapping[str, SpecialistReport | None]
Talk = Mapping[str, Sequence[Exchange]]


def write_minutes(
    path: Path,
    case: PlayableCase,
    played: Episode | GovernedRecord,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> Path:
    """Write the page of `render_minutes`; it appears under its name only once it is whole."""
    page = render_minutes(
        case, played, label=label, chat=chat, verdict=verdict, weights=weights, roles=roles, speakers=speakers
    )
    return write_page(path, page)


def render_minutes(
    case: PlayableCase,
    played: Episode | GovernedRecord,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> str:
    """The page as text; without `chat` it lacks earlier drafts, tool results and what ReconcileGPT read.

    A governed record adds the course of events, a chapter per plan with the human gate and its KPIs, and the
    decision log. `speakers` are the roles as their prompts had them, where not as in `roles`.
    """
    episode = played.episode if isinstance(played, GovernedRecord) else played
    talk = read_talk(episode, chat, speakers or roles)
    reports = {role: parse_report(case, text) for role, text in episode.reports.items()}
    if isinstance(played, GovernedRecord):
        course = _describe_governed(case, played, reports, roles)
    else:
        course = _describe_plain(case, played, reports, talk, verdict, roles)
    return load_template(TEMPLATE_FILE).render(
        title=find_title(case),
        label=visible(label),
        key=visible(case.key),
        context=visible(case.context, max_chars=MAX_BRIEF_CHARS) if isinstance(case, FreeCase) else "",
        has_truth=isinstance(case, TeamScenario),
        is_written=isinstance(case, FreeCase),
        is_governed=isinstance(played, GovernedRecord),
        speeches=[make_speech(case, episode, role, talk.get(role, []), roles) for role in case.seats],
        reconciler=say_titles([RECONCILER], roles),
        max_risk=MAX_RISK,
        verdict=verdict,
        formula=say_formula(verdict, weights),
        shares=[measure_share(role, episode, roles) for role in episode.trajectories],
        **course,
    )


def _describe_plain(
    case: PlayableCase,
    episode: Episode,
    reports: Reports,
    talk: Talk,
    verdict: TeamVerdict | None,
    roles: Mapping[str, Role],
) -> dict[str, Any]:
    """Collect the template's values for an episode without governance."""
    decision = parse_decision(case, episode.decision)
    conflicts = find_conflicts(case.options, reports)
    ballots = list_ballots(case, episode, talk, roles)
    votes = [parse_vote(text) for text in episode.votes.values()]
    fault = episode.error is not None
    seats = tuple(case.seats)
    return _list_governed_parts() | {
        "outcome": say_outcome(case, episode, decision),
        "status": "infrastructure fault" if fault else "",
        "tone": "good" if decision is not None and not decision.escalate else "bad",
        "error": visible(episode.error) if episode.error is not None else "",
        "cards": make_cards(case, decision, votes, conflicts, verdict, episode),
        "options": list_options(case, reports, decision, roles),
        "chosen_word": "chosen",
        "conflicts": [say_conflict(conflict, roles) for conflict in conflicts],
        "ballots": ballots,
        "not_scored": "Not scored: an infrastructure fault is not the team's." if fault else NOT_SCORED,
        "picture": _draw(graph_edges(seats), seats, count_visits(episode, ballots), roles, is_tall=False),
        "mermaid": graph_mermaid(seats),
    }


def _describe_governed(
    case: PlayableCase, record: GovernedRecord, reports: Reports, roles: Mapping[str, Role]
) -> dict[str, Any]:
    """Collect the template's values for a governed episode."""
    seats = tuple(case.seats)
    status, tone = STATUS.get(record.status, (record.status, ""))
    return _list_governed_parts() | {
        "date": say_time(record.log[0].at_s if record.log else None),
        "outcome": say_decision(record, case),
        "status": status,
        "tone": tone,
        "error": visible(record.error) if record.error is not None else "",
        "cards": make_governed_cards(record),
        "events": list_events(record, roles),
        "options": list_options(case, reports, _final_decision(record), roles),
        "chosen_word": "carried out last",
        "accountable": say_titles([record.accountable], roles) if record.accountable else "",
        "precedents": [
            visible(f"{one['case']}: option {one['option']}, {one['status'].replace('_', ' ')}")
            for one in record.precedents
        ],
        "conflicts": list_conflicts(record, roles),
        "ballots": [],
        "plans": make_plan_chapters(record, case, roles),
        "kpi_scale": measure_kpi_scale(record),
        "undecided": _list_undecided(case, record, roles),
        "not_scored": NOT_SCORED
        if isinstance(case, FreeCase)
        else "Not scored: the episode is not at its end.",
        "log": list_log(record),
        "is_log_sound": record.is_log_sound,
        "picture": _draw(
            full_graph_edges(seats), seats, count_full_visits(record, seats), roles, is_tall=True
        ),
        "mermaid": full_graph_mermaid(seats),
    }


def _list_governed_parts() -> dict[str, Any]:
    """Return the parts of the page that a plain episode leaves empty."""
    parts: dict[str, Any] = dict.fromkeys(("events", "plans", "undecided", "log", "precedents"), ())
    return parts | {"date": "", "accountable": "", "kpi_scale": 0, "is_log_sound": True}


def _list_undecided(case: PlayableCase, record: GovernedRecord, roles: Mapping[str, Role]) -> list[Ballot]:
    return [make_ballot(case, one.message, one.text, one.votes, roles) for one in record.undecided]


def _final_decision(record: GovernedRecord) -> Decision | None:
    """Return the decision that was committed last, which the option table marks."""
    committed = [chapter.proposal["option"] for chapter in record.chapters if chapter.is_committed]
    return Decision(option=committed[-1], escalate=False) if committed else None


def _draw(
    edges: Sequence[Edge],
    seats: tuple[str, ...],
    visits: Mapping[str, int],
    roles: Mapping[str, Role],
    *,
    is_tall: bool,
) -> str:
    titles = {role: roles[role].title for role in (*seats, RECONCILER) if role in roles}
    plans = {f"execute_{role}": f"{titles.get(role, role)} plan" for role in seats}
    return draw_graph(
        edges,
        title="The graph that this case ran through",
        labels={**NODE_TITLES, **titles, **plans},
        visits=visits,
        order=(*seats, *plans, "replan", "close"),
        is_tall=is_tall,
    )


def read_talk(episode: Episode, chat: Chat | None, roles: Mapping[str, Role]) -> dict[str, list[Exchange]]:
    """Return every role's transcript as exchanges; nothing without the chat it was played with."""
    if chat is None:
        return {}
    return {
        role: read_exchanges(path, chat, roles[role])
        for role, path in episode.trajectories.items()
        if role in roles
    }
