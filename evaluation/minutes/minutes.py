"""The minutes of one episode, plain or governed: a single HTML file that reads like those of a meeting.

No script, no network: the page's own policy forbids both. What a case or a model wrote is escaped, and its
control characters are spelled out. Truth and scores are shown where a case has them, and left out where not.
"""

from collections.abc import Mapping
from typing import Any

from evaluation.minutes.episode_in_words import (
    MAX_BRIEF_CHARS,
    find_title,
    make_cards,
    measure_share,
    say_conflict,
    say_formula,
    say_outcome,
    say_titles,
)
from evaluation.minutes.governed_in_words import (
    STATUS,
    list_events,
    list_log,
    make_governed_cards,
    say_decision,
    say_time,
)
from evaluation.minutes.governed_truth import PlannedCourse
from evaluation.minutes.page_files import load_template
from evaluation.minutes.plan_chapters import (
    list_conflicts,
    make_plan_chapters,
    measure_kpi_scale,
)
from evaluation.minutes.speeches import Talk, list_asked, list_ballots, list_speeches, make_ballot
from evaluation.minutes.table_in_words import compare_with_best, list_options, list_seat_rows, say_worth
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import PlayableCase, TeamScenario
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange, read_exchanges
from simulator.chat import Chat
from simulator.conflicts import find_conflicts
from simulator.governance.governed_graph import full_graph_mermaid
from simulator.governance.governed_reward import open_episode
from simulator.governance.record import GovernedRecord
from simulator.governance.resolution import MAX_RISK
from simulator.graph.team_graph import graph_mermaid
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict

TEMPLATE_FILE = "minutes_template.html"
NOT_SCORED = "Not scored: nobody knows the right answer of a case that a person wrote."


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
    course: PlannedCourse | None = None,
) -> str:
    """The page as text; without `chat` it lacks earlier drafts, tool results and what ReconcileGPT read.

    A governed record adds the course of events, a chapter per plan with the human gate and its KPIs, and the
    decision log. `speakers` are the roles as their prompts had them, where not as in `roles`. `course`: the
    cases that the plans of a governed record were made on, and the truth about them.
    """
    episode = open_episode(played) if isinstance(played, GovernedRecord) else played
    talk = read_talk(episode, chat, speakers or roles)
    read = read_episode(case, episode)
    if isinstance(played, GovernedRecord):
        told = _describe_governed(case, played, read, roles, course)
    else:
        told = _describe_plain(case, played, read, talk, verdict, roles)
    return load_template(TEMPLATE_FILE).render(
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
        formula=say_formula(verdict, weights),
        shares=[measure_share(role, episode, roles) for role in episode.trajectories],
        **told,
    )


def _describe_plain(
    case: PlayableCase,
    episode: Episode,
    read: ReadEpisode,
    talk: Talk,
    verdict: TeamVerdict | None,
    roles: Mapping[str, Role],
) -> dict[str, Any]:
    """Collect the template's values for an episode without governance."""
    decision = read.decision
    conflicts = find_conflicts(case.public, read.table)
    ballots = list_ballots(case, episode, read, talk, roles)
    fault = episode.error is not None
    seats = tuple(case.seats)
    is_valued = isinstance(case, TeamScenario) and not fault
    return _list_governed_parts() | {
        "outcome": say_outcome(case, episode, decision),
        "status": "infrastructure fault" if fault else "",
        "tone": "good" if decision is not None and not decision.escalate else "bad",
        "error": visible(episode.error) if episode.error is not None else "",
        "cards": make_cards(case, read, conflicts, verdict, episode),
        "options": list_options(case, read.table, decision.option if decision else None, roles),
        "chosen_word": "chosen",
        "conflicts": [say_conflict(conflict, roles) for conflict in conflicts],
        "ballots": ballots,
        "worth": say_worth(case, read, roles) if is_valued and isinstance(case, TeamScenario) else [],
        "plan_rows": compare_with_best(case, read, roles)
        if is_valued and isinstance(case, TeamScenario)
        else [],
        "best_option": case.optimum.plan.option if isinstance(case, TeamScenario) and case.optimum else "",
        "not_scored": "Not scored: an infrastructure fault is not the team's." if fault else NOT_SCORED,
        "mermaid": graph_mermaid(seats),
    }


def _describe_governed(
    case: PlayableCase,
    record: GovernedRecord,
    read: ReadEpisode,
    roles: Mapping[str, Role],
    course: PlannedCourse | None,
) -> dict[str, Any]:
    """Collect the template's values for a governed episode."""
    seats, num = tuple(case.seats), len(record.chapters)
    course = course or PlannedCourse(cases=(case,) * num, truths=("",) * num, hindsight="")
    status, tone = STATUS.get(record.status, (record.status, ""))
    return _list_governed_parts() | {
        "date": say_time(record.log[0].at_s if record.log else None),
        "outcome": say_decision(record, case),
        "status": status,
        "tone": tone,
        "error": visible(record.error) if record.error is not None else "",
        "cards": make_governed_cards(record),
        "events": list_events(record, roles),
        "options": list_options(case, read.table, _final_option(record), roles),
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
        "not_scored": NOT_SCORED
        if isinstance(case, FreeCase)
        else "Not scored: the episode is not at its end.",
        "log": list_log(record),
        "is_log_sound": record.is_log_sound,
        "mermaid": full_graph_mermaid(seats),
    }


def _list_governed_parts() -> dict[str, Any]:
    """Return the parts of the page that a plain episode leaves empty."""
    parts: dict[str, Any] = dict.fromkeys(
        ("events", "plans", "undecided", "log", "precedents", "worth", "plan_rows"), ()
    )
    return parts | {"date": "", "hindsight": "", "kpi_scale": 0, "is_log_sound": True, "best_option": ""}


def _final_option(record: GovernedRecord) -> str | None:
    """Return the option that was committed last, which the option table marks."""
    committed = [chapter.proposal["option"] for chapter in record.chapters if chapter.is_committed]
    return committed[-1] if committed else None


def read_talk(episode: Episode, chat: Chat | None, roles: Mapping[str, Role]) -> dict[str, list[Exchange]]:
    """Return every role's transcript as exchanges; nothing without the chat it was played with."""
    if chat is None:
        return {}
    return {
        role: read_exchanges(path, chat, roles[role])
        for role, path in episode.trajectories.items()
        if role in roles
    }
