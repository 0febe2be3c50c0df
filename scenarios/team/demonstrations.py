"""Expert meetings at the table: every message of a meeting as the steps that a role would write.

In full style a seat names its habit and, option by option, the most that its part may cost and what it can
buy there; it then finds the best such part by the search of its own family, says the best parts so far again
where it leaves an option, and reports them. ReconcileGPT asks for the sheet. In short style the brief holds
all that, and the first line of a report or a decision names the habit.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.team import RECONCILER, Ask, AskMessage, Decision, Offer
from scenarios.base import Step, ToolCall
from scenarios.company.parts import list_searched, measure, search_option
from scenarios.team.experts import (
    FUNDING_HABITS,
    REPORT_HABITS,
    SHARE_HABITS,
    SHARES,
    best_decision,
    best_reply,
    best_report,
    best_vote,
    name_amount,
    sample_habit,
)
from scenarios.team.frontier import Band, budget_band
from scenarios.team.funding import best_funding
from scenarios.team.game import PlanGame, Reports
from scenarios.team.offers import Table, list_upgrades, load_table
from scenarios.team.playable import PlayableCase, PublicCase
from scenarios.team.questions import explain_question
from scenarios.team.texts.comparing import compare_options, explain_best
from scenarios.team.texts.table_texts import TEXTS
from scenarios.team.value import funded_plan

Steps = tuple[Step, ...]
MOST_CALLS = 20  # of a report: play ends an agent's work on a message after 24 turns
POOR_DECISION_SHARE, NO_DECISION_SHARE = 0.3, 0.05  # of what seats vote on in demonstrations
# Experts lean a little towards what the budget asks for: without any tilt there is nothing to select.
TILT: Mapping[Band, Mapping[str, float]] = {
    "tight": {"lean": 1.4, "strict": 1.8, "full": 0.7, "easy": 0.7},
    "middle": {},
    "ample": {"full": 1.4, "easy": 1.8, "lean": 0.7, "strict": 0.7},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMessage:
    """A message that a role reads in a meeting, and its steps that follow.

    Example: ExpertMessage(brief="Decision B with your part. Vote.", steps=(Step(text='{"vote": "accept"}'),),
                     reports={"cto": {...}})
    """

    brief: str
    steps: Steps
    reports: Reports  # as the game had read them by then; ReconcileGPT's tools reckon with these


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """An expert meeting on one case.

    Example: hold_meeting(PlanGame(generate("train", 0, 7, 2), "short")).messages["cto"][-1].steps[-1].text
    """

    messages: Mapping[str, tuple[ExpertMessage, ...]]  # by role: report, replies, vote; asks, decision
    reports: Reports  # as the game read them, with what replies added
    decision: dict[str, Any] | None  # as the game read it
    drafts: Mapping[str, dict[str, Any] | None]  # seat -> what it votes on: the decision, or at times another


def hold_meeting(
    game: PlanGame, *, with_tools: bool = True, habits: tuple[str, str] | None = None
) -> Meeting:
    """The meeting of experts who all have these habits of reporting and funding.

    With None each draws its own, by the shares of those who hold it. While questions are left, ReconcileGPT
    asks where a question pays by the reports (`explain_question`).
    """
    case = game.case
    rng = random.Random(f"habit/{case.key}")
    reporting, funding = habits or (None, None)
    said: dict[str, list[ExpertMessage]] = {}
    reports: dict[str, dict[str, Any] | None] = {}
    for seat in case.seats:
        chosen = reporting or draw_report_habit(game, seat, rng)
        steps = show_report(game, seat, chosen, with_tools=with_tools)
        brief = game.write_report_brief(seat, with_tools=with_tools)
        said[seat] = [ExpertMessage(brief=brief, steps=steps, reports={})]
        reports[seat] = game.read_report(seat, steps[-1].text)
    said[RECONCILER] = []
    habit, asked, weighed = funding or _draw_funding_habit(game, rng), list[Ask](), list[str]()
    while len(asked) < game.most_questions:
        weighed, ask = explain_question(case.public, load_table(reports), asked)
        if ask is None:
            break
        question = show_question(game, reports, habit, ask, weighed, with_tools=with_tools)
        asked.append(ask)
        weighed = []
        before = [step for message in said[ask.seat] for step in message.steps]
        reply = show_reply(game, ask, before, with_tools=with_tools)
        for role, brief, steps in (
            (RECONCILER, game.write_decision_brief(reports), question),
            (ask.seat, game.write_ask(ask.seat, ask.model_dump()), reply),
        ):
            said[role].append(ExpertMessage(brief=brief, steps=steps, reports=dict(reports)))
        offer = game.read_reply(ask.seat, ask.model_dump(), reports[ask.seat], reply[-1].text)
        reports[ask.seat] = game.add_offer(reports[ask.seat], offer)
    decided = show_decision(game, reports, habit, weighed, with_tools=with_tools)
    said[RECONCILER].append(
        ExpertMessage(brief=game.write_decision_brief(reports), steps=decided, reports=reports)
    )
    decision = game.read_decision(reports, decided[-1].text)
    drafts = {seat: _draw_draft(game, seat, reports, decision, rng) for seat in case.seats}
    for seat, draft in drafts.items():
        brief, vote = game.write_vote_brief(draft, seat, reports), show_vote(game, seat, reports, draft)
        said[seat].append(ExpertMessage(brief=brief, steps=(vote,), reports=reports))
    return Meeting(
        messages={role: tuple(messages) for role, messages in said.items()},
        reports=reports,
        decision=decision,
        drafts=drafts,
    )


def draw_report_habit(game: PlanGame, seat: str, rng: random.Random) -> str:
    """A habit of reporting, by the experts' shares; in full style one that names an amount.

    In short style experts tilt towards the reach of the budget. Briefs list steps alone there; what is fair
    is at times none of them.
    """
    if game.style == "full":
        return sample_habit(rng, SHARE_HABITS)
    tilt = TILT[budget_band(game.case, seat)]
    habits = [habit for habit in REPORT_HABITS if habit != "fair"]
    return sample_habit(rng, {habit: REPORT_HABITS[habit] * tilt.get(habit, 1) for habit in habits})


def _draw_funding_habit(game: PlanGame, rng: random.Random) -> str:
    """A habit of funding, by the experts' shares; in full style one that the sheet leads to."""
    led = {habit: share for habit, share in FUNDING_HABITS.items() if habit != "worth"}
    return sample_habit(rng, led if game.style == "full" else FUNDING_HABITS)


