"""Cases after every training stage: which are chosen, and how they stand side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import side

from evaluation.minutes.transcript import (
    EpisodeTranscript,
    choose_cases,
    read_side_by_side,
    render_side_by_side_html,
    write_side_by_side,
)
from roles.errors import UserError


def plays(*rewards: float, key: str = "a", error: str | None = None) -> tuple[EpisodeTranscript, ...]:
    stages = ("SFT", "GRPO", "MARL")[-len(rewards) :] if len(rewards) < 3 else ("SFT", "GRPO", "MARL")
    return tuple(
        replace(side(stage, "x"), scores={"reward": reward}, scenario_key=key, error=error)
        for stage, reward in zip(stages, rewards, strict=True)
    )


def choose(cases: list[tuple[EpisodeTranscript, ...]]) -> dict[str, str]:
    return {case.choice: case.plays[0].scenario_key for case in choose_cases(cases)}


def test_the_median_the_largest_loss_and_the_largest_gain_are_chosen() -> None:
    cases = [
        plays(0.0, 0.9, 1.0, key="gain"),
        plays(0.5, 0.0, 0.6, key="median"),  # +0.1
        plays(0.5, 0.5, 0.5, key="same"),
        plays(1.0, 1.0, 0.2, key="loss"),
        plays(0.1, 0.1, 0.4, key="more"),
    ]
    assert choose(cases) == {"median": "median", "loss": "loss", "gain": "gain"}
    assert choose(cases[::-1]) == choose(cases)  # the order of play does not matter
    assert choose(cases[:4]) == {"median": "same", "loss": "loss", "gain": "gain"}  # the lower of two
    assert choose(cases[:1]) == {"median": "gain"}


def test_what_there_is_not_is_not_shown() -> None:
    equal = [plays(0.5, 0.5, key=str(number)) for number in range(4)]
    assert choose(equal) == {"median": "1"}
    assert choose([*equal, plays(0.0, 1.0, key="broken", error="engine lost")]) == {"median": "1"}
    assert choose([plays(0.0, 1.0, error="engine lost")]) == {}


def test_the_rule_names_the_stages_and_how_many_cases_there_were() -> None:
    (case,) = choose_cases([plays(0.5, 0.1, 0.2), plays(0.0, 0.0, 1.0, error="lost")])
    assert case.num_cases == 1
    assert "from 1 sealed test cases" in case.rule
    assert "from SFT to MARL" in case.rule
    assert case.title == "The median change: team reward -0.300"


def test_shared_texts_stand_once() -> None:
    three = (side("SFT", '{"option": "A"}'), side("GRPO", '{"option": "B"}'), side("MARL", '{"option": "B"}'))
    html = str(render_side_by_side_html(three))
    assert html.count('<span class="tag">') == 3
    assert html.count("Northbank. CTO seat.") == 1


def test_cases_survive_the_run_folder(tmp_path: Path) -> None:
    assert read_side_by_side(tmp_path) == []
    cases = choose_cases([plays(0.0, 0.5, 1.0)])
    write_side_by_side(tmp_path, cases)
    assert read_side_by_side(tmp_path) == cases


@pytest.mark.parametrize("content", ["{", "{}", '[["a", "b"]]', '[{"choice": "best"}]'])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / "episodes_side_by_side.json").write_text(content)
    with pytest.raises(UserError, match=r"episodes_side_by_side\.json .*emads evaluate"):
        read_side_by_side(tmp_path)
