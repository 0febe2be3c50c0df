"""A governed episode in words: its chapters, log and cards for the page, and its text for the terminal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from evaluation.minutes.episode_in_words import join_words, say_titles
from evaluation.minutes.transcript import visible
from roles.base import Role
from roles.registry import ROLES
from roles.team import NO_OPTION
from scenarios.team.playable import PlayableCase
from simulator.governance.gate import MAX_REPLANS
from simulator.governance.log import Entry
from simulator.governance.record import Answer, Chapter, GovernedRecord
from simulator.governance.resolution import MAX_RISK

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
    hidden = ("digest", "interrupt_id", "request", "expires_at_s", "precedent", "features")
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
