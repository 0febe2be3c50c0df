"""Progress of a long task: a bar with the time left on a terminal, plain heartbeat lines anywhere else."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

HEARTBEAT_S = 5.0
WINDOW_S, WINDOW_REPORTS = 120.0, 12  # of the pace that an estimate is made from, whichever is longer
LEAST_S, LEAST_REPORTS = 15.0, 3  # before the first estimate
AGREEMENT = 1.5  # greatest ratio of two successive estimates that are shown


class Progress(Protocol):
    """Receiver of a task's reports."""

    def advance(self, count: float = 1, *, stage: str = "", worked: bool = True, **metrics: float) -> None:
        """`count` more units are done; stage and metrics of the latest report are shown beside the bar.

        Without `worked` the units were done before: they tell nothing about the pace.
        """
        ...


class Pace:
    """Estimates the time left from the units of the last minutes or reports; None until worth showing.

    The first report only starts the clock: loading and compiling come before it.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()  # time, units done so far
        self._done = 0.0
        self._previous: tuple[float, float] | None = None  # time, estimate

    def add(self, now: float, count: float) -> None:
        """`count` units were done up to now; a report of none tells nothing of the pace."""
        if not count:
            return
        self._done += count
        self._reports.append((now, self._done))
        while self._reports[0][0] < now - WINDOW_S and len(self._reports) > WINDOW_REPORTS:
            self._reports.popleft()

    def estimate_s(self, now: float, left: float) -> float | None:
        """Seconds for the units left; None with few reports or where the last estimate was quite another."""
        if len(self._reports) < LEAST_REPORTS or now - self._reports[0][0] < LEAST_S:
            return None
        (start, done), (last, _) = self._reports[0], self._reports[-1]
        if self._done <= done:
            return None
        estimate = max(left * (last - start) / (self._done - done) - (now - last), 0.0)
        previous, self._previous = self._previous, (now, estimate)
        if previous is None:
            return None
        expected = max(previous[1] - (now - previous[0]), 0.0)
        agrees = expected <= AGREEMENT * estimate and estimate <= AGREEMENT * expected
        return estimate if agrees or max(expected, estimate) < HEARTBEAT_S else None


class _Heartbeat:
    """At most one line per HEARTBEAT_S."""

    def __init__(
        self, title: str, total: float, unit: str, stream: TextIO, clock: Callable[[], float]
    ) -> None:
        self._title, self._total, self._unit, self._stream, self._clock = title, total, unit, stream, clock
        self._start = self._last_line = clock()
        self._pace = Pace()
        self.done = 0.0
        self._shown = _Shown()

    def advance(self, count: float = 1, *, stage: str = "", worked: bool = True, **metrics: float) -> None:
        now = self._clock()
        self.done += count
        if worked:
            self._pace.add(now, count)
        self._shown.take(stage, metrics)
        if now - self._last_line < HEARTBEAT_S:
            return
        self._last_line = now
        left_s = self._pace.estimate_s(now, max(self._total - self.done, 0))
        estimate = "" if left_s is None else f", about {format_duration(left_s)} left"
        self._print(f"{describe_count(self.done, self._total, self._unit)}{estimate}")

    def finish(self) -> None:
        """Print the closing line; fewer units than planned (an early stop, an exception) show in it."""
        count = describe_count(self.done, self._total, self._unit)
        self._print(f"{count} in {self._clock() - self._start:.0f} s")

    def _print(self, state: str) -> None:
        shown = str(self._shown)
        print(f"{self._title}: {state}{', ' if shown else ''}{shown}", file=self._stream, flush=True)


class _Shown:
    """The latest metrics, of one stage at a time."""

    def __init__(self) -> None:
        self._stage = ""
        self._metrics: dict[str, float] = {}

    def take(self, stage: str, metrics: dict[str, float]) -> None:
        if not metrics and self._metrics:
            return
        if stage != self._stage:
            self._stage, self._metrics = stage, {}
        self._metrics |= metrics

    def __str__(self) -> str:
        text = " ".join(
            f"{name} {value:,d}" if isinstance(value, int) else f"{name} {value:.4g}"
            for name, value in self._metrics.items()
        )
        return f"{self._stage} {text}".strip()


@contextmanager
def progress(
    title: str,
    total: float,
    *,
    unit: str = "",
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Show a task of `total` units while the block runs; `stream` defaults to standard error.

    `unit`: what is counted, such as "steps"; "" for work of several kinds, which is shown in percent.
    A block that raises before its first unit shows nothing: the error says it all.

    Example: with progress("SFT cto", total=500, unit="steps") as bar: bar.advance(1, loss=0.31)
    """
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        with _rich_bar(title, total, unit, stream, clock) as bar:
            yield bar
        return
    heartbeat = _Heartbeat(title, total, unit, stream, clock)
    try:
        yield heartbeat
    except BaseException:
        if heartbeat.done:
            heartbeat.finish()
        raise
    heartbeat.finish()


@contextmanager
def _rich_bar(
    title: str, total: float, unit: str, stream: TextIO, clock: Callable[[], float]
) -> Iterator[Progress]:
    import rich.progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[count]}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[left]}"),
        bars.TextColumn("{task.fields[shown]}"),
    )
    with bars.Progress(*columns, console=Console(file=stream)) as display:
        task = display.add_task(title, total=total, count=describe_count(0, total, unit), left="", shown="")
        shown, pace = _Shown(), Pace()

        class Bar:
            done = 0.0
            last_estimate = clock()
            left = ""

            def advance(
                self, count: float = 1, *, stage: str = "", worked: bool = True, **metrics: float
            ) -> None:
                now = clock()
                self.done += count
                if worked:
                    pace.add(now, count)
                shown.take(stage, metrics)
                if now - self.last_estimate >= HEARTBEAT_S:
                    self.last_estimate = now
                    left_s = pace.estimate_s(now, max(total - self.done, 0))
                    self.left = "" if left_s is None else f"about {format_duration(left_s)} left"
                display.update(
                    task,
                    advance=count,
                    count=describe_count(self.done, total, unit),
                    left=self.left,
                    shown=str(shown),
                )

        yield Bar()


def describe_count(done: float, total: float, unit: str) -> str:
    """Say how much is done: "12/40 steps", or "30 %" of work that has no unit."""
    if unit:
        return f"{done:g}/{total} {unit}"
    return f"{100 * min(done / total, 1):.0f} %" if total else "100 %"


def format_duration(seconds: float) -> str:
    """Seconds in a unit that suits them, e.g. "40 s", "12 min", "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
