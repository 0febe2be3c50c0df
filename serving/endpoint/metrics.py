"""Counters of an endpoint in Prometheus' text format, version 0.0.4."""

import bisect
import math
import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
KINDS = ("decision", "governed", "report", "vote", "completion")
OUTCOMES = ("done", "failed", "refused", "cancelled")


class Metrics:
    """Counters of an endpoint since it started.

    Example: with metrics.working("decision"): ...
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.num_waiting = self.num_active = 0
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._buckets = {kind: [0] * (len(BUCKETS_S) + 1) for kind in KINDS}
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._tokens: Counter[str] = Counter()
        self._mean_s = 1.0  # of the last jobs

    @contextmanager
    def working(self, kind: str) -> Iterator[None]:
        """Count a job that was let in: how it ends, and how long it takes, its waiting left out."""
        start, outcome = self._clock(), "failed"
        self.num_active += 1
        try:
            yield
            outcome = "done"
        except (GeneratorExit, CancelledError):
            outcome = "cancelled"
            raise
        finally:
            seconds = self._clock() - start
            self.num_active -= 1
            self._jobs[kind, outcome] += 1
            self._seconds[kind] += seconds
            self._buckets[kind][bisect.bisect_left(BUCKETS_S, seconds)] += 1
            self._mean_s += 0.2 * (seconds - self._mean_s)

    def refuse(self, kind: str) -> None:
        """Count a job that found the queue full."""
        self._jobs[kind, "refused"] += 1

    def add_tokens(self, direction: str, number: int) -> None:
        """Count tokens that models read ("prompt") or wrote ("completion")."""
        self._tokens[direction] += number

    def estimate_wait_s(self, most_at_once: int) -> int:
        """Return the seconds after which a refused caller should ask again, from 1 to 60."""
        return min(60, max(1, math.ceil(self._mean_s * (self.num_waiting + 1) / most_at_once)))

    def render(self) -> str:
        """Return all figures as text."""
        return "\n".join(self._list_lines()) + "\n"

    def _list_lines(self) -> Iterator[str]:
        yield from _head("emads_jobs_total", "counter", "Jobs by kind and outcome.")
        for kind in KINDS:
            for outcome in OUTCOMES:
                number = self._jobs[kind, outcome]
                yield f'emads_jobs_total{{kind="{kind}",outcome="{outcome}"}} {number}'
        yield from _head("emads_jobs_active", "gauge", "Jobs at work.")
        yield f"emads_jobs_active {self.num_active}"
        yield from _head("emads_jobs_waiting", "gauge", "Jobs that wait for a place.")
        yield f"emads_jobs_waiting {self.num_waiting}"
        yield from _head("emads_tokens_total", "counter", "Tokens of whole decisions.")
        for direction in ("prompt", "completion"):
            yield f'emads_tokens_total{{direction="{direction}"}} {self._tokens[direction]}'
        yield from _head("emads_job_seconds", "histogram", "Duration of jobs, waiting left out.")
        for kind in KINDS:
            total = 0
            for bound, number in zip((*BUCKETS_S, math.inf), self._buckets[kind], strict=True):
                total += number
                shown = "+Inf" if math.isinf(bound) else f"{bound:g}"
                yield f'emads_job_seconds_bucket{{kind="{kind}",le="{shown}"}} {total}'
            yield f'emads_job_seconds_sum{{kind="{kind}"}} {self._seconds[kind]:.6f}'
            yield f'emads_job_seconds_count{{kind="{kind}"}} {total}'


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
