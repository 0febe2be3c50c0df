"""ReconcileGPT's expert asks where a question pays by the reports, and its answer is played on with."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest
from tabled_reports import make_public, tabled

from roles.team import RECONCILER, Ask, Decision
from scenarios.base import Style, ToolCall
from scenarios.team import PlanGame, decision_value, generate, load_table
from scenarios.team.demonstrations import Meeting, hold_meeting
from scenarios.team.offers import EMPTY_REPORT
from scenarios.team.questions import choose_question, explain_question
from scenarios.team.texts.short import write_decision_brief as brief


def test_it_asks_for_a_smaller_part_where_two_offers_do_not_fit_together() -> None:
    """Each costs 20 of 30: one is funded, and 10 are left for the others."""
    offers = {"cto": ("A", 20, 30), "coo": ("A", 20, 24), "risk": ("A", 20, 26)}
    table = {seat: tabled(seat, offer) for seat, offer in offers.items()}
    two = {seat: table[seat] for seat in ("cto", "coo")}
    assert choose_question(make_public(30), two) == Ask(seat="coo", option="A", cost_at_most=10)
    lines, ask = explain_question(make_public(30), table)
    assert ask == Ask(seat="risk", option="A", cost_at_most=10)
    assert lines == ["A: 30 - 20 = 10 left", "not funded: coo 24, risk 26, most risk"]


def test_it_asks_for_a_larger_part_where_money_is_left() -> None:
    table = {"cto": tabled("cto", ("A", 10, 20)), "coo": EMPTY_REPORT}
    lines, ask = explain_question(make_public(40), table)
    assert ask == Ask(seat="cto", option="A", cost_at_most=40)
    assert lines == ["A: 40 - 10 = 30 left", "all funded: cto 20, most cto, 10 + 30 = 40"]


def test_it_does_not_ask_where_little_is_to_be_gained_nor_twice() -> None:
    table = {"cto": tabled("cto", ("A", 10, 20)), "coo": EMPTY_REPORT}
    assert explain_question(make_public(12), table) == (["A: 12 - 10 = 2 left"], None)
    assert choose_question(make_public(13), table) == Ask(seat="cto", option="A", cost_at_most=13)
    assert choose_question(make_public(40), table, [Ask(seat="cto", option="A", cost_at_most=40)]) is None


def test_where_nothing_can_be_run_it_asks_for_what_makes_an_option_possible() -> None:
    table = {
        "cto": tabled("cto", ("A", 30, 9), ("B", 25, 9), needs=("A", "B")),
        "coo": EMPTY_REPORT,
    }
    ask = Ask(seat="cto", option="A", cost_at_most=10)
    assert explain_question(make_public(10), table) == (["A needs cto: 10 - 0 = 10 left"], ask)
    assert choose_question(make_public(10), table, [ask]) == Ask(seat="cto", option="B", cost_at_most=10)
    vetoed = table | {"coo": replace(EMPTY_REPORT, veto=("A", "B"))}
    assert explain_question(make_public(10), vetoed) == ([], None)


def test_reconcilegpt_says_what_leads_from_the_sheet_to_its_question_or_to_none() -> None:
    num_asked = num_silent = 0
    for index in range(25):
        game = PlanGame(generate("train", 0, index, 1), "full", questions=1)
        *questions, decided = hold_meeting(game).messages[RECONCILER]
        before = [*questions, decided][0]
        left = [line for line in before.steps[1].text.splitlines() if line.endswith(" left")]
        if not before.steps[1].text.startswith("A:"):
            continue  # nothing can be run
        best = re.findall(r"best ([A-Z]) ", before.steps[1].text)[-1]
        sheet = game.call_tool(RECONCILER, ToolCall(name="sheet", arguments={}), before.reports)
        cost, budget = re.findall(rf"^{best} fund .*: cost (\d+) of (\d+),", sheet, re.MULTILINE)[0]
        assert left == [f"{best}: {budget} - {cost} = {int(budget) - int(cost)} left"]
        if questions:
            num_asked += 1
            ask = game.read_ask(before.steps[-1].text)
            assert ask is not None
            assert ask["option"] == best
            assert before.steps[1].text.splitlines()[-2].partition(", most ")[2].split(",")[0] == ask["seat"]
            assert " left" not in decided.steps[1].text  # asked once: nothing is weighed again
        else:
            num_silent += 1
            assert int(budget) - int(cost) < 3
    assert num_asked > 10
    assert num_silent > 2


def value_of(game: PlanGame, meeting: Meeting) -> float:
    assert meeting.decision is not None
    return decision_value(game.case, load_table(meeting.reports), Decision.model_validate(meeting.decision))  # type: ignore[arg-type]


@pytest.mark.parametrize("style", ["full", "short"])
def test_questions_of_the_demonstrations_pay(style: Style) -> None:
    gains = []
    for index in range(25):
        silent, asking = (PlanGame(generate("train", 5, index, 3), style, most) for most in (0, 1))
        gains.append(value_of(asking, hold_meeting(asking)) - value_of(silent, hold_meeting(silent)))
    assert fmean(gains) > 0.01
    assert min(gains) > -0.2


def test_a_question_its_reply_and_the_decision_stand_in_the_transcripts() -> None:
    for index in range(12):
        game = PlanGame(generate("train", 0, index, 2), "full", questions=2)
        said = hold_meeting(game).messages
        *questions, decided = said[RECONCILER]
        for before, after in pairwise(said[RECONCILER]):
            text = before.steps[-1].text
            ask = game.read_ask(text)
            assert ask is not None
            replies = [one for one in said[ask["seat"]] if one.brief == game.write_ask(ask["seat"], ask)]
            assert len(replies) == 1
            offer = game.read_reply(ask["seat"], ask, before.reports[ask["seat"]], replies[0].steps[-1].text)
            assert after.reports[ask["seat"]] == game.add_offer(before.reports[ask["seat"]], offer)
            assert after.brief == game.write_decision_brief(after.reports)
        assert game.read_decision(decided.reports, decided.steps[-1].text) is not None
        assert len(questions) <= 2


def test_short_prompts_ask_nothing_unless_told_and_then_reply_by_codes() -> None:
    cases = [generate("train", 0, index, 2) for index in range(12)]
    assert all(len(hold_meeting(PlanGame(case, "short")).messages[RECONCILER]) == 1 for case in cases)
    replies = [
        json.loads(message.steps[-1].text)["offer"]
        for case in cases
        for seat, said in hold_meeting(PlanGame(case, "short", 1)).messages.items()
        for message in said[1:-1]
        if seat != RECONCILER
    ]
    assert any(replies)
    assert all(offer is None or len(offer["part"][0]) <= 2 for offer in replies)


def test_small_models_that_may_ask_read_what_each_offer_may_cost() -> None:
    """18 of 40 are spent on A: another offer costs 22 at most, one in place of CTO's 40."""
    table = {"cto": tabled("cto", ("A", 18, 20)), "coo": EMPTY_REPORT}
    assert brief(make_public(40), table, may_ask=True).endswith("\nA left 22: cto 40, coo 22")
    without_a = brief(make_public(40), table, ["A"], may_ask=True)
    assert without_a.endswith("\nB left 40: cto 40, coo 40")
    vetoed = table | {"coo": replace(EMPTY_REPORT, veto=("A", "B"))}
    assert brief(make_public(40), vetoed, may_ask=True) == brief(make_public(40), vetoed)


def test_every_amount_of_an_expert_question_stands_in_the_short_brief() -> None:
    num_asked = 0
    for index in range(12):
        for most, shown in ((0, False), (2, True)):
            game = PlanGame(generate("train", 0, index, 2), "short", most)
            for message in hold_meeting(game).messages[RECONCILER]:
                assert (" left " in message.brief) == shown
                ask = game.read_ask(message.steps[-1].text)
                if ask is not None:
                    num_asked += 1
                    assert re.search(
                        rf"^{ask['option']} left \d+: .*\b{ask['seat']} {ask['cost_at_most']}\b",
                        message.brief,
                        re.MULTILINE,
                    )
    assert num_asked > 10
