"""Puts one meeting into words for its page: options, offers, speeches, questions, drafts, votes, true worth.

Rows of a page are dicts that its template reads; names of people and models go through `visible`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.minutes.words import (
    MAX_BRIEF_CHARS,
    as_written,
    find_shared_lines,
    join_words,
    readable,
    say_call,
    say_titles,
    visible,
)
from roles.base import AnswerError, Role
from roles.team import RECONCILER, Decision
from scenarios.base import ToolCall
from scenarios.company.coordination import is_hidden_profile
from scenarios.company.optimum import best_on_option, part_of
from scenarios.company.records import Plan
from scenarios.team import (
    CheckedReport,
    PlanGame,
    PlayableCase,
    Table,
    TabledOffer,
    TeamScenario,
    judge_decision,
)
from scenarios.team.experts import best_vote
from scenarios.team.funding import list_favoured
from scenarios.team.offers import offers_on
from scenarios.team.reading import read_ask, read_decision, read_reply, read_vote
from scenarios.team.value import funded_plan
from scenarios.team.verdicts import verify_report
from scenarios.written.written_case import FreeCase
from simulator.agents.dialogue import Exchange
from simulator.governance.record import Draft
from simulator.reading import ReadEpisode
from simulator.records import Episode, Question

Talk = Mapping[str, Sequence[Exchange]]  # role -> its transcript
Roles = Mapping[str, Role]
Shown = dict[str, Any]  # values of a row for the template


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOffer:
    """One offer as a line of a table.

    Example: ShownOffer(option="A", part="spare gateway", cost=9, worth=14, is_needed=True, is_funded=False)
    """

    option: str
    part: str
    cost: int
    worth: int
    is_needed: bool  # the option breaks the seat's limit without a part of it
    is_funded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRow:
    """One seat's offers, option by option."""

    title: str
    cells: tuple[tuple[tuple[ShownOffer, ...], str], ...]  # by option: offers, and what stands in the way


def _make_offer_line(offer: TabledOffer, report: CheckedReport, plan: Plan | None) -> ShownOffer:
    return ShownOffer(
        option=offer.option,
        part=visible(", ".join(offer.choice)),
        cost=offer.cost,
        worth=offer.worth,
        is_needed=offer.option in report.needs,
        is_funded=plan is not None and plan.option == offer.option and _is_funded(offer, plan),
    )


def _is_funded(offer: TabledOffer, plan: Plan) -> bool:
    return plan.funded.get(offer.seat) == offer.choice


def list_seat_rows(case: PlayableCase, table: Table, plan: Plan | None, roles: Roles) -> list[SeatRow]:
    """Return the whole table, a row per seat and a cell per option."""

    def make_cell(option: str, report: CheckedReport | None) -> tuple[tuple[ShownOffer, ...], str]:
        if report is None:
            return (), "no report"
        offers = tuple(_make_offer_line(o, report, plan) for o in report.offers if o.option == option)
        if option in report.veto:
            return offers, "vetoes it"
        return offers, "needs a part, offers none" if option in report.needs and not offers else ""

    return [
        SeatRow(
            title=say_titles([seat], roles),
            cells=tuple(make_cell(option, table.get(seat)) for option in case.options),
        )
        for seat in case.seats
    ]


def list_options(case: PlayableCase, table: Table, option: str | None, roles: Roles) -> list[Shown]:
    """Return every option with who favours it, what stands in its way, and its true best plan."""
    heard = {seat: report for seat in case.seats if (report := table.get(seat)) is not None}
    favoured = {seat: list_favoured(case.public, table, seat) for seat in heard}
    rows = []
    for letter, facts in case.public.options.items():
        vetoers = [seat for seat, report in heard.items() if letter in report.veto]
        lacking = [
            seat
            for seat, report in heard.items()
            if letter in report.needs and all(offer.option != letter for offer in report.offers)
        ]
        obstacles = [f"vetoed by {say_titles(vetoers, roles)}"] if vetoers else []
        obstacles += [f"{say_titles(lacking, roles)} would need a part"] if lacking else []
        rows.append(
            {
                "letter": letter,
                "meaning": visible(facts.name),
                "base": facts.base,
                "favoured_by": say_titles([seat for seat in heard if letter in favoured[seat]], roles),
                "obstacles": "; ".join(obstacles),
                "best_plan": _say_best(case, letter) if isinstance(case, TeamScenario) else "",
                "is_chosen": letter == option,
            }
        )
    return rows


def _say_best(case: TeamScenario, option: str) -> str:
    found = best_on_option(case.case, option, case.case.budget)
    if found is None:
        return "cannot be run within the budget"
    worth, cost, _ = found
    is_best = case.optimum is not None and case.optimum.plan.option == option
    return f"{worth} k$ at cost {cost}{', the best' if is_best else ''}"


