"""Progress without a terminal is a heartbeat, not a flood."""

import io

import pytest

from training.runs.progress import progress


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
    with progress("SFT cto", total=100, stream=stream, clock=clock) as bar:
        for step in range(1, 51):
            clock.now = step / 4  # 12.5 s in all
            bar.advance(1, loss=1 / step)
    assert stream.getvalue().splitlines() == [
        "SFT cto: 20/100, 20 s left, loss 0.05",
        "SFT cto: 40/100, 15 s left, loss 0.025",
        "SFT cto: 50/100 in 12 s, loss 0.02",
    ]


def test_an_exception_still_shows_how_far_it_came() -> None:
    stream, clock = io.StringIO(), Clock()

    def fail() -> None:
        with progress("evaluate", total=10, stream=stream, clock=clock) as bar:
            bar.advance(3)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert stream.getvalue() == "evaluate: 3/10 in 0 s\n"


def test_a_terminal_gets_a_bar_with_the_latest_metrics() -> None:
    stream = Terminal()
    with progress("SFT cto", total=2, stream=stream) as bar:
        bar.advance(1, loss=0.5)
        bar.advance(1, loss=0.25)
    assert "2/2" in stream.getvalue()
    assert "loss 0.25" in stream.getvalue()


def test_tasks_nest_on_a_terminal() -> None:
    stream = Terminal()
    with progress("outer", total=1, stream=stream) as outer, progress("inner", total=1, stream=stream) as bar:
        bar.advance()
        outer.advance()
    assert "outer" in stream.getvalue()
    assert "inner" in stream.getvalue()
