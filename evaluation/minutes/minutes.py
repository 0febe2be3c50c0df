"""The minutes of one episode, plain or governed: a single HTML file that reads like those of a meeting.

No script, no network: the page's own policy forbids both. What a case or a model wrote is escaped, and its
control characters are spelled out. Truth and scores are shown where a case has them, and left out where not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.minutes.governed import (
    STATUS,
    PlannedCourse,
    find_final_option,
    list_conflicts,
    list_events,
    make_governed_cards,
    make_plan_chapters,
    measure_kpi_scale,
    say_clock,
    say_decision,
    say_entry,
    say_time,
)
from evaluation.minutes.meeting import (
    Roles,
    Shown,
    Talk,
    compare_with_best,
    list_asked,
    list_ballots,
    list_options,
    list_seat_rows,
    list_speeches,
    make_ballot,
    say_outcome,
    say_worth,
)
from evaluation.minutes.words import (
    MAX_BRIEF_CHARS,
    find_title,
    say_conflict,
    say_titles,
    visible,
)
from evaluation.pages import load_template, write_page
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import PlayableCase, TeamScenario
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange, read_exchanges
from simulator.chat import Chat
from simulator.conflicts import Conflict, find_conflicts
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
# parts of the page that only one kind of episode has
EMPTY: Mapping[str, Any] = {
    **dict.fromkeys(("events", "plans", "undecided", "log", "precedents", "worth", "plan_rows"), ()),
    **dict.fromkeys(("date", "hindsight", "best_option"), ""),
    "kpi_scale": 0,
    "is_log_sound": True,
}


def render_minutes(
    case: PlayableCase,
    played: Episode | GovernedRecord,
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
    episode = open_episode(played) if isinstance(played, GovernedRecord) else played
    talk = _read_talk(episode, chat, speakers or roles)
    read = read_episode(case, episode)
    if isinstance(played, GovernedRecord):
        told = _describe_governed(case, played, read, roles, course)
    else:
        told = _describe_plain(case, played, read, talk, verdict, roles)
    values = {**EMPTY, **told}
    return load_template("minutes.html").render(
        title=find_title(case),
        label=visible(label),
        key=visible(case.key),
        situation=visible(case.public.situation, max_chars=MAX_BRIEF_CHARS),
        budget=case.public.budget,
        letters=list(case.options),
        table=list_seat_rows(case, read.table, read.plan, roles),
        asked=list_asked(case, episode.asked, roles),
        has_truth=isinstance(case, TeamScenario),
        is_written=isinstance(case, FreeCase),
        is_governed=isinstance(played, GovernedRecord),
        speeches=list_speeches(case, episode, read, talk, roles),
        reconciler=say_titles([RECONCILER], roles),
        max_risk=MAX_RISK,
        verdict=verdict,
        weights=weights,
        paths=episode.trajectories,
        ends=ENDS,
        roles=roles,
        say_titles=say_titles,
        visible=visible,
        say_clock=say_clock,
        say_entry=say_entry,
        **values,
    )


def _describe_plain(
    case: PlayableCase,
    episode: Episode,
    read: ReadEpisode,
    talk: Talk,
    verdict: TeamVerdict | None,
    roles: Roles,
) -> Shown:
    """Collect the template's values for an episode without governance."""
    decision, fault = read.decision, episode.error is not None
    conflicts = find_conflicts(case.public, read.table)
    valued = case if isinstance(case, TeamScenario) and not fault else None
    optimum = case.optimum if isinstance(case, TeamScenario) else None
    return {
        "outcome": say_outcome(case, episode, decision),
        "status": "infrastructure fault" if fault else "",
        "tone": "good" if decision is not None and not decision.escalate else "bad",
        "error": visible(episode.error or ""),
        "cards": _make_cards(case, read, conflicts, verdict, episode),
        "options": list_options(case, read.table, decision.option if decision else None, roles),
        "chosen_word": "chosen",
        "conflicts": [say_conflict(conflict, roles) for conflict in conflicts],
        "ballots": list_ballots(case, episode, read, talk, roles),
        "worth": say_worth(valued, read, roles) if valued else [],
        "plan_rows": compare_with_best(valued, read, roles) if valued else [],
        "best_option": optimum.plan.option if optimum else "",
        "not_scored": "Not scored: an infrastructure fault is not the team's." if fault else NOT_SCORED,
        "mermaid": team_graph(tuple(case.seats)).get_graph().draw_mermaid(),
    }


