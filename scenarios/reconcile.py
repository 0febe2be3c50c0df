"""The reconcile family: which option to choose and what to fund on it, given the checked reports of experts.

Asked: option, funded offers, whether to escalate, and the seats that favour other options (conflicts). Right
is the plan of the greatest worth that can be run by the reports; of equal worth the cheaper; escalating where
none can be run. An answer earns 0.6 for its worth over a blind plan's, 0.3 for the best plan, 0.1 for the
share of seats told rightly as conflicts or not; a plan that cannot be run and needless escalation earn 0. The
reports are those of experts whose habits are drawn, on the team case of the same coordinates; every claim was
checked. A question has one best plan, or none that can be run. Certified by dynamic programming over money.
No term for a fair share: any that changes the best plan would train against the team's value, any other is
implied by the plan.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from roles.base import AnswerError
from roles.reconcile import MAX_CALLS
from roles.team import Decision
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, Verdict, rejected
from scenarios.company.comparison import beats
from scenarios.company.optimum import best_over_money
from scenarios.company.records import Option
from scenarios.company.setting import find_sector
from scenarios.company.splits import belongs_to
from scenarios.headroom import blind_baseline, share_of_room
from scenarios.team.experts import ASKED_HABITS, best_report, sample_habit
from scenarios.team.funding import (
    Funding,
    best_in_order,
    choose_best,
    find_obstacle,
    list_all_fundings,
    list_conflicts,
    make_funding,
)
from scenarios.team.offers import CheckedReport, TabledOffer, cut_note, offers_on
from scenarios.team.playable import PublicCase
from scenarios.team.reading import read_decision
from scenarios.team.scenario import TeamScenario
from scenarios.team.scenario import generate as generate_team
from scenarios.team.texts import full, short
from scenarios.team.texts.comparing import compare_options, explain_best, name_plan
from scenarios.team.tools import call_reconciler_tool, write_favours

MAX_TRIES = 2000  # draws of habits and of a budget
BUDGET_SHARES = (40, 100)  # percent of the team case's budget
LEAST_PLANS = 4  # that can be run, unless none can
FUNDING_QUESTIONS = (  # by wording
    "Which option is chosen, and which of its offers are funded?",
    "Choose an option and say which of its offers the budget pays for.",
    "What do you decide, and whom do you fund?",
    "Decide for one option and for the offers on it that are funded.",
    "Where does the budget go?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FundingQuestion:
    """A question to ReconcileGPT, as its facts state it.

    Example: read_question(scenario.facts).public.budget == 40
    """

    public: PublicCase
    table: Mapping[str, CheckedReport | None]


def read_question(facts: Mapping[str, Any]) -> FundingQuestion:
    """The question that the facts hold."""
    public = PublicCase(
        sector=facts["sector"],
        situation=facts["situation"],
        options={letter: Option(letter=letter, **option) for letter, option in facts["options"].items()},
        budget=facts["budget"],
        wording=facts.get("wording", 0),
        seats=tuple(facts["reports"]),
    )
    return FundingQuestion(
        public=public, table={seat: _read_report(seat, r) for seat, r in facts["reports"].items()}
    )


def _read_report(seat: str, report: Mapping[str, Any]) -> CheckedReport:
    offers = tuple(
        TabledOffer(
            label=seat,
            seat=seat,
            option=offer["option"],
            choice=tuple(offer["part"]),
            cost=offer["cost"],
            worth=offer["worth"],
        )
        for offer in report["offers"]
    )
    return CheckedReport(
        offers=offers,
        needs=tuple(report["needs"]),
        veto=tuple(report["veto"]),
        note=report["note"],
        false_claims=(),
    )


def draw_question(
    split: Split, seed: int, index: int, difficulty: int
) -> tuple[dict[str, Any], FundingQuestion, list[Funding]]:
    """One question on the team case of the same coordinates: facts as JSON values, and plans that can be run.

    Raises:
        ValueError: coordinates out of range.
    """
    scenario = generate_team(split, seed, index, difficulty)
    rng = random.Random(f"reconcile/{scenario.key}")
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(MAX_TRIES):
        facts = _draw_facts(scenario, rng, known)
        question = read_question(facts)
        if belongs_to(split, _list_figures(question)):
            plans = list_all_fundings(question.public, question.table)
            if _is_clear(plans):
                return facts, question, plans
    raise RuntimeError(f"no reconcile question on {scenario.key} in {MAX_TRIES} draws")


def _draw_facts(
    scenario: TeamScenario, rng: random.Random, known: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """Facts of a candidate; `known` keeps the reports by seat and habit for the next one."""
    case, reports = scenario.case, {}
    for seat in scenario.seats:
        habit = sample_habit(rng, ASKED_HABITS)
        if (seat, habit) not in known:
            known[seat, habit] = _write_report(scenario, seat, habit)
        reports[seat] = known[seat, habit]
    return {
        "sector": case.sector,
        "situation": case.situation,
        "wording": case.wording,
        "options": {o.letter: {"name": o.name, "base": o.base} for o in case.options.values()},
        "budget": max(1, case.budget * rng.randint(*BUDGET_SHARES) // 100),
        "reports": reports,
    }


def _write_report(scenario: TeamScenario, seat: str, habit: str) -> dict[str, Any]:
    """An expert's report; its claims are true."""
    report = best_report(scenario, seat, habit)
    return {**report.model_dump(include={"offers", "needs", "veto"}), "note": cut_note(report.note)}


