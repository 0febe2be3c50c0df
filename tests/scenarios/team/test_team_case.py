"""The planning table on a case worked out by hand: claims, funding, values, verdicts, votes, texts, tools."""

import json
from fractions import Fraction

import pytest
from northbank import make_northbank

from roles.base import AnswerError
from roles.team import Ask, Decision, Offer, Report
from scenarios.base import ToolCall, ToolError
from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.optimum import scale_worth
from scenarios.company.records import Plan
from scenarios.company.steps import concave_steps
from scenarios.team.experts import (
    REPORT_HABITS,
    best_decision,
    best_reply,
    best_report,
    best_vote,
    expert_report,
)
from scenarios.team.frontier import take_by_hurdle
from scenarios.team.funding import best_funding, best_in_order, fund_in_order, list_fundings
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, check_report, is_needed, is_vetoed
from scenarios.team.reading import read_decision
from scenarios.team.scenario import TeamScenario, seat_team
from scenarios.team.texts.short import write_report
from scenarios.team.tools import call_reconciler_tool
from scenarios.team.value import decision_value, judge_decision
from scenarios.team.verdicts import verify_decision, verify_report, verify_vote

TABLE = seat_team(make_northbank())
PUBLIC = TABLE.public


def report_all(habit: str, scenario: TeamScenario = TABLE) -> dict[str, CheckedReport | None]:
    return {seat: check_report(scenario, seat, best_report(scenario, seat, habit)) for seat in scenario.seats}


FULL = report_all("full")
LEAN = report_all("lean")


def decide(option: str, *fund: str) -> Decision:
    return Decision(option=option, fund=list(fund), escalate=False)


def test_the_optimum_is_b_with_all_four_parts() -> None:
    assert TABLE.optimum is not None
    assert (TABLE.optimum.worth, TABLE.optimum.cost, TABLE.optimum.plan.option) == (100, 40, "B")


def test_list_efficient_keep_the_limit_and_are_not_beaten() -> None:
    assert [part.cost for part in list_efficient(TABLE.parts_of("cto", "A"))] == [9, 15]
    assert [part.cost for part in list_efficient(TABLE.parts_of("risk", "B"))] == [0, 6, 13]


def test_steps_of_the_hull_return_less_and_less() -> None:
    # 9/6 = 1.5 and then 11/7: the second step returns more, so the first part is not on the hull
    assert [part.cost for part in concave_steps(list_efficient(TABLE.parts_of("risk", "B")))] == [0, 13]


@pytest.mark.parametrize(("hurdle", "cost"), [(Fraction(1), 15), (Fraction(3, 2), 9)])
def test_a_hurdle_stops_where_a_step_returns_less(hurdle: Fraction, cost: int) -> None:
    # from 9 to 15 the worth goes from 14 to 22: 8/6 = 1.33 per k$
    assert take_by_hurdle(list_efficient(TABLE.parts_of("cto", "A")), hurdle).cost == cost


def test_the_best_part_within_an_amount() -> None:
    frontier = list_efficient(TABLE.parts_of("risk", "B"))
    assert [part and part.cost for part in (take_within(frontier, amount) for amount in (5, 6, 12, 13))] == [
        0, 6, 6, 13,
    ]  # fmt: skip
    assert take_within(list_efficient(TABLE.parts_of("coo", "B")), 13) is None


def test_needs_and_vetoes_follow_from_the_limits() -> None:
    assert [is_needed(TABLE, "cto", option) for option in "AB"] == [True, False]
    assert [is_needed(TABLE, "coo", option) for option in "AB"] == [False, True]
    assert not any(is_vetoed(TABLE, seat, option) for seat in TABLE.seats for option in "AB")


@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        (
            Offer(option="A", part=["spare gateway"], cost=9, worth=15),
            "cost 9 and worth 15 are not its figures",
        ),
        (
            Offer(option="A", part=["spare gateway"], cost=8, worth=14),
            "cost 8 and worth 14 are not its figures",
        ),
        (Offer(option="A", part=["gold plating"], cost=9, worth=14), "no such part"),
        (Offer(option="C", part=["spare gateway"], cost=9, worth=14), "options are A B"),
    ],
)
def test_a_false_claim_strikes_the_offer_out(offer: Offer, problem: str) -> None:
    checked = check_report(TABLE, "cto", Report(offers=[offer], needs=[], veto=[]))
    assert (checked.offers, checked.false_claims) == ((), (f"offer on {offer.option}: {problem}",))


