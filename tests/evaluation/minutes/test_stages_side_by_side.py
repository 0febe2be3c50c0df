"""Cases after every training stage: which are chosen, and how they stand side by side."""

import json
from dataclasses import asdict, replace

import pytest
from report_runs import side
from scored_outcomes import team_outcome

from evaluation.minutes.transcript import (
    ChosenCase,
    choose_cases,
    describe_outcome,
    load_case,
    render_side_by_side_html,
    render_text,
)


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ([1.0, 0.1, 0.0, -0.8, 0.3], {"median": 1, "loss": 3, "gain": 0}),
        ([1.0, 0.1, 0.0, -0.8], {"median": 2, "loss": 3, "gain": 0}),  # the lower of two
        ([1.0], {"median": 0}),
        ([0.0, 0.0, 0.0, 0.0], {"median": 1}),  # neither a loss nor a gain
        ([0.0, 0.0, 0.5], {"median": 1, "gain": 2}),
        ([0.5, 0.5, 0.5], {"median": 1, "gain": 0}),  # of equal ones the earliest
    ],
)
def test_the_median_the_largest_loss_and_the_largest_gain_are_chosen(
    changes: list[float], chosen: dict[str, int]
) -> None:
    assert choose_cases([0.0] * len(changes), changes) == chosen


def test_the_rule_names_the_stages_and_how_many_cases_there_were() -> None:
    plays = [
        replace(side(label, "x"), scores={"reward": reward})
        for label, reward in (("SFT", 0.5), ("MARL", 0.2))
    ]
    case = ChosenCase(choice="median", num_cases=600, is_greedy=True, plays=plays)
    assert "from 600 sealed test cases, each played greedily by" in case.rule
    assert "from SFT to MARL" in case.rule
    assert case.title == "The median change: team reward -0.300"
    assert "greedily" not in replace(case, is_greedy=False).rule


def test_shared_texts_stand_once() -> None:
    three = (side("SFT", '{"option": "A"}'), side("GRPO", '{"option": "B"}'), side("MARL", '{"option": "B"}'))
    html = str(render_side_by_side_html(three))
    assert html.count('<span class="tag">') == 3
    assert html.count("Northbank. CTO seat.") == 1


def test_an_evaluated_episode_reads_like_one_that_was_just_played_and_survives_the_summary() -> None:
    played = replace(
        team_outcome({}),
        reports={"cto": '{"offers": []}'},
        asked=[("which?", "that one")],
        cut_off=["cto"],
        votes={"cto": '{"vote": "accept"}'},
        explanation="B is best",
    )
    shown = describe_outcome(played, briefs={"cto": "Northbank."}, label="MARL")
    text = render_text(shown)
    for expected in (
        "nothing\n  (cut off by a limit)",
        "which?",
        "that one",
        "CTO: accept",
        "value V: 0.500",
        "B is best",
    ):
        assert expected in text
    case = ChosenCase(choice="gain", num_cases=3, is_greedy=True, plays=(shown,))
    (loaded,) = load_case(json.loads(json.dumps(asdict(case)))).plays
    assert render_text(loaded) == text
