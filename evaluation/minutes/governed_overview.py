"""Overview of a governed episode: key figures, course of events, decision log, visits of each node."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from evaluation.minutes.episode_in_words import join_words, say_titles
from evaluation.minutes.plan_chapters import Tone, find_meaning, list_titles, say_answer, say_clock
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.team import NO_OPTION, RECONCILER
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
    tried = list(dict.fromkeys(committed[:-1]))
    before = f", after {join_words(tried)} did not hold" if tried else ""
    name = f"{committed[-1]}. {meaning}" if meaning else f"Option {committed[-1]} is in place"
    return f"{visible(name)}{before}"


def make_governed_cards(record: GovernedRecord) -> list[tuple[str, str, Tone]]:
    """(value, what it is, tone), the most important first."""
    carried = [chapter for chapter in record.chapters if chapter.is_committed]
    option = carried[-1].proposal["option"] if carried else "-"
    num_replans = max((chapter.attempt for chapter in record.chapters), default=0)
    rulings = Counter(answer.ruling for chapter in record.chapters for answer in chapter.answers)
    kpis = [kpi for chapter in carried[-1:] for kpi in chapter.kpis.values()]
    last = record.chapters[-1] if record.chapters else None
    return [
        ("human" if option == NO_OPTION else option, "option in place", "good" if carried else ""),
        (str(num_replans), "re-plan" if num_replans == 1 else "re-plans", "warn" if num_replans else ""),
        (f"{rulings['approve']} of {sum(rulings.values())}", "proposals approved", ""),
        (f"{last.proposal['risk_score']} / {MAX_RISK}" if last else "-", "risk at the end", ""),
        (f"{min(kpis)} %" if kpis else "-", "lowest KPI", _tone_of(min(kpis)) if kpis else ""),
    ]


def _tone_of(kpi: int) -> Tone:
    return "good" if kpi >= 100 else "bad"


def list_events(record: GovernedRecord, roles: Mapping[str, Role]) -> list[tuple[str, str, str, Tone]]:
    """(time, title, words, tone) of the whole episode: what a reader in a hurry needs."""
    events: list[tuple[str, str, str, Tone]] = []
    for chapter, title in zip(record.chapters, list_titles(record), strict=True):
        proposal = chapter.proposal
        option = (
            "hand the case over"
            if proposal["option"] == NO_OPTION
            else f"option {visible(proposal['option'])}"
        )
        first = chapter.answers[0]
        events.append(
            (
                say_clock(first.shown_at_s),
                f"{title}: {option}",
                f"{proposal['decision_type']}, risk {proposal['risk_score']} of {MAX_RISK}",
                "",
            )
        )
        for answer in chapter.answers:
            word, tone, who, _, words = say_answer(answer)
            at = say_clock(answer.answered_at_s)
            events.append((at, f"{who.capitalize()} reviewer: {word}", words, tone))
        if chapter.kpis:
            events.append((_time_of(record.log, "observed", chapter.digest), *_say_execution(chapter, roles)))
    words, tone = STATUS.get(record.status, (record.status, ""))
    events.append((_time_of(record.log, "closed", ""), words, visible(record.error or ""), tone))
    return events


def _say_execution(chapter: Chapter, roles: Mapping[str, Role]) -> tuple[str, str, Tone]:
    shock = f"{visible(chapter.shock).capitalize()}. " if chapter.shock else ""
    if chapter.alerts:
        fallen = join_words(
            [f"{say_titles([role], roles)} at {chapter.kpis.get(role, 0)} %" for role in chapter.alerts]
        )
        return "Carried out: a KPI fell below its floor", f"{shock}{fallen}.", "bad"
    return "Carried out: every KPI holds", f"{shock}Lowest at {min(chapter.kpis.values())} %.", "good"


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
        return f"KPIs {kpis}{', ' + body['shock'] if body['shock'] else ''}"
    if kind == "executed":
        return f"{body['role']}: {body['action']}"
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in kept.items())


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def count_full_visits(record: GovernedRecord, seats: tuple[str, ...]) -> dict[str, int]:
    """Count the runs of each node of the governed graph, as far as the record tells."""
    kinds = Counter(entry.kind for entry in record.log)
    drafts = [draft for chapter in record.chapters for draft in chapter.drafts]
    executed = Counter(role for chapter in record.chapters for role in chapter.delivered)
    return {
        **{role: int(role in record.episode.reports) for role in seats},
        RECONCILER: len(drafts) + len(record.undecided),
        "vote": sum(bool(draft.votes) for draft in (*drafts, *record.undecided)),
        "propose": len(record.chapters),
        "review": sum(len(chapter.answers) for chapter in record.chapters),
        "commit": kinds["committed"],
        **{f"execute_{role}": executed[role] for role in seats},
        "outcome": kinds["observed"],
        "monitor": kinds["observed"],
        "replan": kinds["replanned"],
        "close": kinds["closed"],
    }
