"""Chapters of a governed episode's minutes, one per proposal, in words and figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.minutes.episode_in_words import say_conflict, say_titles
from evaluation.minutes.governed_in_words import (
    Tone,
    find_meaning,
    list_actuals,
    list_titles,
    say_alerts,
    say_answer,
    say_result,
)
from evaluation.minutes.governed_truth import PlannedCourse, read_chapters
from evaluation.minutes.speeches import AskedOffer, Ballot, list_asked, make_ballot
from evaluation.minutes.table_in_words import SeatRow, list_seat_rows
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.team import NO_OPTION
from scenarios.team.playable import PlayableCase
from simulator.conflicts import Conflict
from simulator.governance.record import Chapter, GovernedRecord
from simulator.reading import ReadEpisode

MAX_KPI_SCALE = 400  # percent; a KPI above it fills its bar and is marked


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionLine:
    """One option and its best plan by the reports."""

    letter: str
    meaning: str
    base: int
    best: str  # "100 k$ with CTO and COO at cost 40", or why it cannot be run
    note: str  # "proposed", or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One plan part and what became of it."""

    title: str
    action: str
    bill: str  # "9 -> 14", or "-"
    floor: int  # percent of the seat's hard limit
    kpi: int | None  # None: nothing observed
    figures: str  # as measured after execution
    lost: int  # k$ less than promised
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
    news: tuple[str, ...]  # what execution revealed before it
    again: str  # who reported again; "" for nobody
    table: tuple[SeatRow, ...]  # all offers it was made from; empty for the first plan, which the page shows
    letters: tuple[str, ...]
    asked: tuple[AskedOffer, ...]
    ballots: tuple[Ballot, ...]
    option: str
    meaning: str
    money: str
    kind: str
    risk: int
    conditions: tuple[str, ...]
    options: tuple[OptionLine, ...]
    duties: str
    digest: str
    answers: tuple[tuple[str, Tone, str, str, str], ...]  # ruling, tone, reviewer, time, words
    parts: tuple[PartRow, ...]
    has_result: bool  # it was carried out
    shocks: tuple[str, ...]
    actuals: tuple[str, ...]  # upgrades that brought less than was stated
    result: str  # promised, in place, left; "" where nothing was observed
    truth: str  # what the plan was really worth; "" without truth
    ending: str
    tone: Tone


def make_plan_chapters(
    record: GovernedRecord, course: PlannedCourse, roles: Mapping[str, Role]
) -> list[PlanChapter]:
    """Return all chapters in order."""
    made, before, kpi_scale = [], None, measure_kpi_scale(record)
    told = read_chapters(record, course.cases)
    chapters = zip(record.chapters, list_titles(record), course.cases, told, course.truths, strict=True)
    for number, (chapter, title, case, read, truth) in enumerate(chapters, 1):
        made.append(_make_plan_chapter(number, title, chapter, before, case, read, truth, roles, kpi_scale))
        before = chapter
    return made


def _make_plan_chapter(
    number: int,
    title: str,
    chapter: Chapter,
    before: Chapter | None,
    case: PlayableCase,
    read: ReadEpisode,
    truth: str,
    roles: Mapping[str, Role],
    kpi_scale: int,
) -> PlanChapter:
    proposal, told = chapter.proposal, chapter.observation
    option = proposal["option"]
    ending, tone = _say_ending(chapter)
    is_replan = chapter.attempt > 0
    return PlanChapter(
        title=title,
        anchor=f"plan-{number}",
        opening=_say_opening(before, roles),
        news=tuple(_list_news(before)),
        again=say_titles([seat for seat in case.seats if seat in chapter.reports], roles)
        if is_replan
        else "",
        table=tuple(list_seat_rows(case, read.table, read.plan, roles)) if is_replan else (),
        letters=case.options,
        asked=tuple(
            one for draft in chapter.drafts for one in list_asked(case, draft.asked, roles) if is_replan
        ),
        ballots=tuple(
            make_ballot(case, read.table, one.message, one.text, one.votes, roles) for one in chapter.drafts
        ),
        option="the reviewer decides" if option == NO_OPTION else visible(option),
        meaning=find_meaning(case, option),
        money=say_money(proposal),
        kind=proposal["decision_type"],
        risk=proposal["risk_score"],
        conditions=tuple(
            say_condition(condition, list(case.seats), roles) for condition in proposal["conditions"]
        ),
        options=tuple(
            list_option_lines(
                proposal, {letter: option.name for letter, option in case.public.options.items()}, roles
            )
        ),
        duties=say_duties(proposal, roles),
        digest=chapter.digest,
        answers=tuple(say_answer(answer) for answer in chapter.answers),
        parts=tuple(_make_rows(chapter, roles, kpi_scale)),
        has_result=bool(chapter.delivered or chapter.kpis),
        shocks=tuple(visible(shock) for shock in (told["shocks"] if told else ())),
        actuals=tuple(list_actuals(told, roles)),
        result=say_result(told),
        truth=truth,
        ending=ending,
        tone=tone,
    )


