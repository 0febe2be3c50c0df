"""Overview of a governed episode: key figures, course of events, decision log, visits of each node."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from evaluation.minutes.chapter_in_words import (
    Tone,
    find_meaning,
    list_actuals,
    list_bought,
    list_titles,
    name_option,
    say_alerts,
    say_answer,
    say_clock,
    say_result,
)
from evaluation.minutes.episode_in_words import join_words
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.team import NO_OPTION
from scenarios.team.playable import PlayableCase
from simulator.governance.resolution import MAX_RISK
from simulator.governance.store.decision_log import Entry
from simulator.governance.store.episode_record import Chapter, GovernedRecord

STATUS: Mapping[str, tuple[str, Tone]] = {
    "completed": ("Carried out, every KPI holds", "good"),
    "completed_with_alerts": ("Carried out, with alerts left", "warn"),
    "handed_over": ("Handed over to the reviewer", "warn"),
    "not_approved": ("Not approved, nothing carried out", "bad"),
    "waiting": ("Waits for a reviewer", "warn"),
    "failed": ("Broke off: an engine failed", "bad"),
    "violation": ("Stopped at the gate", "bad"),
}


def say_decision(record: GovernedRecord, case: PlayableCase) -> str:
    """Say the decision in force in one sentence."""
    committed = [chapter.proposal["option"] for chapter in record.chapters if chapter.is_committed]
    if not committed:
        return "Nothing was approved."
    if committed[-1] == NO_OPTION:
        return "The reviewer takes the case over."
    meaning = find_meaning(case, committed[-1])
    bought = visible(join_words(list_bought(record.chapters))) or "nothing bought"
    tried = [option for option in dict.fromkeys(committed[:-1]) if option != committed[-1]]
    before = f", after {join_words(tried)} did not hold" if tried else ""
    name = f"Option {visible(committed[-1])}" + (f", {meaning}" if meaning else "")
    return f"{name}, with {bought}{before}"


def make_governed_cards(record: GovernedRecord) -> list[tuple[str, str, Tone]]:
    """(value, what it is, tone), the most important first."""
    carried = [chapter for chapter in record.chapters if chapter.is_committed]
    option = carried[-1].proposal["option"] if carried else "-"
    num_replans = max((chapter.attempt for chapter in record.chapters), default=0)
    rulings = Counter(answer.ruling for chapter in record.chapters for answer in chapter.answers)
    observed = [chapter.observation for chapter in record.chapters if chapter.observation is not None]
    kpis = list(observed[-1]["kpis"].values()) if observed else []
    spent = sum(told["cost"] for told in observed)
    is_handed_over = option == NO_OPTION
    return [
        ("human", "decides from here", "")
        if is_handed_over
        else (option, "option in place", "good" if carried else ""),
        (f"{observed[-1]['worth']} k$" if observed else "-", "a month in place", ""),
        (f"{spent} k$", "spent in all", ""),
        (str(num_replans), "re-plan" if num_replans == 1 else "re-plans", "warn" if num_replans else ""),
        (f"{rulings['approve']} of {sum(rulings.values())}", "proposals approved", ""),
        (f"{min(kpis)} %" if kpis else "-", "lowest KPI", _tone_of(min(kpis)) if kpis else ""),
    ]


def _tone_of(kpi: int) -> Tone:
    return "good" if kpi >= 100 else "bad"


def list_events(record: GovernedRecord, roles: Mapping[str, Role]) -> list[tuple[str, str, str, Tone]]:
    """(time, title, words, tone) of the whole episode: what a reader in a hurry needs."""
    events: list[tuple[str, str, str, Tone]] = []
    for chapter, title in zip(record.chapters, list_titles(record), strict=True):
        events.append(_tell_proposal(chapter, title))
        for answer in chapter.answers:
            word, tone, who, _, words = say_answer(answer)
            at = say_clock(answer.answered_at_s)
            events.append((at, f"{who.capitalize()} reviewer: {word}", words, tone))
        if chapter.observation is not None:
            at = _time_of(record.log, "observed", chapter.digest)
            events.append((at, *_say_execution(chapter, chapter.observation, roles)))
    words, tone = STATUS.get(record.status, (record.status, ""))
    events.append((_time_of(record.log, "closed", ""), words, visible(record.error or ""), tone))
    return events


def _tell_proposal(chapter: Chapter, title: str) -> tuple[str, str, str, Tone]:
    proposal = chapter.proposal
    words = f"{proposal['decision_type']}, risk {proposal['risk_score']} of {MAX_RISK}"
    if proposal["option"] != NO_OPTION:
        bought = [name for part in proposal["parts"] for name in part["choice"]]
        words = (
            f"{visible(join_words(bought)) or 'Nothing'} for {proposal['cost']} of {proposal['budget']} k$, "
            f"promising {proposal['worth']} k$; {words}"
        )
    at = say_clock(chapter.answers[0].shown_at_s)
    return at, f"{title}: {name_option(proposal['option'])}", words, ""


def _say_execution(
    chapter: Chapter, told: Mapping[str, Any], roles: Mapping[str, Role]
) -> tuple[str, str, Tone]:
    shocks = [visible(shock) for shock in told["shocks"]]
    lines = [*shocks, *list_actuals(told, roles)]
    if chapter.alerts:
        lines += [f"{say_alerts(chapter, roles)}.", say_result(told)]
        return "Carried out: monitoring raises an alert", " ".join(lines), "bad"
    return "Carried out: every limit holds", " ".join([*lines, say_result(told)]), "good"


def _time_of(log: tuple[Entry, ...], kind: str, digest: str) -> str:
    found = [entry.at_s for entry in log if entry.kind == kind and digest in ("", entry.body.get("digest"))]
    return say_clock(found[-1] if found else None)


def list_log(record: GovernedRecord) -> list[tuple[str, ...]]:
    """(number, time, kind, what, digest, hash) of every entry; digest and hash cut to 12 digits."""
    return [
        (
            str(entry.sequence),
            say_clock(entry.at_s),
            entry.kind,
            visible(say_entry(entry.kind, entry.body)),
            str(entry.body.get("digest", ""))[:12],
            entry.hash[:12],
        )
        for entry in record.log
    ]


def say_entry(kind: str, body: Mapping[str, Any]) -> str:
    """One entry of the decision log in words."""
    hidden = ("digest", "interrupt_id", "nonce", "signature")
    kept = {name: value for name, value in body.items() if name not in hidden and value not in ("", None, [])}
    if kind == "observed":
        kpis = " ".join(f"{role} {kpi}" for role, kpi in body["kpis"].items())
        return f"KPIs {kpis}; {body['worth']} of {body['promised']} k$ in place, {body['left']} left. " + (
            " ".join(body["shocks"])
        )
    if kind == "executed":
        return f"{body['role']}: {body['action']}"
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in kept.items())


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
