"""Progress of a long task: a bar with the time left on a terminal, plain heartbeat lines anywhere else."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

HEARTBEAT_S = 5.0
WINDOW_S, WINDOW_REPORTS = 120.0, 12  # of the pace that an estimate is made from, whichever is longer
LEAST_S, LEAST_REPORTS = 15.0, 3  # before the first estimate


class Progress:
    """Receiver of a task's reports; shows the latest metrics of one stage at a time.

    The time left follows from the units of the last minutes or reports. The first report only starts the
    clock: loading and compiling come before it.
    """

    def __init__(
        self,
        total: float,
        unit: str,
        print_line: Callable[[str], None],
        update_bar: Callable[..., None] | None,
        clock: Callable[[], float],
    ) -> None:
        """`print_line` shows a heartbeat where there is no bar."""
        self.done = 0.0
        self._total, self._unit, self._clock = total, unit, clock
        self._print_line, self._update_bar = print_line, update_bar
        self._start = self._last_estimate = clock()
        self._reports: deque[tuple[float, float]] = deque()  # time, units worked so far
        self._num_worked, self._left = 0.0, ""
        self._stage = ""
        self._metrics: dict[str, float] = {}

    def advance(self, count: float = 1, *, stage: str = "", worked: bool = True, **metrics: float) -> None:
        """`count` more units are done; stage and metrics of the latest report are shown.

        Without `worked` the units were done before: they tell nothing about the pace.
        """
        now = self._clock()
        self.done += count
        if worked and count:
            self._num_worked += count
            self._reports.append((now, self._num_worked))
            while self._reports[0][0] < now - WINDOW_S and len(self._reports) > WINDOW_REPORTS:
                self._reports.popleft()
        if metrics or not self._metrics:
            self._metrics = {**self._metrics, **metrics} if stage == self._stage else metrics
            self._stage = stage
        is_due = now - self._last_estimate >= HEARTBEAT_S
        if is_due:
            self._last_estimate = now
            self._left = self._estimate(now)
        if self._update_bar is not None:
            counted = describe_count(self.done, self._total, self._unit)
            self._update_bar(advance=count, count=counted, left=self._left, shown=self._shown())
        elif is_due:
            self._print(self._left)

    def _estimate(self, now: float) -> str:
        """Time for the units left; "" with few reports."""
        if len(self._reports) < LEAST_REPORTS or now - self._reports[0][0] < LEAST_S:
            return ""
        (start, done), (last, _) = self._reports[0], self._reports[-1]
        left_s = max(self._total - self.done, 0) * (last - start) / (self._num_worked - done) - (now - last)
        return f"about {format_duration(max(left_s, 0.0))} left"

    def finish(self) -> None:
        """Print the closing line; fewer units than planned (an early stop, an exception) show in it."""
        self._print("", f" in {self._clock() - self._start:.0f} s")

    def _print(self, left: str, ending: str = "") -> None:
        state = describe_count(self.done, self._total, self._unit) + ending
        self._print_line(", ".join(filter(None, [state, left, self._shown()])))

    def _shown(self) -> str:
        values = (
            f"{name} {value:,d}" if isinstance(value, int) else f"{name} {value:.4g}"
            for name, value in self._metrics.items()
        )
        return " ".join([self._stage, *values]).strip()


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
    out = sys.stderr if stream is None else stream

    def print_line(line: str) -> None:
        print(f"{title}: {line}", file=out, flush=True)

    with _rich_bar(title, total, unit, out) if out.isatty() else nullcontext() as update_bar:
        shown = Progress(total, unit, print_line, update_bar, clock)
        failed = True
        try:
            yield shown
            failed = False
        finally:
            if update_bar is None and (shown.done or not failed):
                shown.finish()


@contextmanager
def _rich_bar(title: str, total: float, unit: str, stream: TextIO) -> Iterator[Callable[..., None]]:
    import rich.progress as bars
    from rich.console import Console

    columns: list[Any] = [
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[count]}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[left]}"),
        bars.TextColumn("{task.fields[shown]}"),
    ]
    with bars.Progress(*columns, console=Console(file=stream)) as display:
        task = display.add_task(title, total=total, count=describe_count(0, total, unit), left="", shown="")
        yield lambda **changes: display.update(task, **changes)


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
