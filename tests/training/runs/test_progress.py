"""Progress without a terminal is a heartbeat, not a flood."""

import io

import pytest

from training.runs.progress import format_duration, progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_heartbeat_is_at_most_one_line_per_five_seconds_and_a_closing_line() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress("SFT cto", total=100, unit="steps", stream=stream, clock=clock) as bar:
        for step in range(1, 51):
            clock.now = step / 4  # 12.5 s in all
            bar.advance(1, loss=1 / step)
    assert stream.getvalue().splitlines() == [
        "SFT cto: 20/100 steps, loss 0.05",
        "SFT cto: 40/100 steps, loss 0.025",
        "SFT cto: 50/100 steps in 12 s, loss 0.02",
    ]


def test_reports_without_units_say_nothing_about_the_pace() -> None:
    """Ten units every five minutes; every half minute in between the turns that were played."""
    stream, clock = io.StringIO(), Clock()
    with progress("GRPO", total=100, stream=stream, clock=clock) as bar:
        for report in range(1, 61):
            clock.now = 30.0 * report
            if report % 10 == 0:
                bar.advance(10, reward=0.5)
            else:
                bar.advance(0, turns=8 * report)
    lines = stream.getvalue().splitlines()
    assert lines[8] == "GRPO: 0 %, turns 72"
    assert lines[49] == "GRPO: 50 %, about 25 min left, turns 392 reward 0.5"
    assert sum("left" in line for line in lines) > 20


def test_no_estimate_before_the_pace_is_known() -> None:
    """Loading takes 100 s, units that were done before come at once, then each unit takes a second."""
    stream, clock = io.StringIO(), Clock()
    with progress("demo", total=1000, stream=stream, clock=clock) as bar:
        clock.now = 100
        bar.advance(400, stage="sft/cto", worked=False)
        for step in range(1, 61):
            clock.now = 100 + step
            bar.advance(1, stage="grpo/coo", reward=0.5)
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["demo: 40 %, sft/cto", "demo: 40 %, grpo/coo reward 0.5"]
    assert "left" not in "".join(lines[:4])
    estimates = [line for line in lines if "left" in line]
    assert estimates[0] == "demo: 42 %, about 10 min left, grpo/coo reward 0.5"
    assert len(estimates) == 9


def test_a_block_that_fails_before_its_first_unit_shows_nothing() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), progress("marl", total=10, stream=stream):
        raise RuntimeError("no weights")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (700, "12 min"), (12600, "3.5 h")])
def test_durations_have_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_exception_still_shows_how_far_it_came() -> None:
    stream, clock = io.StringIO(), Clock()

    def fail() -> None:
        with progress("evaluate", total=10, stream=stream, clock=clock) as bar:
            bar.advance(3)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert stream.getvalue() == "evaluate: 30 % in 0 s\n"


def test_a_terminal_gets_a_bar_with_the_latest_metrics() -> None:
    stream = Terminal()
    with progress("SFT cto", total=2, unit="steps", stream=stream) as bar:
        bar.advance(1, loss=0.5)
        bar.advance(1, loss=0.25)
    assert "2/2 steps" in stream.getvalue()
    assert "loss 0.25" in stream.getvalue()


def test_tasks_nest_on_a_terminal() -> None:
    stream = Terminal()
    with progress("outer", total=1, stream=stream) as outer, progress("inner", total=1, stream=stream) as bar:
        bar.advance()
        outer.advance()
    assert "outer" in stream.getvalue()
    assert "inner" in stream.getvalue()
