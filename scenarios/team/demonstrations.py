"""Expert meetings at the table: every message of a meeting as the steps that a role would write.

In full style seats measure what they offer and ReconcileGPT asks for the sheet; in short style the brief
holds all that, and the first line of a report or a decision names the habit.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.team import Decision, Report
from scenarios.base import Step, ToolCall
from scenarios.team.experts import (
    FUNDING_HABITS,
    REPORT_HABITS,
    best_decision,
    best_report,
    best_vote,
    sample_habit,
)
from scenarios.team.frontier import Band, budget_band
from scenarios.team.game import PlanGame
from scenarios.team.offers import load_table
from scenarios.team.texts.table_texts import TEXTS
from scenarios.team.value import funded_plan

Steps = tuple[Step, ...]
POOR_DECISION_SHARE, NO_DECISION_SHARE = 0.3, 0.05  # of what seats vote on in demonstrations
# Experts lean a little towards what the budget asks for: without any tilt there is nothing to select.
TILT: Mapping[Band, Mapping[str, float]] = {
    "tight": {"lean": 1.4, "strict": 1.8, "full": 0.7, "easy": 0.7},
    "middle": {},
    "ample": {"full": 1.4, "easy": 1.8, "lean": 0.7, "strict": 0.7},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """An expert meeting on one case.

    Example: hold_meeting(PlanGame(generate("train", 0, 7, 2), "short")).votes["cto"].text
    """

    report_steps: Mapping[str, Steps]  # seat -> its work and its report
    reports: Mapping[str, dict[str, Any] | None]  # as the game read them
    decision_steps: Steps
    decision: dict[str, Any] | None  # as the game read it
    drafts: Mapping[str, dict[str, Any] | None]  # seat -> what it votes on: the decision, or at times another
    votes: Mapping[str, Step]


def hold_meeting(
    game: PlanGame, *, with_tools: bool = True, habits: tuple[str, str] | None = None
) -> Meeting:
    """The meeting of experts who all have these habits of reporting and funding.

    With None each draws its own, by the shares of those who hold it.
    """
    case = game.case
    rng = random.Random(f"habit/{case.key}")
    reporting, funding = habits or (None, None)
    steps = {
        seat: show_report(game, seat, reporting or draw_report_habit(game, seat, rng), with_tools=with_tools)
        for seat in case.seats
    }
    reports = {seat: game.read_report(seat, own[-1].text) for seat, own in steps.items()}
    funding = funding or sample_habit(rng, FUNDING_HABITS)
    decided = show_decision(game, reports, funding, with_tools=with_tools)
    decision = game.read_decision(reports, decided[-1].text)
    drafts = {seat: _draw_draft(game, seat, reports, decision, rng) for seat in case.seats}
    return Meeting(
        report_steps=steps,
        reports=reports,
        decision_steps=decided,
        decision=decision,
        drafts=drafts,
        votes={seat: show_vote(game, seat, reports, drafts[seat]) for seat in case.seats},
    )


def draw_report_habit(game: PlanGame, seat: str, rng: random.Random) -> str:
    """A habit of reporting, by the experts' shares and their tilt towards the reach of the budget.

    Short briefs list steps alone; what is fair is at times none of them.
    """
    tilt = TILT[budget_band(game.case, seat)]
    habits = [habit for habit in REPORT_HABITS if game.style == "full" or habit != "fair"]
    return sample_habit(rng, {habit: REPORT_HABITS[habit] * tilt.get(habit, 1) for habit in habits})


def show_report(game: PlanGame, seat: str, habit: str, *, with_tools: bool = True) -> Steps:
    """The seat's work and its report by the habit."""
    report = best_report(game.case, seat, habit)
    answer = Step(text=f"{habit}\n{TEXTS[game.style].write_report(game.case, seat, report)}")
    if not (with_tools and game.prompt_role(seat).tools):
        return (answer,)
    return (*_measure(report, habit), answer)


def _measure(report: Report, habit: str) -> list[Step]:
    """One call of measure for every part that is offered; the first one names the habit."""
    arguments = [{"option": offer.option, "part": offer.part} for offer in report.offers]
    return [
        Step(text="" if number else f"{habit}\n", call=ToolCall(name="measure", arguments=given))
        for number, given in enumerate(arguments)
    ]


def show_decision(
    game: PlanGame, reports: Mapping[str, dict[str, Any] | None], habit: str, *, with_tools: bool = True
) -> Steps:
    """ReconcileGPT's work and its decision by the habit, from the reports alone."""
    decision = best_decision(game.case.public, load_table(reports), habit)
    answer = Step(text=f"{habit}\n{TEXTS[game.style].write_decision(decision)}")
    if game.style == "short" or not with_tools:
        return (answer,)
    steps = [Step(text=f"{habit}\n", call=ToolCall(name="sheet", arguments={}))]
    if not decision.escalate:
        arguments = {"option": decision.option, "fund": decision.fund}
        steps.append(Step(text="", call=ToolCall(name="total", arguments=arguments)))
    return (*steps, answer)


def _draw_draft(
    game: PlanGame,
    seat: str,
    reports: Mapping[str, dict[str, Any] | None],
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
    reports: Mapping[str, dict[str, Any] | None],
    decision: Mapping[str, Any] | None,
) -> Step:
    """The seat's right vote on the decision as it was read."""
    read = None if decision is None else Decision.model_validate(decision)
    escalated = read is not None and read.escalate
    plan = None if read is None or escalated else funded_plan(load_table(reports), read)
    vote = best_vote(game.case, seat, plan, escalated=escalated)
    values = vote.model_dump() if game.style == "full" else {"vote": vote.vote}
    return Step(text=json.dumps(values))