def show_report(game: PlanGame, seat: str, habit: str, *, with_tools: bool = True) -> Steps:
    """The seat's work and its report by the habit."""
    report = best_report(game.case, seat, habit)
    answer = TEXTS[game.style].write_report(game.case, seat, report)
    if not (with_tools and game.prompt_role(seat).tools):
        return (Step(text=f"{habit}\n{answer}"),)
    steps: list[Step] = []
    said, bests = habit, ""
    options = [offer.option for offer in report.offers]
    for place, offer in enumerate(report.offers):
        later = len(report.offers) - place - 1  # each of these takes a call at least
        is_first = habit in SHARES and offer.option not in options[:place]
        amount = name_amount(game.case, seat, offer.option, habit) if is_first else offer.cost
        found, said = _search_offer(game.case, seat, offer, amount, said, MOST_CALLS - len(steps) - later)
        bests = _lines(bests, _say_offer(offer))
        said = _lines(said, bests)
        steps += found
    return (*steps, Step(text=_lines(said, answer)))


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _say_offer(offer: Offer) -> str:
    return f"{offer.option}: {' + '.join(offer.part)}, cost {offer.cost}, worth {offer.worth}"


def _search_offer(
    case: PlayableCase, seat: str, offer: Offer, amount: int, said: str, most_calls: int
) -> tuple[Steps, str]:
    """Lead to an offer: the most that it may cost, then a search for the best part within that.

    Where a search would measure too many parts, the offer alone is measured. Returns: the steps, and what is
    said after the last one; the first one begins with what was `said` before.
    """
    searched = list_searched(case.parts_of(seat, offer.option) or (), amount)
    if 0 < len(searched) <= most_calls:
        lead = _lines(said, _lead(case, seat, offer.option, amount))
        steps, said, _ = search_option(offer.option, amount, searched, lead)
        return steps, said
    return (measure(offer.option, offer.part, said),), ""


def _lead(case: PlayableCase, seat: str, option: str, amount: int) -> str:
    """Begins a search on the option: the most that its part may cost, and what is on offer."""
    return f"{option} for at most {amount}: {', '.join(list_upgrades(case, seat, option))}"


