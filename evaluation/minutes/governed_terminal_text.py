"""Prints a governed episode on a terminal: the case, proposals with their offers, rulings, execution."""

from collections.abc import Iterator, Mapping
from typing import Any

from evaluation.minutes.chapter_in_words import (
    list_actuals,
    list_titles,
    name_option,
    say_alerts,
    say_answer,
    say_result,
)
from evaluation.minutes.episode_in_words import join_words
from evaluation.minutes.governed_overview import STATUS
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import NO_OPTION
from simulator.governance.store.episode_record import Chapter, GovernedRecord


def render_governed(record: GovernedRecord, roles: Mapping[str, Role] = ROLES) -> str:
    """One episode as plain text; nothing in it can move the cursor."""
    status, _ = STATUS.get(record.status, (record.status, ""))
    lines = [f"{record.episode.scenario_key}  {status}"]
    if record.error is not None:
        lines.append(f"  stopped: {record.error}")
    for precedent in record.precedents:
        lines.append(f"  recalls {precedent['case']}: {precedent['option']}, {precedent['status']}")
    if record.chapters:
        lines += _tell_case(record.chapters[0].proposal)
    for chapter, title in zip(record.chapters, list_titles(record), strict=True):
        lines += [f"  {title}: {name_option(chapter.proposal['option'])}", *_tell_chapter(chapter, roles)]
    return "\n".join(map(visible, lines))


def _tell_case(proposal: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {proposal['words']['context'] or proposal['words']['title']}"
    for line in proposal["options"]:
        meaning = proposal["words"]["meanings"].get(line["option"], "")
        yield f"  {line['option']}. {meaning}: worth {line['base']} k$ before any spending"
    yield f"  budget {proposal['budget']} k$, reserve {proposal['reserve']} k$"


def _tell_chapter(chapter: Chapter, roles: Mapping[str, Role]) -> Iterator[str]:
    proposal, told = chapter.proposal, chapter.observation
    for seat in chapter.reports:
        yield f"    {seat} reports: {_spell_report(proposal['reports'].get(seat))}"
    if proposal["option"] != NO_OPTION:
        yield (
            f"    cost {proposal['cost']} of {proposal['budget']} k$, worth {proposal['worth']} k$; "
            f"{proposal['decision_type']}, risk {proposal['risk_score']} of 12, "
            f"accountable {proposal['accountable']}"
        )
    for condition in proposal["conditions"]:
        yield f"    condition: {condition}"
    for answer in chapter.answers:
        word, _, who, _, words = say_answer(answer)
        yield f"    reviewer {who}: {word}{f' ({words})' if words else ''}"
    for part in proposal["parts"] if chapter.delivered else ():
        yield f"    {part['role']}: {part['action']}"
    if told is None:
        return
    yield from (f"    unforeseen: {shock}" for shock in told["shocks"])
    yield from (f"    {line}" for line in list_actuals(told, roles))
    yield "    measured: " + "; ".join(f"{seat} {words}" for seat, words in told["figures"].items())
    yield f"    {say_result(told)}"
    if chapter.alerts:
        yield f"    alert: {say_alerts(chapter, roles)}"


def _spell_report(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "nothing valid"
    offers = [
        f"{offer['option']} {join_words(offer['part'])} (cost {offer['cost']}, worth {offer['worth']}"
        f"{', needed' if offer['option'] in report['needs'] else ''}"
        f"{', funded' if offer['is_funded'] else ''})"
        for offer in report["offers"]
    ]
    vetoes = f"; vetoes {join_words(report['veto'])}" if report["veto"] else ""
    return f"{'; '.join(offers) or 'no offers'}{vetoes}"