def test_names_of_a_part_may_stand_in_any_order() -> None:
    offer = Offer(option="A", part=["cache", "spare gateway"], cost=15, worth=22)
    [tabled] = check_report(TABLE, "cto", Report(offers=[offer], needs=["A"], veto=[])).offers
    assert tabled.choice == ("spare gateway", "cache")


def test_a_second_offer_on_an_option_is_one_too_many() -> None:
    offers = [Offer(option="A", part=["spare gateway"], cost=9, worth=14)] * 2
    checked = check_report(TABLE, "cto", Report(offers=offers, needs=["A"], veto=[]))
    assert len(checked.offers) == 1
    assert checked.false_claims == ("offer on A: more than 1 on this option",)


def test_false_needs_and_vetoes_are_counted_and_left_out() -> None:
    checked = check_report(TABLE, "cto", Report(offers=[], needs=["B"], veto=["A"]))
    assert (checked.needs, checked.veto, len(checked.false_claims)) == ((), (), 2)


def test_the_reports_of_experts_claim_nothing_false() -> None:
    for habit in REPORT_HABITS:
        assert all(report is not None and not report.false_claims for report in report_all(habit).values())


def test_funding_needs_what_the_option_needs_and_stays_within_the_budget() -> None:
    plans = list_fundings(PUBLIC, FULL, "A")
    assert all("cto" in {offer.seat for offer in plan.offers} and plan.cost <= 40 for plan in plans)
    assert len(plans) == 2**3  # the CTO's part is needed; the three others cost at most 25 beside its 15
    assert max(plan.worth for plan in plans) == 98


def test_the_best_plan_by_the_reports() -> None:
    best = best_funding(PUBLIC, FULL)
    assert best is not None
    assert (best.option, best.cost, best.worth) == ("B", 40, 100)


def test_funding_in_order_of_return_stops_where_money_ends() -> None:
    public = seat_team(make_northbank(budget=30)).public
    plan = fund_in_order(public, FULL, "B", by_return=True)
    # the COO's needed part (14), then CTO 21/8, then cost 8/5 before risk 20/13, which no longer fits
    assert plan is not None
    assert [offer.seat for offer in plan.offers] == ["cto", "coo", "cost"]
    assert (plan.cost, plan.worth) == (27, 80)
    # A: the CTO's needed 15, then risk 8 and, cost no longer fitting, coo 7: 30 + 22 + 19 + 10
    best = best_in_order(public, FULL, by_return=True)
    assert best is not None
    assert (best.option, best.cost, best.worth) == ("A", 30, 81)


def test_values_are_0_at_a_blind_plan_and_1_at_the_optimum() -> None:
    assert decision_value(TABLE, FULL, decide("B", "cto", "coo", "risk", "cost")) == 1.0
    half = judge_decision(TABLE, FULL, decide("A", "cto", "coo", "risk", "cost"))
    blind = TABLE.truth["blind"]
    assert half.worth == 98
    assert half.value == pytest.approx(float((98 - blind) / (100 - blind)))
    assert 0 < half.value < 1
    alone = judge_decision(TABLE, FULL, decide("A", "cto"))
    assert (alone.value, alone.worth) == (0.0, 52)


def test_where_one_plan_alone_can_be_run_it_is_worth_1() -> None:
    only = seat_team(make_northbank(budget=9))  # A needs 9, B 14: a blind plan is the best one
    assert only.optimum is not None
    assert only.truth["blind"] == only.optimum.worth == 44
    offer = Offer(option="A", part=["spare gateway"], cost=9, worth=14)
    table = {"cto": check_report(only, "cto", Report(offers=[offer], needs=["A"], veto=[]))}
    assert decision_value(only, table, decide("A", "cto")) == 1.0
    assert decision_value(only, table, decide("A")) == 0.0
    assert [scale_worth(worth, Fraction(44), 44) for worth in (43, 44)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("decision", "broken"),
    [(decide("B", "cto"), ("coo",)), (decide("A"), ("cto",)), (None, ("cto", "coo", "risk", "cost"))],
)
def test_a_broken_limit_is_worth_nothing(decision: Decision | None, broken: tuple[str, ...]) -> None:
    value = judge_decision(TABLE, FULL, decision)
    assert (value.value, value.broken_limits) == (0.0, broken)


