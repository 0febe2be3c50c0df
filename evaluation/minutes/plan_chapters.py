"""Chapters of a governed episode's minutes, one per proposal, in words and figures."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from evaluation.minutes.episode_in_words import Ballot, join_words, make_ballot, say_conflict, say_titles
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.team import NO_OPTION, Decision
from scenarios.team import TeamScenario, decision_value
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.conflicts import Conflict
from simulator.governance.governed_graph import MAX_REPLANS
from simulator.governance.store.episode_record import Answer, Chapter, GovernedRecord

MAX_KPI_SCALE = 400  # percent; a KPI above it fills its bar and is marked
Tone = str  # "good", "bad", "warn" or "" for a badge
RULINGS: Mapping[str, tuple[str, Tone]] = {
    "approve": ("approved", "good"),
    "edit": ("edited", "warn"),
    "reject": ("rejected", "bad"),
    "refused": ("answer did not count", "bad"),
    "waiting": ("waiting", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One option's score: the share of all pressing behind it."""

    letter: str
    meaning: str
    score: int  # percent
    note: str  # "proposed", "ruled out", or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One plan part and what became of it."""

    title: str
    action: str
    floor: int  # percent of the seat's hard limit
    kpi: int | None  # None: nothing observed
    width: int  # of its bar, 0 to 100; the floor stands at `mark`
    mark: int
    word: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChapter:
    """One chapter of the page: a proposal from its first draft to what came of it."""

    title: str
    anchor: str
    opening: str  # why there is a new proposal; "" for the first
    ballots: tuple[Ballot, ...]
    option: str
    meaning: str
    kind: str
    risk: int
    conditions: tuple[str, ...]
    bars: tuple[Bar, ...]
    score_note: str  # why the scores do not add up to 100 %; "" where they do
    accountable: str
    digest: str
    answers: tuple[tuple[str, Tone, str, str, str], ...]  # ruling, tone, reviewer, time, words
    parts: tuple[PartRow, ...]
    has_result: bool  # it was carried out
    shock: str
    truth: str  # what the option was really worth; "" without truth
    ending: str
    tone: Tone


def make_plan_chapters(
    record: GovernedRecord, case: PlayableCase, roles: Mapping[str, Role]
) -> list[PlanChapter]:
    """Return all chapters in order."""
    made, before, kpi_scale = [], None, measure_kpi_scale(record)
    for number, (chapter, title) in enumerate(zip(record.chapters, list_titles(record), strict=True), 1):
        made.append(_make_plan_chapter(number, title, chapter, before, case, roles, kpi_scale))
        before = chapter
    return made


def _make_plan_chapter(
    number: int,
    title: str,
    chapter: Chapter,
    before: Chapter | None,
    case: PlayableCase,
    roles: Mapping[str, Role],
    kpi_scale: int,
) -> PlanChapter:
    proposal = chapter.proposal
    option = proposal["option"]
    ending, tone = _say_ending(chapter)
    return PlanChapter(
        title=title,
        anchor=f"plan-{number}",
        opening=_say_opening(before, roles),
        ballots=tuple(make_ballot(case, one.message, one.text, one.votes, roles) for one in chapter.drafts),
        option="the reviewer decides" if option == NO_OPTION else visible(option),
        meaning=find_meaning(case, option),
        kind=proposal["decision_type"],
        risk=proposal["risk_score"],
        conditions=tuple(_say_condition(condition, case, roles) for condition in proposal["conditions"]),
        bars=tuple(_make_bars(chapter, case)),
        score_note=_say_missing_score(proposal["option_scores"]),
        accountable=say_titles([proposal["accountable"]], roles),
        digest=chapter.digest,
        answers=tuple(say_answer(answer) for answer in chapter.answers),
        parts=tuple(_make_rows(chapter, roles, kpi_scale)),
        has_result=bool(chapter.delivered or chapter.kpis),
        shock=visible(chapter.shock),
        truth=_say_truth(case, option),
        ending=ending,
        tone=tone,
    )


def list_titles(record: GovernedRecord) -> list[str]:
    """Which plan each chapter is, with its number where a plan took several proposals."""
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


def _say_opening(before: Chapter | None, roles: Mapping[str, Role]) -> str:
    if before is None:
        return ""
    option = before.proposal["option"]
    if before.alerts:
        figures = join_words(
            [f"{say_titles([role], roles)} {before.kpis.get(role, 0)} %" for role in before.alerts]
        )
        return (
            f"Execution revealed that option {visible(option)} does not hold: {figures}. The option is out."
        )
    last = before.answers[-1]
    if last.ruling == "reject":
        out = "" if option == NO_OPTION else f" Option {visible(option)} is out."
        return f"The reviewer rejected the proposal before.{out}"
    return "The reviewer put another option in place of the team's." if last.ruling == "edit" else ""