def _list_bill(case: PlayableCase, table: Table, plan: Plan, roles: Roles) -> list[tuple[str, str]]:
    """(what, k$) line by line: the option, every funded part, the sum; by the reports."""
    option = case.public.options[plan.option]
    offers = {offer.seat: offer for offer in offers_on(table, plan.option) if _is_funded(offer, plan)}
    lines = [(f"option {plan.option} before any spending", f"worth {option.base}")]
    for seat, offer in offers.items():
        what = f"{say_titles([seat], roles)}: {visible(', '.join(offer.choice))}"
        lines.append((what, f"cost {offer.cost}, worth {offer.worth}"))
    cost = sum(offer.cost for offer in offers.values())
    worth = option.base + sum(offer.worth for offer in offers.values())
    return [*lines, ("together", f"cost {cost} of {case.public.budget}, worth {worth}")]


def list_speeches(
    case: PlayableCase, episode: Episode, read: ReadEpisode, talk: Talk, roles: Roles
) -> Iterator[Shown]:
    """Put every seat's brief, tool calls and report into words; what all read stands with the case."""
    game = PlanGame(case)
    briefs = {
        role: talk[role][0].message if talk.get(role) else game.write_report_brief(role)
        for role in case.seats
    }
    num_shared = len(find_shared_lines(list(briefs.values())))
    for role, whole in briefs.items():
        brief = "\n".join(whole.split("\n")[num_shared:]).strip()
        text, path = episode.reports.get(role, ""), episode.trajectories.get(role)
        report = read.table.get(role)
        notes = case.notes.get(role, "") if isinstance(case, FreeCase) else ""
        own = verify_report(case, role, text) if isinstance(case, TeamScenario) and text else None
        needs, veto = (report.needs, report.veto) if report else ((), ())
        limits = [f"{option} cannot be run without a part of it" for option in needs]
        limits += [f"{option} breaks its limit whatever it buys" for option in veto]
        yield {
            "title": say_titles([role], roles),
            "read": visible(brief, max_chars=MAX_BRIEF_CHARS),
            "known": _list_known(
                case, role, brief
            ),  # all that its tools could tell it; "" where nothing more
            "notes": "" if notes in brief else visible(notes, max_chars=MAX_BRIEF_CHARS),
            "lookups": [
                (say_call(call), visible(told))
                for one in talk.get(role, ())[:1]
                for call, told in one.tool_calls
            ],
            "report": report,
            "offers": [_make_offer_line(one, report, read.plan) for one in report.offers] if report else [],
            "limits": visible("; ".join(limits)),
            "written": as_written(text),
            "is_cut_off": path is not None and path.truncated,
            "own_verdict": f"{own.reward:.2f} by its own verifier: {own.explanation}" if own else "",
        }


def _list_known(case: PlayableCase, role: str, brief: str) -> str:
    game, structures = PlanGame(case), case.seats[role].facts.get("structures", {})
    told = {
        o: game.call_tool(role, ToolCall(name="describe", arguments={"option": o}), {}) for o in structures
    }
    new = (f"Option {option}\n{text}" for option, text in told.items() if text not in brief)
    return visible("\n".join(new), max_chars=MAX_BRIEF_CHARS)


def say_asked(case: PlayableCase, one: Question, roles: Roles) -> tuple[str, str]:
    """One of ReconcileGPT's questions in words, and the reply to it."""
    try:
        ask = read_ask(case.public, one.ask).ask
    except AnswerError:
        return f"asks: {readable(one.ask)}", readable(one.reply)
    title = say_titles([ask.seat], roles)
    question = f"asks {title} for another offer on {ask.option} that costs at most {ask.cost_at_most} k$"
    try:
        offer = read_reply(one.reply).offer
    except AnswerError:
        return question, f"{title} says nothing valid: {readable(one.reply)}"
    if offer is None:
        return question, f"{title} has none"
    what = visible(f"{', '.join(offer.part)}: cost {offer.cost}, worth {offer.worth}")
    return question, f"{title} offers {what}"


def list_ballots(
    case: PlayableCase, episode: Episode, read: ReadEpisode, talk: Talk, roles: Roles
) -> Iterator[Shown]:
    """Yield every draft with the votes on it; the last one alone where the talk is not known."""
    if not episode.decision and not episode.trajectories:
        return
    said = talk.get(RECONCILER) or [Exchange(message="", tool_calls=(), answer=episode.decision)]
    drafts = [one for one in said if not _can_read(read_ask, case.public, one.answer)]
    votes_of = {
        role: [one.answer for one in talk.get(role, ())[1:] if not _can_read(read_reply, one.answer)]
        for role in case.seats
    }
    for number, draft in enumerate(drafts, 1):
        votes = {role: texts[number - 1] for role, texts in votes_of.items() if len(texts) >= number}
        if number == len(drafts):
            votes = dict(episode.votes)
        yield make_ballot(case, read.table, draft.message, draft.answer, votes, roles, draft.tool_calls)


def _can_read(read: Callable[..., object], *given: object) -> bool:
    try:
        read(*given)
    except AnswerError:
        return False
    return True


def list_drafts(case: PlayableCase, table: Table, drafts: Sequence[Draft], roles: Roles) -> list[Shown]:
    """Return the drafts of a governed episode on these reports, with the votes on them, in words."""
    return [make_ballot(case, table, one.message, one.text, one.votes, roles) for one in drafts]


