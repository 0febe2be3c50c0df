"""The minutes of one governed episode: from the brief over every plan and the human gate to its final state.

One HTML file without script or network, like those of `minutes`. It is written from the episode's record,
which holds no truth; truth and scores are shown where the case has them, and left out where not.
"""

from collections.abc import Mapping
from pathlib import Path

from evaluation.minutes.content import (
    MAX_BRIEF_CHARS,
    find_title,
    list_options,
    make_speech,
    measure_share,
    say_formula,
    say_titles,
)
from evaluation.minutes.governed_chapters import list_conflicts, make_ballot, make_parts, say_time
from evaluation.minutes.governed_summary import (
    STATUS,
    count_full_visits,
    list_events,
    list_log,
    make_cards,
    say_decision,
)
from evaluation.minutes.graph_picture import draw_graph
from evaluation.minutes.minutes import NOT_SCORED, load_template, read_talk, write_page
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER, Decision
from scenarios.team import TeamScenario, parse_report
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.chat import Chat
from simulator.governance.governed_graph import full_graph_edges, full_graph_mermaid
from simulator.governance.resolution import MAX_RISK
from simulator.governance.store.episode_record import GovernedRecord
from simulator.reward import TeamRewardWeights, TeamVerdict

TEMPLATE_FILE = "governed_template.html"
NODE_TITLES = {
    "commit": "commit",
    "review": "human review",
    "replan": "re-plan",
    "outcome": "outcome",
}


def write_governed_minutes(
    path: Path,
    case: PlayableCase,
    record: GovernedRecord,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> Path:
    """Write the page; it appears under its name only once it is whole."""
    page = render_governed_minutes(
        case, record, label=label, chat=chat, verdict=verdict, weights=weights, roles=roles, speakers=speakers
    )
    return write_page(path, page)


def render_governed_minutes(
    case: PlayableCase,
    record: GovernedRecord,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
) -> str:
    """The page as text; `speakers` are the roles as their prompts had them (see `Seating.speakers`)."""
    episode, seats = record.episode, tuple(case.seats)
    talk = read_talk(episode, chat, speakers or roles)
    reports = {role: parse_report(case, text) for role, text in episode.reports.items()}
    words, tone = STATUS.get(record.status, (record.status, ""))
    return load_template(TEMPLATE_FILE).render(
        title=find_title(case),
        label=visible(label),
        key=visible(case.key),
        date=say_time(record.log[0].at_s if record.log else None),
        status=words,
        tone=tone,
        decision=say_decision(record, case),
        cards=make_cards(record),
        events=list_events(record, roles),
        context=visible(case.context, max_chars=MAX_BRIEF_CHARS) if isinstance(case, FreeCase) else "",
        options=list_options(case, reports, _final_decision(record), roles),
        has_truth=isinstance(case, TeamScenario),
        is_written=isinstance(case, FreeCase),
        accountable=say_titles([record.accountable], roles) if record.accountable else "",
        precedents=[
            visible(f"{one['case']}: option {one['option']}, {one['status'].replace('_', ' ')}")
            for one in record.precedents
        ],
        speeches=[make_speech(case, episode, role, talk.get(role, []), roles) for role in seats],
        conflicts=list_conflicts(record, roles),
        plans=make_parts(record, case, roles),
        undecided=[make_ballot(draft, case, roles) for draft in record.undecided],
        max_risk=MAX_RISK,
        reconciler=say_titles([RECONCILER], roles),
        error=visible(record.error) if record.error is not None else "",
        verdict=verdict,
        formula=say_formula(verdict, weights),
        not_scored=NOT_SCORED if isinstance(case, FreeCase) else "Not scored: the episode is not at its end.",
        log=list_log(record),
        is_log_sound=record.is_log_sound,
        picture=_draw(record, seats, roles),
        mermaid=full_graph_mermaid(seats),
        shares=[measure_share(role, episode, roles) for role in episode.trajectories],
    )


def _final_decision(record: GovernedRecord) -> Decision | None:
    """What was committed last, as the option table marks it."""
    committed = [chapter.proposal["option"] for chapter in record.chapters if chapter.is_committed]
    return Decision(option=committed[-1], escalate=False) if committed else None


def _draw(record: GovernedRecord, seats: tuple[str, ...], roles: Mapping[str, Role]) -> str:
    titles = {role: roles[role].title for role in (*seats, RECONCILER) if role in roles}
    plans = {f"execute_{role}": f"{titles.get(role, role)} plan" for role in seats}
    return draw_graph(
        full_graph_edges(seats),
        title="The graph that this case ran through",
        labels={**NODE_TITLES, **titles, **plans},
        visits=count_full_visits(record, seats),
        order=(*seats, *plans),
        is_tall=True,
    )
