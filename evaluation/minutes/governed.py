"""A governed episode in words: plans, rulings, events, log and what the plans were truly worth.

The templates of the page and of the terminal's text call these functions on the record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from evaluation.minutes.meeting import Roles, Shown
from evaluation.minutes.words import Tone, join_words, say_conflict, say_titles, visible
from roles.team import NO_OPTION
from scenarios.company.optimum import plan_parts, plan_worth
from scenarios.execution import look_back
from scenarios.team import PlayableCase, TeamScenario
from simulator.conflicts import Conflict
from simulator.governance.gate import MAX_REPLANS
from simulator.governance.outcomes import Outcomes, SimulatedOutcomes, read_plan
from simulator.governance.proposal import Proposal
from simulator.governance.record import Chapter, GateAnswer, GovernedRecord, list_carried
from simulator.governance.resolution import MAX_RISK
from simulator.reading import read_episode

MAX_KPI_SCALE = 400  # percent; a KPI above it fills its bar and is marked
RULINGS: Mapping[str, tuple[str, Tone]] = {
    "approve": ("approved", "good"),
    "edit": ("edited", "warn"),
    "reject": ("rejected", "bad"),
    "refused": ("answer did not count", "bad"),
    "waiting": ("waiting", ""),
}
STATUS: Mapping[str, tuple[str, Tone]] = {
    "completed": ("Carried out, every KPI holds", "good"),
    "completed_with_alerts": ("Carried out, with alerts left", "warn"),
    "handed_over": ("Handed over to the reviewer", "warn"),
    "not_approved": ("Not approved, nothing carried out", "bad"),
    "waiting": ("Waits for a reviewer", "warn"),
    "failed": ("Broke off: an engine failed", "bad"),
    "violation": ("Stopped at the gate", "bad"),
}
HIDDEN_KEYS = ("digest", "interrupt_id", "request", "expires_at_s", "precedent", "features")  # of log entries


def find_ruling(ruling: str) -> tuple[str, Tone]:
    """Return a ruling as a word with its tone."""
    return RULINGS.get(ruling, (ruling, ""))


def say_time(at_s: int | None, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Return a UNIX time in UTC, to the second; "" for None."""
    return datetime.fromtimestamp(at_s, UTC).strftime(form) if at_s is not None else ""


def say_clock(at_s: int | None) -> str:
    """Return a UNIX time as the time of its day in UTC; "" for None."""
    return say_time(at_s, "%H:%M:%S")


def name_proposed(option: str) -> str:
    """Return the option of a proposal as the end of a sentence."""
    return "hand the case over" if option == NO_OPTION else f"option {visible(option)}"


def find_meaning(case: PlayableCase, option: str) -> str:
    """Return the words that an option stands for; "" for none."""
    known = case.public.options.get(option)
    return visible(known.name) if known else ""


def say_answer(answer: GateAnswer) -> tuple[str, Tone, str, str, str]:
    """(ruling, tone, reviewer, time, words)."""
    word, tone = find_ruling(answer.ruling)
    words = visible(answer.feedback or answer.reason)
    if answer.option is not None:
        words = f"{visible(answer.option)} in its place. {words}".strip()
    when = say_time(answer.answered_at_s or answer.shown_at_s)
    return word, tone, visible(answer.reviewer) or "nobody yet", when, words


def say_money(proposal: Mapping[str, Any]) -> str:
    """Say what a proposal costs and promises."""
    if proposal["option"] == NO_OPTION:
        return f"Of {proposal['budget']} k$ nothing is spent."
    reserve = f" (reserve {proposal['reserve']} k$)" if proposal["reserve"] else ""
    return (
        f"It costs {proposal['cost']} of {proposal['budget']} k${reserve} and promises "
        f"{proposal['worth']} k$ a month."
    )


