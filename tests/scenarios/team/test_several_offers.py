"""Experts who may make several offers on an option, at the table and in training rows."""

import json
import random
import re
from pathlib import Path
from statistics import fmean

import pytest
from tiny_models import tiny_chat

from evaluation.scoring.baselines import play_experts, write_episode
from roles.team import RECONCILER, SPECIALISTS
from scenarios.base import Style
from scenarios.company.knapsack import list_efficient
from scenarios.company.records import Part
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import MOST_CALLS, hold_meeting
from scenarios.team.experts import best_report, choose_parts
from scenarios.team.frontier import list_steps
from scenarios.team.verdicts import verify_report
from simulator.reward import TeamRewardWeights, score_episode
from training.config.loading import load_config
from training.data.demonstrations import supervised_rows
from training.rl.team.replans import replan_rows
from training.stages.from_config import joint_cases

CASES = [generate("train", 0, index, 1 + index % 2, 2) for index in range(40)]


def test_the_steps_next_to_a_habit_follow_it_the_cheaper_first() -> None:
    """A seat whose steps on A cost 10, 14, 24 and 39: `full` takes 39, `lean` 10, `easy` 24."""
    case = generate("train", 0, 1, 2, 3)
    costs = [part.cost for part in list_steps(case, "risk", "A")]
    assert costs == [10, 14, 24, 39]

    def offered(habit: str) -> list[int]:
        return [part.cost for part in choose_parts(case, "risk", "A", habit)]

    assert offered("full") == [39, 24, 14]
    assert offered("lean") == [10, 14, 24]
    assert offered("easy") == [24, 14, 39]


@pytest.mark.parametrize("style", ["short", "full"])
def test_experts_make_two_offers_where_there_are_two_steps(style: Style) -> None:
    num_twice = 0
    for case in CASES:
        meeting = hold_meeting(PlanGame(case, style, 0))
        for seat in SPECIALISTS:
            steps = meeting.messages[seat][0].steps
            habit, report = steps[0].text.partition("\n")[0], meeting.reports[seat]
            assert report is not None
            assert not report["false_claims"]
            wanted = best_report(case, seat, habit).offers
            assert [(one["option"], one["cost"]) for one in report["offers"]] == [
                (one.option, one.cost) for one in wanted
            ]
            num_twice += len(wanted) > len({one.option for one in wanted})
            assert len(steps) <= MOST_CALLS + 1
    assert num_twice > 40


def test_a_seat_reads_how_many_parts_it_may_offer() -> None:
    one, two = (PlanGame(generate("train", 0, 3, 2, most), "short").prompt_role("cto") for most in (1, 2))
    assert "Offer one part per option" in one.mandate
    assert "Offer up to 2 parts per option" in two.mandate


def test_a_second_offer_is_worth_a_lot_to_experts_who_fund_exactly() -> None:
    """V on 40 cases: mixed habits earn .2 more, the best one written by hand .1."""
    weights = TeamRewardWeights()

    def mean_value(habit: str | None, most: int) -> float:
        cases = [generate("train", 0, index, 1 + index % 2, most) for index in range(40)]
        plays = [play_experts(habit, "exact")(case, random.Random(0)) for case in cases]
        return fmean(
            score_episode(case, write_episode(case, play), weights).value
            for case, play in zip(cases, plays, strict=True)
        )

    assert mean_value(None, 2) >= mean_value(None, 1) + 0.2
    assert mean_value("measured", 2) >= mean_value("measured", 1) + 0.1


def test_a_run_of_two_offers_draws_and_shows_them() -> None:
    config = load_config(None, ("data.offers_per_option=2", "model.adapter_sharing=shared"))
    assert all(case.offers_per_option == 2 for case in joint_cases(config, 0))
    chat = tiny_chat()
    (row,) = supervised_rows(config, "cto", chat, num_rows=1, first_row=0, seat_share=1.0)
    text = chat.decode(row.token_ids)
    assert re.search(r">(full|lean|strict|easy|rising)\n", text)
    reported = text[text.index("<|assistant|>") :].partition("<|end|>")[0]
    assert reported.count('"option": "A"') == 2


def test_governed_experts_fund_numbered_offers_in_the_order_of_the_seats(tmp_path: Path) -> None:
    config = load_config(None, ("data.offers_per_option=2",))
    rows = replan_rows(config, RECONCILER, tiny_chat(), tmp_path, num_rows=6, first_row=0, split="train")
    funded = re.findall(r'"fund": \[(.*?)\]', "".join(tiny_chat().decode(row.token_ids) for row in rows))
    seats = [[label.strip('"')[:-1] for label in one.split(", ") if label] for one in funded]
    assert any(len(one) > 1 for one in seats)
    assert all(one == [seat for seat in SPECIALISTS if seat in one] for one in seats if "risk" in one)


def test_an_offer_made_twice_counts_once_in_the_seats_verdict() -> None:
    """One efficient and one inefficient part are .5 of the offers, also where the first stands twice."""
    case, seat = next(
        (case, seat)
        for case in (generate("train", 0, index, 2, 3) for index in range(40))
        for seat in SPECIALISTS
        if len(case.parts_of(seat, "A")) > len(list_efficient(case.parts_of(seat, "A")))
        and list_steps(case, seat, "A")
    )
    efficient = list_steps(case, seat, "A")[0]
    wasteful = next(
        part
        for part in case.parts_of(seat, "A")
        if part.choice and part not in list_efficient(case.parts_of(seat, "A"))
    )

    def share(*parts: Part) -> float:
        offers = [
            {"option": "A", "part": part.choice, "cost": part.cost, "worth": part.worth} for part in parts
        ]
        verdict = verify_report(case, seat, json.dumps({"offers": offers, "needs": [], "veto": []}))
        return verdict.parts["efficient"]

    assert share(efficient, wasteful) == share(efficient, efficient, wasteful) == 0.5