def _say_opening(before: Chapter | None, roles: Mapping[str, Role]) -> str:
    if before is None:
        return ""
    option = before.proposal["option"]
    if before.alerts and before.observation is not None:
        return f"Monitoring raised an alert on option {visible(option)}: {say_alerts(before, roles)}."
    last = before.answers[-1]
    if last.ruling == "reject":
        out = "" if option == NO_OPTION else f" Option {visible(option)} is out."
        return f"The reviewer rejected the proposal before.{out}"
    return "The reviewer put another option in place of the team's." if last.ruling == "edit" else ""


def _list_news(before: Chapter | None) -> Iterator[str]:
    """Return what everybody knows before a re-plan."""
    if before is None or not before.alerts or before.observation is None:
        return
    told = before.observation
    yield from (visible(shock) for shock in told["shocks"])
    yield f"{told['cost']} k$ are spent and what they bought stays; {told['left']} k$ are left."


def say_money(proposal: Mapping[str, Any]) -> str:
    """Say what a proposal costs and promises."""
    if proposal["option"] == NO_OPTION:
        return f"Of {proposal['budget']} k$ nothing is spent."
    reserve = f" (reserve {proposal['reserve']} k$)" if proposal["reserve"] else ""
    return (
        f"It costs {proposal['cost']} of {proposal['budget']} k${reserve} and promises "
        f"{proposal['worth']} k$ a month."
    )


def list_conflicts(record: GovernedRecord, roles: Mapping[str, Role]) -> list[tuple[bool, str]]:
    """(is hard, sentence) of every conflict between the first reports."""
    conflicts = record.chapters[0].proposal["conflicts"] if record.chapters else []
    return [
        say_conflict(Conflict.model_validate({**one, "option": visible(one["option"])}), roles)
        for one in conflicts
    ]


def say_condition(condition: str, seats: Sequence[str], roles: Mapping[str, Role]) -> str:
    """Return a condition as people say it: a seat by its title, an option as one."""
    first, _, rest = condition.partition(" ")
    if first in seats:
        return visible(f"{say_titles([first], roles)} {rest}")
    return visible(f"Option {condition}" if rest.startswith("stays out: ") else condition)


def list_option_lines(
    proposal: Mapping[str, Any], meanings: Mapping[str, str], roles: Mapping[str, Role]
) -> Iterator[OptionLine]:
    """Yield every option of a proposal with its best plan by the reports; `meanings`: their names."""
    for line in proposal["options"]:
        best = f"cannot be run: {visible(line['obstacle'])}"
        if line["worth"] is not None:
            seats = [
                label if label in proposal["reports"] else label.rstrip("0123456789")
                for label in line["fund"]
            ]
            funded = say_titles(seats, roles) if seats else "nothing funded"
            best = f"{line['worth']} k$ with {funded}, at cost {line['cost']}"
        yield OptionLine(
            letter=visible(line["option"]),
            meaning=visible(meanings.get(line["option"], "")),
            base=line["base"],
            best=best,
            note="proposed" if line["option"] == proposal["option"] else "",
        )


def say_duties(proposal: Mapping[str, Any], roles: Mapping[str, Role]) -> str:
    """Say which seats answer for a proposal's plan."""
    if proposal["option"] == NO_OPTION:
        return "The reviewer answers for the case."
    consulted = proposal["consulted"]
    also = f"; consulted: {say_titles(consulted, roles)}" if consulted else ""
    return (
        f"Responsible: {say_titles(proposal['responsible'], roles)}; accountable: "
        f"{say_titles([proposal['accountable']], roles)}{also}."
    )


def measure_kpi_scale(record: GovernedRecord) -> int:
    """Percent that a full KPI bar of the page stands for: 200, or the highest KPI up to 400."""
    highest = max((kpi for chapter in record.chapters for kpi in chapter.kpis.values()), default=0)
    return min(MAX_KPI_SCALE, max(200, -(-highest // 50) * 50))


def _make_rows(chapter: Chapter, roles: Mapping[str, Role], scale: int) -> Iterator[PartRow]:
    told = chapter.observation or {}
    for part in chapter.proposal["parts"]:
        role, floor = part["role"], part["kpi_floor"]
        kpi = chapter.kpis.get(role)
        word, tone = "planned", ""
        if kpi is not None:
            word, tone = ("alert", "bad") if role in chapter.alerts else ("holds", "good")
        elif role in chapter.delivered:
            word = "carried out"
        yield PartRow(
            title=say_titles([role], roles),
            action=visible(part["action"]),
            bill=f"cost {part['cost']}, worth {part['worth']}" if part["choice"] else "-",
            floor=floor,
            kpi=kpi,
            figures=visible(told.get("figures", {}).get(role, "")),
            lost=told.get("lost", {}).get(role, 0),
            width=min(100, 100 * (kpi or 0) // scale),
            mark=min(100, 100 * floor // scale),
            word=word,
            tone=tone,
        )


def _say_ending(chapter: Chapter) -> tuple[str, Tone]:
    last = chapter.answers[-1].ruling
    if chapter.alerts:
        return "Monitoring raised an alert.", "bad"
    if chapter.kpis:
        return "Every limit holds, and the plan brings what it promised.", "good"
    if chapter.is_committed:
        return "Approved; there was nothing to carry out.", "warn"
    words = {
        "reject": "Sent back.",
        "edit": "Replaced by the reviewer.",
        "refused": "Nobody's answer counted.",
    }
    return words.get(last, "Waits for its reviewer."), "bad" if last in words else "warn"