def _list_figures(question: FundingQuestion) -> list[Any]:
    """All figures that the texts of either style show: texts that are equal show equal figures."""
    offers = [
        [offer.label, offer.option, offer.cost, offer.worth]
        for option in question.public.base
        for offer in offers_on(question.table, option)
    ]
    return [question.public.budget, list(question.public.base.values()), offers]


def _is_clear(plans: Sequence[Funding]) -> bool:
    """Return whether there is one best plan among several, or none at all."""
    if not plans:
        return True
    ranks = sorted(((plan.worth, -plan.cost) for plan in plans), reverse=True)
    return len(plans) >= LEAST_PLANS and ranks[0] != ranks[1] and ranks[0][0] > ranks[-1][0]


def answer_of(question: FundingQuestion, plan: Funding | None) -> dict[str, Any]:
    """The answer object that chooses this plan; None escalates."""
    if plan is None:
        return {"option": "none", "fund": [], "escalate": True, "conflicts": []}
    return {
        "option": plan.option,
        "fund": [offer.label for offer in plan.offers],
        "escalate": False,
        "conflicts": list_conflicts(question.public, question.table, plan.option),
    }


def find_best_again(question: FundingQuestion) -> tuple[int, int] | None:
    """Worth and cost of the best plan by dynamic programming over money; None where nothing can be run."""
    found = []
    for option, base in question.public.base.items():
        offered = []
        for report in question.table.values():
            assert report is not None
            moves = [(offer.cost, offer.worth) for offer in report.offers if offer.option == option]
            bare = [] if option in report.needs else [(0, 0)]
            offered.append([] if option in report.veto else [*moves, *bare])
        found.append(best_over_money(base, offered, question.public.budget))
    runnable = (best for best in found if best is not None)
    return max(runnable, key=lambda best: (best[0], -best[1]), default=None)


def write_brief(facts: Mapping[str, Any], style: Style) -> str:
    """The user message.

    Example (short): "A 30: cto 9 14, coo 7 10\\nB 26: risk 13 20\\nBudget 40.\\nexact\\nA 54: cto coo\\n..."
    """
    question = read_question(facts)
    if style == "short":
        reports = short.write_decision_brief(question.public, question.table)
        return f"{reports}\n{write_favours(question.public, question.table)}"
    if style != "full":
        assert_never(style)
    reports = full.write_decision_brief(question.public, question.table)
    return f"{reports}\n{FUNDING_QUESTIONS[question.public.wording]}"