def test_a_plan_over_the_budget_is_worth_nothing() -> None:
    tight = seat_team(make_northbank(budget=39))
    value = judge_decision(tight, FULL, decide("B", "cto", "coo", "risk", "cost"))
    assert (value.value, value.over_budget) == (0.0, 1)


def test_escalation_is_right_only_where_nothing_can_be_run() -> None:
    up = Decision(option="none", fund=[], escalate=True)
    assert judge_decision(TABLE, FULL, up).escalation_fault
    hopeless = seat_team(make_northbank(budget=8))  # A needs 9, B needs 14
    assert hopeless.optimum is None
    assert judge_decision(hopeless, FULL, up).value == 1.0
    assert judge_decision(hopeless, FULL, decide("B", "coo")).escalation_fault
    assert best_decision(hopeless.public, FULL, "exact").escalate


@pytest.mark.parametrize("habit", REPORT_HABITS)
def test_every_habit_is_right_by_its_role(habit: str) -> None:
    for seat in TABLE.seats:
        verdict = verify_report(TABLE, seat, expert_report(TABLE, seat, habit).text)
        assert (verdict.reward, verdict.exact) == (1.0, True)


def test_a_false_claim_earns_a_report_nothing() -> None:
    report = best_report(TABLE, "cto", "full").model_dump()
    report["offers"][0]["worth"] += 1
    assert verify_report(TABLE, "cto", json.dumps(report)).reward == 0


def test_silence_earns_a_seat_nothing_where_there_is_something_to_gain() -> None:
    assert verify_report(TABLE, "risk", '{"offers": [], "needs": [], "veto": []}').reward == 0


def test_a_dominated_offer_is_not_efficient() -> None:
    # B: fraud scoring alone is efficient; an offer of the same part on A only leaves B without an offer
    text = json.dumps(
        {
            "offers": [{"option": "A", "part": ["tokenisation"], "cost": 8, "worth": 19}],
            "needs": [],
            "veto": [],
        }
    )
    verdict = verify_report(TABLE, "risk", text)
    assert verdict.parts == {"efficient": 1.0, "coverage": 0.5, "flags": 1.0}
    assert verdict.reward == pytest.approx(0.9)


def test_decisions_are_graded_by_what_the_reports_allow() -> None:
    best = verify_decision(PUBLIC, FULL, best_decision(PUBLIC, FULL, "exact").model_dump_json())
    assert (best.reward, best.exact) == (1.0, True)
    less = verify_decision(PUBLIC, FULL, decide("A", "cto", "coo", "risk", "cost").model_dump_json())
    assert 0 < less.reward < 1
    assert verify_decision(PUBLIC, FULL, decide("B", "cto").model_dump_json()).failure == "infeasible"


@pytest.mark.parametrize(
    "decision",
    [
        {"option": "B", "fund": ["legal"], "escalate": False},
        {"option": "B", "fund": ["cto", "cto"], "escalate": False},
        {"option": "none", "fund": [], "escalate": False},
        {"option": "B", "fund": [], "escalate": True},
        {"option": "none", "fund": ["cto"], "escalate": True},
        {"option": "C", "fund": [], "escalate": False},
    ],
)
def test_a_decision_about_what_is_not_on_the_table_is_refused(decision: dict[str, object]) -> None:
    with pytest.raises(AnswerError):
        read_decision(PUBLIC, FULL, json.dumps(decision))


