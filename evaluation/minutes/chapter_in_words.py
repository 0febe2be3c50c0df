"""Words for the chapters of a governed episode, a sentence or a name each, for its page and the terminal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from evaluation.minutes.episode_in_words import join_words, say_titles
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.team import NO_OPTION
from scenarios.team.playable import PlayableCase
from simulator.governance.governed_graph import MAX_REPLANS
from simulator.governance.store.episode_record import Answer, Chapter, GovernedRecord

Tone = str  # "good", "bad", "warn" or "" for a badge
RULINGS: Mapping[str, tuple[str, Tone]] = {
    "approve": ("approved", "good"),
    "edit": ("edited", "warn"),
    "reject": ("rejected", "bad"),
    "refused": ("answer did not count", "bad"),
    "waiting": ("waiting", ""),
}


def find_ruling(ruling: str) -> tuple[str, Tone]:
    """Return a ruling as a word with its tone."""
    return RULINGS.get(ruling, (ruling, ""))


def list_titles(record: GovernedRecord) -> list[str]:
    """Return which plan each chapter is, with its number where a plan took several proposals."""
    proposals = Counter(chapter.attempt for chapter in record.chapters)
    counted: Counter[int] = Counter()
    titles = []
    for chapter in record.chapters:
        counted[chapter.attempt] += 1
        plan = "First plan" if chapter.attempt == 0 else f"Re-plan {chapter.attempt} of at most {MAX_REPLANS}"
        if proposals[chapter.attempt] > 1:
            plan += f", proposal {counted[chapter.attempt]}"
        titles.append(plan if chapter.drafts else f"{plan} (the reviewer's own option)")
    return titles


def say_alerts(chapter: Chapter, roles: Mapping[str, Role]) -> str:
    """Return which seats raised the alert, with their figures: "COO at 92 % of its limit, 10 k$ lost"."""
    lost = (chapter.observation or {}).get("lost", {})
    return join_words(
        [
            f"{say_titles([role], roles)} at {chapter.kpis.get(role, 0)} % of its limit, "
            f"{lost.get(role, 0)} k$ lost"
            for role in chapter.alerts
        ]
    )


def list_actuals(told: Mapping[str, Any] | None, roles: Mapping[str, Role]) -> Iterator[str]:
    """Upgrades that brought less than was stated, one sentence each."""
    for one in told["actuals"] if told else ():
        if one["lost"]:
            yield visible(
                f"{say_titles([one['seat']], roles)}: {one['upgrade']} brought {one['actual']}, "
                f"stated were {one['stated']}."
            )


def say_result(told: Mapping[str, Any] | None) -> str:
    """Return what a plan promised, what is in place, what money is left; "" where nothing was observed."""
    if told is None:
        return ""
    return (
        f"Promised were {told['promised']} k$, in place are {told['worth']} k$. The plan cost "
        f"{told['cost']} k$; {told['left']} k$ are left, the reserve included."
    )


def find_meaning(case: PlayableCase, option: str) -> str:
    """Return the words that an option stands for; "" for none."""
    known = case.public.options.get(option)
    return visible(known.name) if known else ""


def say_answer(answer: Answer) -> tuple[str, Tone, str, str, str]:
    """(ruling, tone, reviewer, time, words)."""
    word, tone = find_ruling(answer.ruling)
    words = visible(answer.feedback or answer.reason)
    if answer.option is not None:
        words = f"{visible(answer.option)} in its place. {words}".strip()
    return (
        word,
        tone,
        visible(answer.reviewer) or "nobody yet",
        say_time(answer.answered_at_s or answer.shown_at_s),
        words,
    )


def name_option(option: str) -> str:
    """Return the option of a proposal as the end of a sentence."""
    return "hand the case over" if option == NO_OPTION else f"option {visible(option)}"


def say_time(at_s: int | None) -> str:
    """Return a UNIX time in UTC, to the second; "" for None."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at_s is not None else ""


def say_clock(at_s: int | None) -> str:
    """Return the time of day of a UNIX time in UTC; "" for None."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S") if at_s is not None else ""


def list_bought(chapters: Sequence[Chapter]) -> list[str]:
    """List what was bought in all, for the option that is in place, in order."""
    carried = [chapter.proposal for chapter in chapters if chapter.observation is not None]
    option = carried[-1]["option"] if carried else ""
    return [
        name
        for proposal in carried
        if proposal["option"] == option
        for part in proposal["parts"]
        for name in part["choice"]
    ]
