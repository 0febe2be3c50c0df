"""The minutes of one episode: a single HTML file that reads like those of a meeting.

No script, no network: the page's own policy forbids both. What a case or a model wrote is escaped, and its
control characters are spelled out. Truth and scores are shown where a case has them, and left out where not.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from evaluation.minutes.content import (
    MAX_BRIEF_CHARS,
    count_visits,
    find_title,
    list_options,
    list_rounds,
    make_cards,
    make_speech,
    measure_share,
    say_conflict,
    say_formula,
    say_outcome,
)
from evaluation.minutes.graph_picture import draw_graph
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import TeamScenario, parse_decision, parse_report, parse_vote
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange, read_exchanges
from simulator.chat import Chat
from simulator.conflicts import find_conflicts
from simulator.graph.team_graph import graph_edges, graph_mermaid
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

TEMPLATE_FILE = "minutes_template.html"
NOT_SCORED = "Not scored: nobody knows the right answer of a case that a person wrote."


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A further section of the page, for what other protocols add (approval, execution, monitoring).

    Example: Section(title="Approval", rows=(("Reviewer", "approved at 14:02"),))
    """

    title: str
    rows: tuple[tuple[str, str], ...]  # who or what, and the text


def write_minutes(
    path: Path,
    case: PlayableCase,
    episode: Episode,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
    sections: Sequence[Section] = (),
) -> Path:
    """Write the page; it appears under its name only once it is whole."""
    page = render_minutes(
        case,
        episode,
        label=label,
        chat=chat,
        verdict=verdict,
        weights=weights,
        roles=roles,
        speakers=speakers,
        sections=sections,
    )
    return write_page(path, page)


def minutes_file(episode: Episode) -> str:
    """The page's file name, e.g. "team-test-0-7-2.html" (with ".1" before the ending for a second play)."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", episode.scenario_key)
    return f"{name}{f'.{episode.index_in_group}' if episode.index_in_group else ''}.html"


def render_minutes(
    case: PlayableCase,
    episode: Episode,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Mapping[str, Role] = ROLES,
    speakers: Mapping[str, Role] | None = None,
    sections: Sequence[Section] = (),
) -> str:
    """The page as text; without `chat` it lacks earlier drafts, tool results and what ReconcileGPT read.

    `speakers` are the roles as their prompts had them, where not as in `roles` (`seating.list_speakers`).
    """
    talk = read_talk(episode, chat, speakers or roles)
    reports = {role: parse_report(case, text) for role, text in episode.reports.items()}
    conflicts = find_conflicts(case.options, reports)
    decision = parse_decision(case, episode.decision)
    seats = tuple(case.seats)
    rounds = list_rounds(case, episode, talk, roles)
    votes = [parse_vote(text) for text in episode.votes.values()]
    return load_template(TEMPLATE_FILE).render(
        title=find_title(case),
        label=visible(label),
        key=case.key,
        outcome=say_outcome(case, episode, decision),
        is_settled=decision is not None and not decision.escalate,
        cards=make_cards(case, decision, votes, conflicts, verdict, episode),
        context=visible(case.context, max_chars=MAX_BRIEF_CHARS) if isinstance(case, FreeCase) else "",
        options=list_options(case, reports, decision, roles),
        has_truth=isinstance(case, TeamScenario),
        speeches=[make_speech(case, episode, role, talk.get(role, []), roles) for role in seats],
        conflicts=[say_conflict(conflict, roles) for conflict in conflicts],
        rounds=rounds,
        reconciler=roles[RECONCILER].title if RECONCILER in roles else "ReconcileGPT",
        verdict=verdict,
        formula=say_formula(verdict, weights),
        not_scored=NOT_SCORED if verdict is None and episode.error is None else "",
        error=visible(episode.error) if episode.error is not None else "",
        sections=[_visible_section(section) for section in sections],
        picture=draw_graph(
            graph_edges(seats),
            title="The graph that this meeting ran through",
            labels={role: roles[role].title for role in (*seats, RECONCILER) if role in roles},
            visits=count_visits(episode, rounds),
            order=seats,
        ),
        mermaid=graph_mermaid(seats),
        shares=[measure_share(role, episode, roles) for role in episode.trajectories],
    )


def load_template(name: str) -> Template:
    """A page's template: everything that is put in is escaped, and everything that is named must be given."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(
            lambda one: files("evaluation.minutes").joinpath(one).read_text(encoding="utf-8")
        ),
    )
    return environment.get_template(name)


def write_page(path: Path, page: str) -> Path:
    """Write a page; it appears under its name only once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
    return path


def read_talk(episode: Episode, chat: Chat | None, roles: Mapping[str, Role]) -> dict[str, list[Exchange]]:
    """Every role's transcript as exchanges; nothing without the chat it was played with."""
    if chat is None:
        return {}
    return {
        role: read_exchanges(path, chat, roles[role])
        for role, path in episode.trajectories.items()
        if role in roles
    }


def _visible_section(section: Section) -> Section:
    rows = tuple((visible(name), visible(text, max_chars=MAX_BRIEF_CHARS)) for name, text in section.rows)
    return Section(title=visible(section.title), rows=rows)