def _describe_governed(
    case: PlayableCase,
    record: GovernedRecord,
    read: ReadEpisode,
    roles: Roles,
    course: PlannedCourse | None,
) -> Shown:
    """Collect the template's values for a governed episode."""
    num = len(record.chapters)
    course = course or PlannedCourse(cases=(case,) * num, truths=("",) * num, hindsight="")
    status, tone = STATUS.get(record.status, (record.status, ""))
    is_written = isinstance(case, FreeCase)
    return {
        "date": say_time(record.log[0].at_s if record.log else None),
        "outcome": say_decision(record, case),
        "status": status,
        "tone": tone,
        "error": visible(record.error or ""),
        "cards": make_governed_cards(record),
        "events": list_events(record, roles),
        "options": list_options(case, read.table, find_final_option(record), roles),
        "chosen_word": "carried out last",
        "precedents": [
            visible(f"{one['case']}: option {one['option']}, {one['status'].replace('_', ' ')}")
            for one in record.precedents
        ],
        "conflicts": list_conflicts(record, roles),
        "ballots": [],
        "plans": make_plan_chapters(record, course, roles),
        "hindsight": course.hindsight,
        "kpi_scale": measure_kpi_scale(record),
        "undecided": [
            make_ballot(case, read.table, one.message, one.text, one.votes, roles) for one in record.undecided
        ],
        "not_scored": NOT_SCORED if is_written else "Not scored: the episode is not at its end.",
        "log": record.log,
        "is_log_sound": record.is_log_sound,
        "mermaid": full_graph(tuple(case.seats), None).get_graph().draw_mermaid(),
    }


def _make_cards(
    case: PlayableCase,
    read: ReadEpisode,
    conflicts: Sequence[Conflict],
    verdict: TeamVerdict | None,
    episode: Episode,
) -> list[tuple[str, str, str]]:
    """(value, what it is, tone), the most important first."""
    decision, votes = read.decision, list(read.votes.values())
    decided = "-" if decision is None else "human" if decision.escalate else decision.option
    num_hard = sum(conflict.is_hard for conflict in conflicts)
    paid = [
        offer.cost
        for report in read.table.values()
        if report is not None and decision is not None
        for offer in report.offers
        if offer.option == decision.option and offer.label in decision.fund
    ]
    return [
        (decided, "decision", ""),
        (f"{sum(paid)} of {case.public.budget}", "k$ of the budget spent", ""),
        (f"{votes.count('accept')} of {len(case.seats)}" if episode.votes else "none", "votes to accept", ""),
        (str(num_hard), "hard conflicts between reports", "bad" if num_hard else ""),
        (f"{verdict.reward:.2f}" if verdict else "-", "team reward R" if verdict else "not scored", ""),
    ]


def _read_talk(episode: Episode, chat: Chat | None, roles: Roles) -> dict[str, list[Exchange]]:
    """Return every role's transcript as exchanges; nothing without the chat it was played with."""
    if chat is None:
        return {}
    return {
        role: read_exchanges(path, chat, roles[role])
        for role, path in episode.trajectories.items()
        if role in roles
    }


def minutes_file(episode: Episode) -> str:
    """The page's file name, e.g. "team-test-0-7-2.html" (with ".1" before the ending for a second play)."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", episode.scenario_key)
    return f"{name}{f'.{episode.index_in_group}' if episode.index_in_group else ''}.html"


def write_index(
    folder: Path,
    shown: Iterable[tuple[PlayableCase, Episode | GovernedRecord, TeamVerdict | None]],
    *,
    label: str,
) -> Path:
    """Write index.html beside the pages of these cases (`minutes_file`), with links in their order."""
    rows = [_make_index_row(*one) for one in shown]
    page = load_template("index.html").render(label=visible(label), rows=rows)
    return write_page(folder / "index.html", page)


def _make_index_row(
    case: PlayableCase, played: Episode | GovernedRecord, verdict: TeamVerdict | None
) -> Shown:
    if isinstance(played, GovernedRecord):
        episode, outcome = played.episode, say_decision(played, case)
        status, tone = STATUS.get(played.status, (played.status, ""))
    else:
        episode, decision = played, read_episode(case, played).decision
        status, tone = "", "good" if decision is not None and not decision.escalate else "bad"
        outcome = say_outcome(case, episode, decision)
    return {
        "file": minutes_file(episode),
        "title": find_title(case),
        "key": visible(case.key),
        "outcome": outcome,
        "status": status,
        "tone": tone,
        "reward": f"{verdict.reward:.2f}" if verdict else "",
    }