def test_votes_object_to_a_broken_limit_and_to_nothing_else() -> None:
    without_crew = Plan(option="B", funded={"cto": ("spare ledger node",)})
    assert best_vote(TABLE, "coo", without_crew, escalated=False).vote == "object"
    assert best_vote(TABLE, "risk", without_crew, escalated=False).vote == "accept"
    assert best_vote(TABLE, "risk", None, escalated=False).vote == "object"
    assert verify_vote(TABLE, "coo", without_crew, False, '{"vote": "accept"}').reward == 0


def test_a_seat_answers_a_question_with_its_best_part_within_the_amount() -> None:
    offer = best_reply(TABLE, "cto", Ask(seat="cto", option="A", cost_at_most=15)).offer
    assert offer is not None
    assert (offer.cost, offer.worth) == (15, 22)
    assert best_reply(TABLE, "coo", Ask(seat="coo", option="B", cost_at_most=5)).offer is None


def test_short_texts_are_compact() -> None:
    game = PlanGame(TABLE, "short")
    reports = {seat: game.read_report(seat, expert_report(TABLE, seat, "lean").text) for seat in TABLE.seats}
    assert game.write_report_brief("cto").splitlines() == [
        "Budget 40 ample.",
        "A need: first 2 F 9 14, mid 3 G 15 22",
        "B: high 2 H 8 21",
    ]
    assert game.write_decision_brief(reports).splitlines()[:3] == [
        "A 30: cto 9 14 need, coo 7 10, risk 8 19, cost 10 17",
        "B 26: cto 8 21, coo 14 25 need, risk 13 20, cost 5 8",
        "Budget 40.",
    ]
    assert game.write_decision_brief(reports).splitlines()[3:6] == [
        "exact",
        "B 100: cto coo risk cost",
        "A 90: cto coo risk cost",
    ]
    decision = decide("B").model_dump()
    assert game.write_vote_brief(decision, "cto", reports) == "Decision B without your part. Vote."


@pytest.mark.parametrize(
    ("budget", "offered"),
    # A: the first part is taken whatever it costs; the step to G returns 8 for 6 k$ ("mid"), so G is offered
    # where 15 k$ are less than four tenths. B: the only part is the first.
    [(40, (15, 8)), (38, (15, 8)), (37, (9, 8)), (20, (9, 8))],
)
def test_rising_experts_stop_where_a_step_returns_too_little_for_its_share(
    budget: int, offered: tuple[int, int]
) -> None:
    report = best_report(seat_team(make_northbank(budget=budget)), "cto", "rising")
    assert tuple(offer.cost for offer in report.offers) == offered


def test_a_part_may_be_offered_by_its_code() -> None:
    game = PlanGame(TABLE, "short")
    text = json.dumps(
        {"offers": [{"option": "A", "part": ["G"], "cost": 15, "worth": 22}], "needs": ["A"], "veto": []}
    )
    read = game.read_report("cto", text)
    assert read is not None
    assert read["offers"][0]["choice"] == ["spare gateway", "cache"]
    other = game.read_report("cto", text.replace('"A", "part"', '"B", "part"'))
    assert other is not None
    assert not other["offers"], "the code of a part on another option"
    written = write_report(TABLE, "cto", best_report(TABLE, "cto", "full"))
    assert [offer["part"] for offer in json.loads(written)["offers"]] == [["G"], ["H"]]


def test_the_total_tool_adds_up_and_names_what_is_in_the_way() -> None:
    def total(option: str, *fund: str) -> str:
        call = ToolCall(name="total", arguments={"option": option, "fund": list(fund)})
        return call_reconciler_tool(PUBLIC, LEAN, call)

    assert total("B", "cto", "coo", "risk", "cost") == "cost 40 of 40, worth 100"
    assert total("B", "cto") == "cost 8 of 40, worth 47; cannot be run: B needs coo"
    with pytest.raises(ToolError, match="'legal' has no offer on B"):
        total("B", "legal")
    sheet = call_reconciler_tool(PUBLIC, LEAN, ToolCall(name="sheet", arguments={}))
    assert sheet == (
        "A fund cto coo risk cost: cost 34 of 40, worth 90\n"
        "B fund cto coo risk cost: cost 40 of 40, worth 100\n"
        "favour: cto B, coo B, risk A, cost A"
    )