def generate(style: Style, split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One scenario; a pure function of its coordinates.

    Raises:
        ValueError: coordinates out of range.
    """
    facts, question, plans = draw_question(split, seed, index, difficulty)
    best = choose_best(plans)
    leader = compare_options(question.public, question.table)[1]  # of the sheet
    num_calls = 1 + (best is not None and beats(best, leader))  # the sheet, and a plan that is better
    truth = {
        **answer_of(question, best),
        "worth": best.worth if best else None,
        "cost": best.cost if best else None,
        "blind": list(blind_baseline([plan.worth for plan in plans], difficulty)) if plans else None,
    }
    return Scenario(
        family="reconcile",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="reconcile",
        brief=write_brief(facts, style),
        facts=facts,
        truth=truth,
        optimal_tool_calls=0 if style == "short" else num_calls,
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {key: scenario.truth[key] for key in ("option", "fund", "escalate", "conflicts")}


def verify(scenario: Scenario, text: str) -> Verdict:
    """Reward 0.6 head-room over a blind plan + 0.3 best plan + 0.1 conflicts right; 0 if it cannot be run."""
    question, truth = read_question(scenario.facts), scenario.truth
    try:
        decision = read_decision(question.public, question.table, text)
        _check_conflicts(question, decision)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    if decision.escalate or truth["escalate"]:
        if decision.escalate != truth["escalate"]:
            why = "some plan can be run" if decision.escalate else "no plan can be run: escalate"
            return rejected("infeasible", why)
        return _weigh(1.0, True, _share_right(question, decision.conflicts, ()), "escalated, rightly")
    offers = [offer for offer in offers_on(question.table, decision.option) if offer.label in decision.fund]
    obstacle = find_obstacle(question.public, question.table, decision.option, offers)
    if obstacle is not None:
        return rejected("infeasible", obstacle)
    plan = make_funding(question.public, decision.option, offers)
    exact = (plan.worth, plan.cost) == (truth["worth"], truth["cost"])
    numerator, denominator = truth["blind"]
    graded = share_of_room(plan.worth, truth["worth"], (numerator, denominator))
    right = _share_right(
        question, decision.conflicts, list_conflicts(question.public, question.table, decision.option)
    )
    best = f"best: {truth['option']} worth {truth['worth']} at cost {truth['cost']}"
    return _weigh(graded, exact, right, f"worth {plan.worth} at cost {plan.cost} ({best})")


def _check_conflicts(question: FundingQuestion, decision: Decision) -> None:
    conflicts = decision.conflicts
    if "conflicts" not in decision.model_fields_set:
        raise AnswerError("schema", "conflicts: missing")
    unknown = [seat for seat in conflicts if seat not in question.public.seats]
    if unknown:
        raise AnswerError("unknown_id", f"conflicts: {unknown[0][:40]!r} is no seat")
    if len(set(conflicts)) != len(conflicts):
        raise AnswerError("duplicate_id", "conflicts names one seat twice")


def _share_right(question: FundingQuestion, named: Sequence[str], wanted: Sequence[str]) -> float:
    seats = question.public.seats
    return sum((seat in named) == (seat in wanted) for seat in seats) / len(seats)


def _weigh(graded: float, exact: bool, conflicts: float, explanation: str) -> Verdict:
    conflicts = conflicts if graded else 0.0
    return Verdict(
        reward=(6 * graded + 3 * exact + conflicts) / 10,
        parts={"graded": graded, "exact": float(exact), "conflicts": conflicts},
        exact=exact,
        feasible=True,
        explanation=explanation,
        failure=None if exact else "suboptimal",
    )


def certify(scenario: Scenario) -> tuple[float, float]:
    """Worth and cost of the oracle's plan as one number, and of the best plan by the second method."""
    truth, again = scenario.truth, find_best_again(read_question(scenario.facts))
    return _rank(truth["worth"], truth["cost"]), _rank(*again) if again else -1.0


def _rank(worth: int | None, cost: int | None) -> float:
    return -1.0 if worth is None or cost is None else 1000.0 * worth - cost


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """total(option, fund) or sheet(), from the reports alone.

    Raises:
        ToolError: unknown tool, option or label, or arguments of another form.
    """
    question = read_question(scenario.facts)
    return call_reconciler_tool(question.public, question.table, call)


def _ask_total(plan: Funding, text: str) -> Step:
    fund = [offer.label for offer in plan.offers]
    return Step(text=text, call=ToolCall(name="total", arguments={"option": plan.option, "fund": fund}))


def _say_answer(question: FundingQuestion, plan: Funding | None) -> str:
    answer = json.dumps(answer_of(question, plan))
    if plan is None:
        return f"none can be run\n{answer}"
    against = list_conflicts(question.public, question.table, plan.option)
    favours = (f"{seat} {'no' if seat in against else 'yes'}" for seat in question.public.seats)
    return f"best {name_plan(plan)}\nfavour {plan.option}: {', '.join(favours)}\n{answer}"


def improve_sheet(question: FundingQuestion) -> tuple[Step, ...]:
    """Reads the sheet, compares its plans, exchanges offers of the best one, totals a plan that beats it."""
    steps = [Step(text="", call=ToolCall(name="sheet", arguments={}))]
    best = choose_best(list_all_fundings(question.public, question.table))
    lines, leader = explain_best(question.public, question.table, best)
    if best is not None and beats(best, leader):
        steps.append(_ask_total(best, "\n".join(lines)))
        lines = []
    return (*steps, Step(text="\n".join([*lines, _say_answer(question, best)])))


def read_sheet(question: FundingQuestion) -> tuple[Step, ...]:
    """Takes the best plan as the short brief lists it, and names the way of funding that led to it."""
    best = choose_best(list_all_fundings(question.public, question.table))
    return (Step(text=f"exact\n{json.dumps(answer_of(question, best))}"),)


def demonstrate(question: FundingQuestion, style: Style) -> tuple[Step, ...]:
    """The demonstration; in short style the brief lists the best plans."""
    return read_sheet(question) if style == "short" else improve_sheet(question)


def answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    """Any option, any of its offers, any conflicts."""
    question = read_question(scenario.facts)
    option = rng.choice(list(question.public.base))
    fund = [offer.label for offer in offers_on(question.table, option) if rng.random() < 0.5]
    conflicts = [seat for seat in question.public.seats if rng.random() < 0.5]
    return json.dumps({"option": option, "fund": fund, "escalate": False, "conflicts": conflicts})


def answer_first_option(_scenario: Scenario, _rng: random.Random) -> str:
    """The first option with nothing funded: the one plan that can be named without reading."""
    return json.dumps({"option": "A", "fund": [], "escalate": False, "conflicts": []})


def answer_greedily(scenario: Scenario, _rng: random.Random) -> str:
    """Funds by worth per k$ while money lasts, takes the best option so; overlooks needs and vetoes."""
    question = read_question(scenario.facts)
    blithe: Mapping[str, CheckedReport | None] = {
        seat: report and replace(report, needs=(), veto=()) for seat, report in question.table.items()
    }
    return json.dumps(answer_of(question, best_in_order(question.public, blithe, by_return=True)))


def answer_honestly(scenario: Scenario, _rng: random.Random) -> str:
    """Fund needed parts first, then by worth per k$ while money lasts; escalate if nothing can be run."""
    question = read_question(scenario.facts)
    plan = best_in_order(question.public, question.table, by_return=True)
    return json.dumps(
        answer_of(question, plan or choose_best(list_all_fundings(question.public, question.table)))
    )


def _build(style: Style) -> Family:
    def play(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
        return demonstrate(read_question(scenario.facts), style)

    return Family(
        name="reconcile",
        role="reconcile",
        generate=lambda split, seed, index, difficulty: generate(style, split, seed, index, difficulty),
        verify=verify,
        solve=solve,
        certify=certify,
        call_tool=call_tool,
        demonstrate=play,
        baselines={
            "random": answer_randomly,
            "constant": answer_first_option,
            "greedy": answer_greedily,
            "honest": answer_honestly,
        },
        max_calls=MAX_CALLS,
        find_sector=find_sector,
    )


FAMILY, SHORT_FAMILY = _build("full"), _build("short")
