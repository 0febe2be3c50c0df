"""The single agent as a family of its own: one head with the facts and tools of all seats.

The control of a team. It is shown the same expert meetings as the team, each written down by one hand: what
every seat offers, the sheet of these offers, the plan that is funded. In full style it measures the funded
plan with its own tools instead.
"""

import json
from collections.abc import Mapping
from typing import Any

from evaluation.scoring.baselines import write_alone
from roles.base import AnswerError, Role
from roles.limits import MAX_LONE_CALLS
from roles.team import RECONCILER, Decision
from scenarios.base import Family, Scenario, Step, Style, ToolCall, Verdict, rejected
from scenarios.company.optimum import recheck_optimum
from scenarios.team import PlanGame, TeamScenario, generate
from scenarios.team.demonstrations import Meeting, hold_meeting
from scenarios.team.frontier import code_parts
from scenarios.team.single import SINGLE, SingleGame
from simulator.reward import TeamRewardWeights, score_episode

TRUTH = "case"  # under which a scenario's truth holds the team case


def single_role(style: Style) -> Role:
    """The agent as its prompts introduce it; generated cases all have the same seats."""
    role = SingleGame(generate("train", 0, 0, 1), style).prompt_role
    return Role(name=SINGLE, title=role.title, mandate=role.mandate, answer=role.answer, tools=role.tools)


def single_family(style: Style, weights: TeamRewardWeights) -> Family:
    """Team cases as scenarios of the single agent, verified by the team reward with all votes right.

    A team reward below 0 is 0: a family's rewards are in [0, 1].
    """

    return Family(
        name=SINGLE,
        role=SINGLE,
        generate=lambda *place: make_scenario(generate(*place), style),
        verify=lambda scenario, text: judge_plan(scenario.truth[TRUTH], text, weights, style),
        solve=lambda scenario: solve_alone(scenario.truth[TRUTH]),
        certify=lambda scenario: certify_alone(scenario.truth[TRUTH]),
        call_tool=lambda scenario, call: SingleGame(scenario.truth[TRUTH], style).call_tool(call),
        demonstrate=lambda scenario, rng: demonstrate_alone(scenario.truth[TRUTH], style),
        max_calls=MAX_LONE_CALLS,
    )


def make_scenario(case: TeamScenario, style: Style) -> Scenario:
    """The team case as the single agent reads it."""
    return Scenario(
        family=SINGLE,
        split=case.split,
        seed=case.seed,
        index=case.index,
        difficulty=case.difficulty,
        role=SINGLE,
        brief=SingleGame(case, style).write_brief(),
        facts={"sector": case.sector, "case": case.key},
        truth={TRUTH: case},
        optimal_tool_calls=1,
    )


def judge_plan(case: TeamScenario, text: str, weights: TeamRewardWeights, style: Style) -> Verdict:
    """The verdict on the agent's plan: its team reward, every vote by the book."""
    try:
        SingleGame(case, style).read(text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    verdict = score_episode(case, write_alone(case, text), weights)
    is_exact = verdict.value == 1
    is_feasible = not verdict.unresolved and (verdict.value > 0 or not verdict.escalation)
    return Verdict(
        reward=max(0.0, verdict.reward),
        parts={"value": verdict.value},
        exact=is_exact,
        feasible=is_feasible,
        explanation=verdict.explanation,
        failure=None if is_exact else "suboptimal" if is_feasible else "infeasible",
    )


def solve_alone(case: TeamScenario) -> dict[str, Any]:
    """The best plan as the agent would answer it."""
    if case.optimum is None:
        return {"option": "none", "parts": {}, "escalate": True}
    plan = case.optimum.plan
    parts = {seat: list(choice) for seat, choice in plan.funded.items() if choice}
    return {"option": plan.option, "parts": parts, "escalate": False}


def certify_alone(case: TeamScenario) -> tuple[float, float]:
    """Worth of the best plan by both methods; -1 where nothing can be run."""
    first, second = case.optimum, recheck_optimum(case.case)
    return (-1.0 if first is None else float(first.worth)), (-1.0 if second is None else float(second))


def demonstrate_alone(case: TeamScenario, style: Style) -> tuple[Step, ...]:
    """An expert meeting on the case, written down by one head; parts by code in short style, else by name."""
    meeting = hold_meeting(PlanGame(case, style, 0), with_tools=False)
    offers = {seat: report["offers"] if report else [] for seat, report in meeting.reports.items()}
    decision = Decision.model_validate(meeting.decision)
    option = decision.option
    parts = {
        seat: _name_part(case, seat, offer, style)
        for seat, own in offers.items()
        for offer in own
        if offer["option"] == option and offer["label"] in decision.fund
    }
    plan = {"option": option, "parts": parts, "escalate": decision.escalate}
    answer = Step(text=f"{_read_habit(meeting, RECONCILER)}\n{json.dumps(plan)}")
    if style == "full":
        call = ToolCall(name="total", arguments={"option": option, "parts": parts})
        return (answer,) if decision.escalate else (Step(text="", call=call), answer)
    habits = " ".join(_read_habit(meeting, seat) for seat in case.seats)
    offered = {
        seat: [code for offer in own for code in _name_part(case, seat, offer, style)]
        for seat, own in offers.items()
    }
    return (Step(text=f"{habits}\n", call=ToolCall(name="sheet", arguments={"parts": offered})), answer)


def _name_part(case: TeamScenario, seat: str, offer: Mapping[str, Any], style: Style) -> list[str]:
    """The offered part as the agent writes it: its code in short style, where it has one, else its names."""
    if style == "full":
        return list(offer["choice"])
    for code, part in code_parts(case, seat).items():
        if part.option == offer["option"] and part.choice == tuple(offer["choice"]):
            return [code]
    raise ValueError(f"{seat} offers {offer['choice']}, which short briefs do not list")


def _read_habit(meeting: Meeting, role: str) -> str:
    """The habit that the first line of an expert's first message names."""
    return meeting.messages[role][0].steps[0].text.partition("\n")[0]
