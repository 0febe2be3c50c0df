"""Guards of joint training: a role whose own score falls, and the share of each role in the gradient.

Own verified scores: the team reward may rise at their expense. The mean of the last DRIFT_WINDOW steps is
compared with that of the first ones. A fall of DRIFT_ALARM or more sets a metric and logs one line.
"""

import logging
import math
import statistics
from collections.abc import Mapping
from typing import Any

DRIFT_ALARM = 0.05  # fall of a role's own score that is reported
DRIFT_WINDOW = 5  # steps whose mean is compared with the first ones
logger = logging.getLogger(__name__)


class DriftWatch:
    """Compares the latest own scores of every role with its first ones."""

    def __init__(self, window: int = DRIFT_WINDOW, alarm: float = DRIFT_ALARM) -> None:
        self._window, self._alarm = window, alarm
        self._first: dict[str, list[float]] = {}  # the first `window` scores
        self._last: dict[str, list[float]] = {}  # the latest ones
        self.fallen: set[str] = set()

    def update(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Take in one step's own scores; metrics `drift/ROLE` (negative: fell) and `drift_alarm/ROLE`."""
        metrics: dict[str, float] = {}
        for role, score in scores.items():
            first, last = self._first.setdefault(role, []), self._last.setdefault(role, [])
            if len(first) < self._window:
                first.append(score)
            last.append(score)
            del last[: -self._window]
            change = statistics.fmean(last) - statistics.fmean(first)
            is_low = len(last) == self._window and change <= -self._alarm
            if is_low and role not in self.fallen:
                logger.warning(
                    "%s: own verified score fell by %.3f (%.3f to %.3f, means of %d steps)",
                    role,
                    -change,
                    statistics.fmean(first),
                    statistics.fmean(last),
                    self._window,
                )
            (self.fallen.add if is_low else self.fallen.discard)(role)
            metrics |= {f"drift/{role}": change, f"drift_alarm/{role}": float(is_low)}
        return metrics

    def state(self) -> dict[str, Any]:
        """Scores and alarms so far: all that later alarms depend on."""
        return {"first": self._first, "last": self._last, "fallen": sorted(self.fallen)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._first = {role: list(values) for role, values in state["first"].items()}
        self._last = {role: list(values) for role, values in state["last"].items()}
        self.fallen = set(state["fallen"])


def gradient_shares(norms: Mapping[str, float]) -> dict[str, float]:
    """Role -> its share of the sum of squared gradient norms; {} where no norm is finite and above 0."""
    squares = {role: norm * norm for role, norm in norms.items() if math.isfinite(norm)}
    total = sum(squares.values())
    return {role: square / total for role, square in squares.items()} if total > 0 else {}