def make_ballot(
    case: PlayableCase,
    table: Table,
    heard: str,
    text: str,
    votes: Mapping[str, str],
    roles: Roles,
    lookups: Sequence[tuple[str, str]] = (),
) -> Shown:
    """Return a draft on these reports and the votes on it in words; `heard`: what ReconcileGPT read."""
    try:
        decision: Decision | None = read_decision(case.public, table, text)
    except AnswerError:
        decision = None
    escalated = decision is not None and decision.escalate
    plan = None if decision is None or escalated else funded_plan(table, decision)
    spoken = f"decides for {name_option(case, decision.option)}." if decision else ""
    made = []
    for role, said in votes.items():
        right = best_vote(case, role, plan, escalated=escalated) if isinstance(case, TeamScenario) else None
        made.append(_make_vote(role, said, right.vote if right else None, roles))
    return {
        "heard": visible(heard, max_chars=MAX_BRIEF_CHARS),
        "lookups": [(say_call(call), visible(told)) for call, told in lookups],
        "spoken": "hands the case to a human." if escalated else spoken,
        "bill": _list_bill(case, table, plan, roles) if plan else [],
        "reason": visible(decision.reason) if decision else "",
        "conflicts": [visible(conflict) for conflict in decision.conflicts] if decision else [],
        "written": as_written(text),
        "votes": made,
    }


def _make_vote(role: str, text: str, right: str | None, roles: Roles) -> Shown:
    """`right`: the right vote; None where nobody knows it."""
    try:
        vote, reason = read_vote(text).vote, read_vote(text).reason
    except AnswerError:
        vote, reason = None, ""
    return {
        "title": say_titles([role], roles),
        "vote": {"accept": "accepts", "object": "objects"}.get(
            vote or "", f"no valid vote: {readable(text)}"
        ),
        "reason": visible(reason),
        "tone": "good" if vote == "accept" else "bad",
        "rightness": "" if right is None else "right" if vote == right else "wrong",
    }


def name_option(case: PlayableCase, option: str) -> str:
    """Return the option with its name: "option B, the hosted switch"."""
    known = case.public.options.get(option)
    return visible(f"option {option}, {known.name}" if known else f"option {option}")


def say_outcome(case: PlayableCase, episode: Episode, decision: Decision | None) -> str:
    """Say the outcome of an episode in one sentence."""
    if episode.error is not None:
        return "The meeting broke off: an engine failed."
    if decision is None:
        return "No valid decision was reached."
    if decision.escalate:
        return "The case goes to a human."
    funded = f"{len(decision.fund)} part{'s' if len(decision.fund) != 1 else ''} funded"
    return f"Decided: {name_option(case, decision.option)} ({funded if decision.fund else 'nothing funded'})"


def compare_with_best(case: TeamScenario, read: ReadEpisode, roles: Roles) -> list[tuple[str, str, str]]:
    """(seat, what the decision funds, what the best plan funds) of every seat."""

    def say(seat: str, plan: Plan | None) -> str:
        if plan is None or not plan.funded.get(seat):
            return "nothing"
        part = part_of(case.case, seat, plan.option, plan.funded[seat])
        return visible(f"{', '.join(part.choice)} (cost {part.cost}, worth {part.worth})")

    best = case.optimum.plan if case.optimum else None
    return [(say_titles([seat], roles), say(seat, read.plan), say(seat, best)) for seat in case.seats]


def say_worth(case: TeamScenario, read: ReadEpisode, roles: Roles) -> list[str]:
    """Say what the decision is worth by the structures, sentence by sentence."""
    judged = judge_decision(case, read.table, read.decision)
    if case.optimum is None:
        verdict = "Handing the case over was right" if judged.value else "It should have gone to a person"
        return [f"No option can be run within the budget. {verdict}: V = {judged.value:.0f}."]
    blind, best, right = case.truth["blind"], case.optimum.worth, case.optimum.plan.option
    scale = (
        f"A plan made blind, an equal share for every seat, is worth {float(blind):.1f} k$ on average"
        f" (V = 0); the best possible one, option {right} at cost {case.optimum.cost}, {best} k$ (V = 1)."
    )
    if is_hidden_profile(case.case):
        scale += (
            f" Neither the worth before spending nor what any one seat knows favours option {right}: it takes"
            " the offers of several seats to see that it is the best (a hidden profile)."
        )
    if judged.worth is None:
        what = "The case was handed over needlessly" if read.decision else "There is no decision"
        return [f"{what}: V = 0.", scale]
    broken = judged.broken_limits
    faults = [f"breaks the hard limit of {say_titles(broken, roles)}"] if broken else []
    faults += [f"is {judged.over_budget} k$ over the budget"] if judged.over_budget else []
    if faults:
        return [f"The plan {join_words(faults)}: V = 0.", scale]
    room = f"({judged.worth} - {float(blind):.1f}) / ({best} - {float(blind):.1f})"
    clipped = ", no less than 0" if judged.worth < blind else ""
    return [f"The plan is worth {judged.worth} k$: V = {room} = {judged.value:.2f}{clipped}.", scale]
