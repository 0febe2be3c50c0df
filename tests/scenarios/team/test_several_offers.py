"""Experts who may make several offers on an option: a habit for each, at the table and in training rows."""

import random
import re
from pathlib import Path
from statistics import fmean

import pytest
from tiny_models import tiny_chat

from evaluation.scoring.baselines import play_experts, write_episode
from roles.team import RECONCILER, SPECIALISTS
from scenarios.base import Style
from scenarios.team import PlanGame, generate
from scenarios.team.demonstrations import MOST_CALLS, hold_meeting
from scenarios.team.experts import choose_part, sample_habit
from simulator.reward import TeamRewardWeights, score_episode
from training.config.loading import load_config
from training.data.demonstrations import supervised_rows
from training.rl.team.replans import replan_rows
from training.stages.from_config import joint_cases

CASES = [generate("train", 0, index, 1 + index % 2, 2) for index in range(40)]


def test_habits_are_drawn_without_repetition_in_one_order() -> None:
    rng = random.Random(0)
    drawn = {
        sample_habit(rng, {"full": 0.6, "lean": 0.3, "easy": 0.1, "measured": 0.0}, 2) for _ in range(99)
    }
    assert drawn == {"full lean", "full easy", "lean easy"}


@pytest.mark.parametrize("style", ["short", "full"])
def test_a_seat_of_two_habits_offers_what_each_of_them_would(style: Style) -> None:
    num_twice = 0
    for case in CASES:
        meeting = hold_meeting(PlanGame(case, style))
        for seat in SPECIALISTS:
            report = meeting.reports[seat]
            habits = meeting.messages[seat][0].steps[0].text.partition("\n")[0].split()
            assert report is not None
            assert len(set(habits)) == 2
            assert not report["false_claims"]
            offered = [(offer["option"], tuple(offer["choice"])) for offer in report["offers"]]
            parts = [choose_part(case, seat, option, habit) for option in case.options for habit in habits]
            wanted = dict.fromkeys((part.option, part.choice) for part in parts if part is not None)
            replies = [step for message in meeting.messages[seat][1:-1] for step in message.steps]
            assert offered[: len(wanted)] == list(wanted)
            assert replies or len(offered) == len(wanted)
            num_twice += len(wanted) > len({option for option, _ in wanted})
            assert len(meeting.messages[seat][0].steps) <= MOST_CALLS + 1
    assert num_twice > 40  # most seats have something else to offer by their second habit


def test_a_seat_reads_how_many_parts_it_may_offer() -> None:
    one, two = (PlanGame(generate("train", 0, 3, 2, most), "short").prompt_role("cto") for most in (1, 2))
    assert "Offer one part per option" in one.mandate
    assert "Offer up to 2 parts per option" in two.mandate


def test_named_experts_offer_what_serves_best_beside_their_habit() -> None:
    """V of experts on 40 cases who fund exactly: two offers earn the mixed ones, and the best, .1 more."""
    weights = TeamRewardWeights()

    def mean_value(habit: str | None, most: int) -> float:
        cases = [generate("train", 0, index, 1 + index % 2, most) for index in range(40)]
        plays = [play_experts(habit, "exact")(case, random.Random(0)) for case in cases]
        return fmean(
            score_episode(case, write_episode(case, play), weights).value
            for case, play in zip(cases, plays, strict=True)
        )

    assert mean_value(None, 2) >= mean_value(None, 1) + 0.1
    assert mean_value("measured", 2) >= mean_value("measured", 1) + 0.1


def test_a_run_of_two_offers_draws_and_shows_them() -> None:
    config = load_config(None, ("data.offers_per_option=2", "model.adapter_sharing=shared"))
    assert all(case.offers_per_option == 2 for case in joint_cases(config, 0))
    chat = tiny_chat()
    (row,) = supervised_rows(config, "cto", chat, num_rows=1, first_row=0, seat_share=1.0)
    text = chat.decode(row.token_ids)
    assert re.search(r">(full|lean|strict|easy) (lean|strict|easy|rising)\n", text)


def test_governed_experts_fund_numbered_offers_in_the_order_of_the_seats(tmp_path: Path) -> None:
    config = load_config(None, ("data.offers_per_option=2",))
    rows = replan_rows(config, RECONCILER, tiny_chat(), tmp_path, num_rows=6, first_row=0, split="train")
    funded = re.findall(r'"fund": \[(.*?)\]', "".join(tiny_chat().decode(row.token_ids) for row in rows))
    seats = [[label.strip('"')[:-1] for label in one.split(", ") if label] for one in funded]
    assert any(len(one) > 1 for one in seats)
    assert all(one == [seat for seat in SPECIALISTS if seat in one] for one in seats if "risk" in one)
