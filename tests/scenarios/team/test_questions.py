"""ReconcileGPT's expert asks where a question pays by the reports, and its answer is played on with."""

import json
from itertools import pairwise
from statistics import fmean

import pytest
from tabled_reports import make_public, tabled

from roles.team import RECONCILER, Ask, Decision
from scenarios.base import Style
from scenarios.team import PlanGame, decision_value, generate, load_table
from scenarios.team.demonstrations import Meeting, hold_meeting
from scenarios.team.offers import EMPTY_REPORT
from scenarios.team.questions import choose_question


def test_it_asks_for_a_smaller_part_where_two_offers_do_not_fit_together() -> None:
    """Both cost 20 of 30: one is funded, and 10 for the other are reckoned at 0.9 x 10 x 24/20."""
    table = {"cto": tabled("cto", ("A", 20, 30)), "coo": tabled("coo", ("A", 20, 24))}
    assert choose_question(make_public(30), table) == Ask(seat="coo", option="A", cost_at_most=10)


def test_it_asks_for_a_larger_part_where_money_is_left() -> None:
    """Beyond the offer's 10 at a worth of 20 another 10 are reckoned at 0.4 x 2 each: 8 more."""
    table = {"cto": tabled("cto", ("A", 10, 20)), "coo": EMPTY_REPORT}
    assert choose_question(make_public(40), table) == Ask(seat="cto", option="A", cost_at_most=40)


def test_it_does_not_ask_where_little_is_to_be_gained_nor_twice() -> None:
    table = {"cto": tabled("cto", ("A", 10, 20)), "coo": EMPTY_REPORT}
    assert choose_question(make_public(12), table) is None  # 2 k$ more are reckoned at 1.6
    assert choose_question(make_public(40), table, [Ask(seat="cto", option="A", cost_at_most=40)]) is None


def test_where_nothing_can_be_run_it_asks_for_what_makes_an_option_possible() -> None:
    table = {
        "cto": tabled("cto", ("A", 30, 9), ("B", 25, 9), needs=("A", "B")),
        "coo": EMPTY_REPORT,
    }
    assert choose_question(make_public(10), table) == Ask(seat="cto", option="A", cost_at_most=10)


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
