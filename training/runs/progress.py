"""Progress of a long task: a bar with the time left on a terminal, plain heartbeat lines anywhere else."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

HEARTBEAT_S = 5.0


class Progress(Protocol):
    """What a task reports to."""

    def advance(self, count: int = 1, **metrics: float) -> None:
        """`count` more units are done; `metrics` are shown beside the bar (the latest of each name)."""
        ...


class _Heartbeat:
    """At most one line per HEARTBEAT_S."""

    def __init__(self, title: str, total: int, stream: TextIO, clock: Callable[[], float]) -> None:
        self._title, self._total, self._stream, self._clock = title, total, stream, clock
        self._start = self._last_line = clock()
        self._done = 0
        self._metrics: dict[str, float] = {}

    def advance(self, count: int = 1, **metrics: float) -> None:
        self._done += count
        self._metrics |= metrics
        now = self._clock()
        if now - self._last_line < HEARTBEAT_S:
            return
        self._last_line = now
        left_s = (now - self._start) / max(self._done, 1) * max(self._total - self._done, 0)
        self._print(f"{self._done}/{self._total}, {left_s:.0f} s left")

    def finish(self) -> None:
        """The closing line; fewer units than planned (an early stop, an exception) show in it."""
        self._print(f"{self._done}/{self._total} in {self._clock() - self._start:.0f} s")

    def _print(self, state: str) -> None:
        shown = _format_metrics(self._metrics)
        print(f"{self._title}: {state}{', ' if shown else ''}{shown}", file=self._stream, flush=True)


@contextmanager
def progress(
    title: str,
    total: int,
    *,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Show a task of `total` units while the block runs; `stream` defaults to standard error.

    Example: with progress("SFT cto", total=500) as bar: bar.advance(1, loss=0.31)
    """
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        with _rich_bar(title, total, stream) as bar:
            yield bar
        return
    heartbeat = _Heartbeat(title, total, stream, clock)
    try:
        yield heartbeat
    finally:
        heartbeat.finish()


@contextmanager
def _rich_bar(title: str, total: int, stream: TextIO) -> Iterator[Progress]:
    import rich.progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[metrics]}"),
    )
    with bars.Progress(*columns, console=Console(file=stream)) as display:
        task = display.add_task(title, total=total, metrics="")
        shown: dict[str, float] = {}

        class Bar:
            def advance(self, count: int = 1, **metrics: float) -> None:
                shown.update(metrics)
                display.update(task, advance=count, metrics=_format_metrics(shown))

        yield Bar()


def _format_metrics(metrics: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in metrics.items())
