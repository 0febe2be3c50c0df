"""The minutes of one episode, plain or governed: a single HTML file that reads like those of a meeting.

No script, no network: the page's own policy forbids both. What a case or a model wrote is escaped, and its
control characters are spelled out. Truth and scores are shown where a case has them, and left out where not.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from evaluation.minutes import governed, meeting, words
from evaluation.minutes.governed import STATUS, PlannedCourse
from evaluation.minutes.meeting import Roles
from evaluation.minutes.words import Tone, find_title, say_conflict, visible
from evaluation.pages import load_template, write_page
from roles.registry import ROLES
from roles.team import NO_OPTION, RECONCILER
from scenarios.team import PlayableCase, TeamScenario
from scenarios.team.offers import offers_on
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import read_exchanges
from simulator.chat import Chat
from simulator.conflicts import find_conflicts
from simulator.governance.governed_graph import full_graph
from simulator.governance.record import GovernedRecord, open_episode
from simulator.governance.resolution import MAX_RISK
from simulator.graph.team_graph import team_graph
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

NOT_SCORED = "Not scored: nobody knows the right answer of a case that a person wrote."
ENDS = {
    "turn_tokens": "the tokens of a turn",
    "total_tokens": "the tokens in total",
    "turns": "the number of turns",
    "tool_calls": "the number of tool calls",
    "failed_calls": "the number of failed calls",
}  # by limit
Played = Episode | GovernedRecord


def render_minutes(
    case: PlayableCase,
    played: Played,
    *,
    label: str,
    chat: Chat | None = None,
    verdict: TeamVerdict | None = None,
    weights: TeamRewardWeights | None = None,
    roles: Roles = ROLES,
    speakers: Roles | None = None,
    course: PlannedCourse | None = None,
) -> str:
    """The page as text; without `chat` it lacks earlier drafts, tool results and what ReconcileGPT read.

    A governed record adds the course of events, a chapter per plan with the human gate and its KPIs, and the
    decision log. `speakers` are the roles as their prompts had them, where not as in `roles`. `course`: the
    cases that the plans of a governed record were made on, and the truth about them.
    """
    record = played if isinstance(played, GovernedRecord) else None
    episode = open_episode(played) if isinstance(played, GovernedRecord) else played
    spoken_by = speakers or roles
    talk = {
        role: read_exchanges(path, chat, spoken_by[role])
        for role, path in episode.trajectories.items()
        if chat is not None and role in spoken_by
    }
    read, seats = read_episode(case, episode), tuple(case.seats)
    if record is not None:
        num = len(record.chapters)
        course = course or PlannedCourse(cases=(case,) * num, truths=("",) * num, hindsight="")
        conflicts, cards = governed.list_conflicts(record, roles), governed.make_governed_cards(record)
        graph, chosen = full_graph(seats, None).get_graph(), governed.find_final_option(record)
    else:
        conflicts = [say_conflict(one, roles) for one in find_conflicts(case.public, read.table)]
        cards = _make_cards(case, read, sum(is_hard for is_hard, _ in conflicts), verdict, episode)
        graph, chosen = team_graph(seats).get_graph(), read.decision.option if read.decision else None
    outcome, status, tone = _sum_up(case, played)
    return load_template("minutes.html").render(
        case=case,
        episode=episode,
        read=read,
        record=record,
        course=course,
        talk=talk,
        roles=roles,
        verdict=verdict,
        weights=weights,
        title=find_title(case),
        label=label,
        outcome=outcome,
        status=status,
        tone=tone,
        error=played.error,
        cards=cards,
        conflicts=conflicts,
        options=meeting.list_options(case, read.table, chosen, roles),
        has_truth=isinstance(case, TeamScenario),
        is_written=isinstance(case, FreeCase),
        mermaid=graph.draw_mermaid(),
        kpi_scale=governed.measure_kpi_scale(record) if record else 0,
        max_brief_chars=words.MAX_BRIEF_CHARS,
        max_risk=MAX_RISK,
        no_option=NO_OPTION,
        not_scored=NOT_SCORED,
        ends=ENDS,
        reconciler=words.say_titles([RECONCILER], roles),
        governed=governed,
        meeting=meeting,
        say_titles=words.say_titles,
        visible=visible,
    )


def _sum_up(case: PlayableCase, played: Played) -> tuple[str, str, Tone]:
    """Outcome in a sentence, status of a governed episode ("" for a plain one), tone."""
    if isinstance(played, GovernedRecord):
        return governed.say_decision(played, case), *STATUS.get(played.status, (played.status, ""))
    decision = read_episode(case, played).decision
    tone = "good" if decision is not None and not decision.escalate else "bad"
    return meeting.say_outcome(case, played, decision), "", tone


def _make_cards(
    case: PlayableCase, read: ReadEpisode, num_hard: int, verdict: TeamVerdict | None, episode: Episode
) -> list[tuple[str, str, str]]:
    """(value, what it is, tone), the most important first; `num_hard`: hard conflicts."""
    decision, votes = read.decision, list(read.votes.values())
    decided = "-" if decision is None else "human" if decision.escalate else decision.option
    on_option = offers_on(read.table, decision.option) if decision else []
    paid = [offer.cost for offer in on_option if decision and offer.label in decision.fund]
    return [
        (decided, "decision", ""),
        (f"{sum(paid)} of {case.public.budget}", "k$ of the budget spent", ""),
        (f"{votes.count('accept')} of {len(case.seats)}" if episode.votes else "none", "votes to accept", ""),
        (str(num_hard), "hard conflicts between reports", "bad" if num_hard else ""),
        (f"{verdict.reward:.2f}" if verdict else "-", "team reward R" if verdict else "not scored", ""),
    ]


def render_governed(record: GovernedRecord, roles: Roles = ROLES) -> str:
    """One governed episode as plain text; nothing in it can move the cursor."""
    page = load_template("governed.txt").render(
        record=record,
        status=STATUS.get(record.status, (record.status, ""))[0],
        chapters=list(zip(record.chapters, governed.list_titles(record), strict=True)),
        no_option=NO_OPTION,
        max_risk=MAX_RISK,
        roles=roles,
        join_words=words.join_words,
        governed=governed,
    )
    return "\n".join(map(visible, page.rstrip("\n").split("\n")))


def minutes_file(episode: Episode) -> str:
    """The page's file name, e.g. "team-test-0-7-2.html" (with ".1" before the ending for a second play)."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", episode.scenario_key)
    return f"{name}{f'.{episode.index_in_group}' if episode.index_in_group else ''}.html"


def write_index(
    folder: Path, shown: Iterable[tuple[PlayableCase, Played, TeamVerdict | None]], *, label: str
) -> Path:
    """Write index.html beside the pages of these cases (`minutes_file`), with links in their order."""
    rows = []
    for case, played, verdict in shown:
        file = minutes_file(played.episode if isinstance(played, GovernedRecord) else played)
        rows.append((case, file, verdict, find_title(case), *_sum_up(case, played)))
    page = load_template("index.html").render(label=label, rows=rows, visible=visible)
    return write_page(folder / "index.html", page)