def say_duties(proposal: Mapping[str, Any], roles: Roles) -> str:
    """Say which seats answer for a proposal's plan."""
    if proposal["option"] == NO_OPTION:
        return "The reviewer answers for the case."
    also = f"; consulted: {say_titles(proposal['consulted'], roles)}" if proposal["consulted"] else ""
    return (
        f"Responsible: {say_titles(proposal['responsible'], roles)}; accountable: "
        f"{say_titles([proposal['accountable']], roles)}{also}."
    )


def say_condition(condition: str, seats: Sequence[str], roles: Roles) -> str:
    """Return a condition as people say it: a seat by its title, an option as one."""
    first, _, rest = condition.partition(" ")
    if first in seats:
        return visible(f"{say_titles([first], roles)} {rest}")
    return visible(f"Option {condition}" if rest.startswith("stays out: ") else condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOption:
    """One option and its best plan by the reports."""

    letter: str
    meaning: str
    base: int
    best: str  # "100 k$ with CTO and COO at cost 40", or why it cannot be run
    note: str  # "proposed", or ""


def list_option_lines(
    proposal: Mapping[str, Any], meanings: Mapping[str, str], roles: Roles
) -> Iterator[ShownOption]:
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
        yield ShownOption(
            letter=visible(line["option"]),
            meaning=visible(meanings.get(line["option"], "")),
            base=line["base"],
            best=best,
            note="proposed" if line["option"] == proposal["option"] else "",
        )


def say_entry(kind: str, body: Mapping[str, Any]) -> str:
    """One entry of the decision log in words."""
    if kind == "observed":
        kpis = " ".join(f"{role} {kpi}" for role, kpi in body["kpis"].items())
        return f"KPIs {kpis}; {body['worth']} of {body['promised']} k$ in place, {body['left']} left. " + (
            " ".join(body["shocks"])
        )
    if kind == "executed":
        return f"{body['role']}: {body['action']}"
    kept = {n: value for n, value in body.items() if n not in HIDDEN_KEYS and value not in ("", None, [])}
    return ", ".join(
        f"{name.replace('_', ' ')} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in kept.items()
    )


def say_alerts(chapter: Chapter, roles: Roles) -> str:
    """Return which seats raised the alert, with their figures: "COO at 92 % of its limit, 10 k$ lost"."""
    lost = (chapter.observation or {}).get("lost", {})
    return join_words(
        [
            f"{say_titles([role], roles)} at {chapter.kpis.get(role, 0)} % of its limit, "
            f"{lost.get(role, 0)} k$ lost"
            for role in chapter.alerts
        ]
    )


def list_actuals(told: Mapping[str, Any] | None, roles: Roles) -> list[str]:
    """Upgrades that brought less than was stated, one sentence each."""
    return [
        visible(
            f"{say_titles([one['seat']], roles)}: {one['upgrade']} brought {one['actual']}, "
            f"stated were {one['stated']}."
        )
        for one in (told["actuals"] if told else ())
        if one["lost"]
    ]


def say_result(told: Mapping[str, Any] | None) -> str:
    """Return what a plan promised, what is in place, what money is left; "" where nothing was observed."""
    if told is None:
        return ""
    return (
        f"Promised were {told['promised']} k$, in place are {told['worth']} k$. The plan cost "
        f"{told['cost']} k$; {told['left']} k$ are left, the reserve included."
    )


def list_shocks(chapter: Chapter) -> list[str]:
    """Return what struck while the plan was carried out."""
    told = chapter.observation
    return [visible(shock) for shock in told["shocks"]] if told else []


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


def _list_committed(record: GovernedRecord) -> list[str]:
    return [chapter.proposal["option"] for chapter in record.chapters if chapter.is_committed]


def find_final_option(record: GovernedRecord) -> str | None:
    """Return the option that was committed last."""
    return next(reversed(_list_committed(record)), None)


def say_decision(record: GovernedRecord, case: PlayableCase) -> str:
    """Say the decision in force in one sentence."""
    committed = _list_committed(record)
    if not committed:
        return "Nothing was approved."
    if committed[-1] == NO_OPTION:
        return "The reviewer takes the case over."
    meaning = find_meaning(case, committed[-1])
    bought = visible(join_words(_list_bought(record.chapters))) or "nothing bought"
    tried = [option for option in dict.fromkeys(committed[:-1]) if option != committed[-1]]
    before = f", after {join_words(tried)} did not hold" if tried else ""
    name = f"Option {visible(committed[-1])}" + (f", {meaning}" if meaning else "")
    return f"{name}, with {bought}{before}"


def _list_bought(chapters: Sequence[Chapter]) -> list[str]:
    """List what was bought in all, for the option that is in place, in order."""
    carried = [chapter.proposal for chapter in chapters if chapter.observation is not None]
    in_place = [proposal for proposal in carried if proposal["option"] == carried[-1]["option"]]
    return [name for proposal in in_place for part in proposal["parts"] for name in part["choice"]]


def make_governed_cards(record: GovernedRecord) -> list[tuple[str, str, Tone]]:
    """(value, what it is, tone), the most important first."""
    option = find_final_option(record)
    num_replans = max((chapter.attempt for chapter in record.chapters), default=0)
    rulings = Counter(answer.ruling for chapter in record.chapters for answer in chapter.answers)
    observed = [chapter.observation for chapter in record.chapters if chapter.observation is not None]
    kpis = list(observed[-1]["kpis"].values()) if observed else []
    lowest = min(kpis, default=0)
    return [
        ("human", "decides from here", "")
        if option == NO_OPTION
        else (option or "-", "option in place", "good" if option else ""),
        (f"{observed[-1]['worth']} k$" if observed else "-", "a month in place", ""),
        (f"{sum(told['cost'] for told in observed)} k$", "spent in all", ""),
        (str(num_replans), "re-plan" if num_replans == 1 else "re-plans", "warn" if num_replans else ""),
        (f"{rulings['approve']} of {sum(rulings.values())}", "proposals approved", ""),
        (f"{lowest} %", "lowest KPI", "good" if lowest >= 100 else "bad")
        if kpis
        else ("-", "lowest KPI", ""),
    ]


def say_proposal(proposal: Mapping[str, Any]) -> str:
    """Say what a proposal buys, costs and promises, and its risk."""
    words = f"{proposal['decision_type']}, risk {proposal['risk_score']} of {MAX_RISK}"
    if proposal["option"] == NO_OPTION:
        return words
    bought = [name for part in proposal["parts"] for name in part["choice"]]
    return (
        f"{visible(join_words(bought)) or 'Nothing'} for {proposal['cost']} of {proposal['budget']} k$, "
        f"promising {proposal['worth']} k$; {words}"
    )


def find_time(record: GovernedRecord, kind: str, digest: str = "") -> str:
    """Return when a plan, by default any, had its last entry of this kind in the log."""
    times = [one.at_s for one in record.log if one.kind == kind and digest in ("", one.body.get("digest"))]
    return say_clock(times[-1] if times else None)


def list_conflicts(record: GovernedRecord, roles: Roles) -> list[tuple[bool, str]]:
    """(is hard, sentence) of every conflict between the first reports."""
    conflicts = record.chapters[0].proposal["conflicts"] if record.chapters else []
    return [
        say_conflict(Conflict.model_validate({**one, "option": visible(one["option"])}), roles)
        for one in conflicts
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCourse:
    """The course of an episode as its chapters were planned.

    Example: plan_course(record, outcomes).cases[0] is the case before any plan
    """

    cases: tuple[PlayableCase, ...]  # by chapter
    truths: tuple[str, ...]  # by chapter; "" where nobody knows
    hindsight: str  # what could have been reached in this world; "" where nobody knows


def plan_course(record: GovernedRecord, outcomes: Outcomes) -> PlannedCourse:
    """Return the case of every chapter, and the truth about its plan where the outcomes hold one."""
    plans = list_carried(record)
    cases = tuple(outcomes.continue_case(plans[: chapter.attempt]) for chapter in record.chapters)
    if not isinstance(outcomes, SimulatedOutcomes):
        return PlannedCourse(cases=cases, truths=("",) * len(cases), hindsight="")
    truths = tuple(
        _say_truth(case, Proposal.model_validate(dict(chapter.proposal)))
        for case, chapter in zip(cases, record.chapters, strict=True)
        if isinstance(case, TeamScenario)
    )
    return PlannedCourse(cases=cases, truths=truths, hindsight=_say_hindsight(outcomes))


def _say_truth(case: TeamScenario, proposal: Proposal) -> str:
    """Say the plan's worth by the structures as they were before it was carried out, beside the best."""
    if case.optimum is None:
        right = "right" if proposal.option == NO_OPTION else "wrong"
        return f"No option could be run with the money there was; this was {right}."
    best = f"the best plan, option {case.optimum.plan.option} at cost {case.optimum.cost}, was worth " + (
        f"{case.optimum.worth} k$"
    )
    if proposal.option == NO_OPTION:
        return f"Handing over was needless: {best}."
    plan = read_plan(proposal)
    broken = [part.seat for part in plan_parts(case.case, plan) if not part.keeps_limit]
    if broken:
        return f"It breaks the hard limit of {' and '.join(broken)}; {best}."
    worth = plan_worth(case.case, plan)
    if worth == case.optimum.worth:
        return f"It was the best plan that there was: worth {worth} k$ as far as anybody could know."
    return f"It was worth {worth} k$ as far as anybody could know; {best}."


def _say_hindsight(outcomes: SimulatedOutcomes) -> str:
    back = look_back(outcomes.world)
    if back.best is None or back.plan is None:
        return "Whoever had known all that would happen could not have run any option."
    bought = [name for choice in back.plan.funded.values() for name in choice]
    return (
        f"Whoever had known all that would happen could have reached {back.best} k$ from budget and reserve: "
        f"option {back.plan.option} with {', '.join(bought) or 'nothing bought'}."
    )


def list_plans(record: GovernedRecord, course: PlannedCourse) -> Iterator[Shown]:
    """Yield every proposal with its case, reports, last draft and votes read against that, and the truth."""
    reports: dict[str, str] = {}
    before = None
    titles = list_titles(record)
    for chapter, title, case, truth in zip(record.chapters, titles, course.cases, course.truths, strict=True):
        reports |= chapter.reports
        draft = chapter.drafts[-1] if chapter.drafts else None
        asked = tuple(question for one in chapter.drafts for question in one.asked)
        decision, votes = (draft.text, draft.votes) if draft else ("", {})
        played = replace(
            record.episode, reports=dict(reports), asked=asked, decision=decision, votes=dict(votes)
        )
        yield {
            "chapter": chapter,
            "before": before,
            "title": title,
            "case": case,
            "read": read_episode(case, played),
            "asked": asked,
            "meanings": {letter: facts.name for letter, facts in case.public.options.items()},
            "truth": truth,
        }
        before = chapter


def say_opening(before: Chapter | None, roles: Roles) -> str:
    """Say why there is a new proposal; "" for the first."""
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


def list_news(before: Chapter | None) -> list[str]:
    """Return what execution revealed before a re-plan."""
    if before is None or not before.alerts or (told := before.observation) is None:
        return []
    spent = f"{told['cost']} k$ are spent and what they bought stays; {told['left']} k$ are left."
    return [*list_shocks(before), spent]


def measure_kpi_scale(record: GovernedRecord) -> int:
    """Percent that a full KPI bar of the page stands for: 200, or the highest KPI up to 400."""
    highest = max((kpi for chapter in record.chapters for kpi in chapter.kpis.values()), default=0)
    return min(MAX_KPI_SCALE, max(200, -(-highest // 50) * 50))


def say_ending(chapter: Chapter) -> tuple[str, Tone]:
    """Say what became of a proposal, with its tone."""
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