def show_question(
    game: PlanGame,
    reports: Reports,
    habit: str,
    ask: Ask,
    weighed: Sequence[str],
    *,
    with_tools: bool = True,
) -> Steps:
    """ReconcileGPT's question, where it has tools after a look at the sheet and what it `weighed`."""
    said = json.dumps(AskMessage(ask=ask).model_dump())
    steps = _read_sheet(game, habit, with_tools)
    compared = compare_options(game.case.public, load_table(reports))[0] if steps else [habit]
    return (*steps, Step(text=_lines(*compared, *(weighed if steps else ()), said)))


def show_reply(game: PlanGame, ask: Ask, before: Sequence[Step], *, with_tools: bool = True) -> Steps:
    """The asked seat's work and its reply.

    What its steps `before` measured is compared again by name; what they did not is measured.
    """
    case, style = game.case, game.style
    reply = best_reply(case, ask.seat, ask, style)
    answer = TEXTS[style].write_reply(case, ask.seat, reply)
    searched = list_searched(case.parts_of(ask.seat, ask.option) or (), ask.cost_at_most)
    if not (with_tools and game.prompt_role(ask.seat).tools and searched):
        return (Step(text=answer),)
    calls = [step.call.arguments for step in before if step.call is not None]
    known = {tuple(call["part"]) for call in calls if call["option"] == ask.option}
    lead = _lead(case, ask.seat, ask.option, ask.cost_at_most)
    steps, said, _ = search_option(ask.option, ask.cost_at_most, searched, lead, known)
    return (*steps, Step(text=_lines(said, answer)))


def _read_sheet(game: PlanGame, habit: str, with_tools: bool) -> Steps:
    if not (with_tools and game.prompt_role(RECONCILER).tools):
        return ()
    return (Step(text=f"{habit}\n", call=ToolCall(name="sheet", arguments={})),)


def show_decision(
    game: PlanGame, reports: Reports, habit: str, weighed: Sequence[str] = (), *, with_tools: bool = True
) -> Steps:
    """ReconcileGPT's work and its decision by the habit, from the reports alone.

    It says what it `weighed` before it left out a question that it may put.
    """
    public, table = game.case.public, load_table(reports)
    decision = best_decision(public, table, habit)
    answer = Step(text=f"{habit}\n{TEXTS[game.style].write_decision(decision)}")
    steps = _read_sheet(game, habit, with_tools)
    if steps and not decision.escalate:
        arguments = {"option": decision.option, "fund": decision.fund}
        text = _explain(public, table, habit, weighed)
        steps = (*steps, Step(text=text, call=ToolCall(name="total", arguments=arguments)))
    return (*steps, answer)


def _explain(public: PublicCase, table: Table, habit: str, weighed: Sequence[str]) -> str:
    """Lead from the sheet to the habit's plan, with what was `weighed` before it.

    "" for funding by worth, which the sheet does not show.
    """
    if habit == "worth":
        return ""
    compared = compare_options(public, table)[0]
    exact = explain_best(public, table, best_funding(public, table))[0] if habit != "return" else compared
    return "\n".join([*compared, *weighed, *exact[len(compared) :]])


def _draw_draft(
    game: PlanGame,
    seat: str,
    reports: Reports,
    decision: dict[str, Any] | None,
    rng: random.Random,
) -> dict[str, Any] | None:
    """The decision, or at times none, or one without the seat's part: experts give no cause to object."""
    draw = rng.random()
    if draw < NO_DECISION_SHARE:
        return None
    report = reports[seat]
    if draw > NO_DECISION_SHARE + POOR_DECISION_SHARE or report is None:
        return decision
    option = rng.choice(report["needs"] or list(game.case.options))
    offers = [offer for other in reports.values() if other is not None for offer in other["offers"]]
    fund = [offer["label"] for offer in offers if offer["option"] == option and offer["seat"] != seat]
    return Decision(option=option, fund=fund, escalate=False).model_dump(mode="json")


def show_vote(
    game: PlanGame,
    seat: str,
    reports: Reports,
    decision: Mapping[str, Any] | None,
) -> Step:
    """The seat's right vote on the decision as it was read."""
    read = None if decision is None else Decision.model_validate(decision)
    escalated = read is not None and read.escalate
    plan = None if read is None or escalated else funded_plan(load_table(reports), read)
    vote = best_vote(game.case, seat, plan, escalated=escalated)
    values = vote.model_dump() if game.style == "full" else {"vote": vote.vote}
    return Step(text=json.dumps(values))