def find_meaning(case: PlayableCase, option: str) -> str:
    """Return the words that an option stands for; "" for options that are letters alone."""
    return visible(case.meanings.get(option, "")) if isinstance(case, FreeCase) else ""


def list_conflicts(record: GovernedRecord, roles: Mapping[str, Role]) -> list[tuple[bool, str]]:
    """(is hard, sentence) of every conflict; reports are written once, so every proposal has the same."""
    conflicts = record.chapters[0].proposal["conflicts"] if record.chapters else []
    return [
        say_conflict(Conflict.model_validate({**one, "option": visible(one["option"])}), roles)
        for one in conflicts
    ]


def _say_condition(condition: str, case: PlayableCase, roles: Mapping[str, Role]) -> str:
    """Return a condition as people say it: a seat by its title, an option as one."""
    first, _, rest = condition.partition(" ")
    if first in case.seats:
        return visible(f"{say_titles([first], roles)} {rest}")
    return visible(f"Option {condition}" if rest.startswith("stays out: ") else condition)


def _make_bars(chapter: Chapter, case: PlayableCase) -> Iterator[Bar]:
    proposal = chapter.proposal
    vetoed = {conflict["option"] for conflict in proposal["conflicts"] if conflict["ruled_out_by"]}
    out = {line.split()[0] for line in proposal["conditions"] if " stays out: " in line}
    for option, score in proposal["option_scores"].items():
        note = "proposed" if option == proposal["option"] else ""
        if option in out:
            note = "out since before"
        elif option in vetoed and not note:
            note = "ruled out"
        yield Bar(letter=visible(option), meaning=find_meaning(case, option), score=score, note=note)


def _say_missing_score(scores: Mapping[str, int]) -> str:
    """Why option scores add up to less than 100 %."""
    total = sum(scores.values())
    if total >= 100:
        return ""
    return (
        f"These add up to {total} %: an option that is ruled out scores 0, so what pressed for it is missing,"
        " and every share is rounded down."
    )


def measure_kpi_scale(record: GovernedRecord) -> int:
    """Percent that a full KPI bar of the page stands for: 200, or the highest KPI up to 400."""
    highest = max((kpi for chapter in record.chapters for kpi in chapter.kpis.values()), default=0)
    return min(MAX_KPI_SCALE, max(200, -(-highest // 50) * 50))


def say_answer(answer: Answer) -> tuple[str, Tone, str, str, str]:
    """(ruling, tone, reviewer, time, words)."""
    word, tone = RULINGS.get(answer.ruling, (answer.ruling, ""))
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


def _make_rows(chapter: Chapter, roles: Mapping[str, Role], scale: int) -> Iterator[PartRow]:
    for part in chapter.proposal["parts"]:
        role, floor = part["role"], part["kpi_floor"]
        kpi = chapter.kpis.get(role)
        word, tone = "planned", ""
        if kpi is not None:
            word, tone = ("below its floor", "bad") if role in chapter.alerts else ("holds", "good")
        elif role in chapter.delivered:
            word = "carried out"
        yield PartRow(
            title=say_titles([role], roles),
            action=visible(part["action"]),
            floor=floor,
            kpi=kpi,
            width=min(100, 100 * (kpi or 0) // scale),
            mark=min(100, 100 * floor // scale),
            word=word,
            tone=tone,
        )


def _say_truth(case: PlayableCase, option: str) -> str:
    if not isinstance(case, TeamScenario):
        return ""
    decision = Decision(option=option, escalate=option == NO_OPTION)
    value = decision_value(case, decision)
    if option == NO_OPTION:
        return (
            "Handing over was right: no option keeps every limit." if value else "Handing over was needless."
        )
    if case.truth["vetoes"].get(option):
        return f"V = 0: it breaks the hard limit of {join_words(case.truth['vetoes'][option])}."
    best = case.truth["best"]
    return f"V = {value:.2f}, {'the best there is' if option == best else f'the best is {best}'}."


def _say_ending(chapter: Chapter) -> tuple[str, Tone]:
    last = chapter.answers[-1].ruling
    if chapter.alerts:
        return "Monitoring raised an alert.", "bad"
    if chapter.kpis:
        return "Every KPI reached its floor.", "good"
    if chapter.is_committed:
        return "Approved; there was nothing to carry out.", "warn"
    words = {
        "reject": "Sent back.",
        "edit": "Replaced by the reviewer.",
        "refused": "Nobody's answer counted.",
    }
    return words.get(last, "Waits for its reviewer."), "bad" if last in words else "warn"


def say_time(at_s: int | None) -> str:
    """Return a UNIX time in UTC, to the second; "" for None."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at_s is not None else ""


def say_clock(at_s: int | None) -> str:
    """Return the time of day of a UNIX time in UTC; "" for None."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S") if at_s is not None else ""
