"""From easy to hard on measured success: which difficulty the next scenarios have.

A level is one difficulty of the config, easiest first. Once the mean verified reward of the last `window`
groups at the level reaches `promote_at`, the next level begins. A share of the scenarios goes back to levels
that were passed, so that they are not forgotten. What was measured is part of a checkpoint.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from training.data.demonstrations import is_in_share

PROMOTE_AT = 0.7  # mean verified reward that begins the next level
PROMOTE_WINDOW = 32  # groups over which success is measured
REPLAY_SHARE = 0.2  # of the scenarios, from difficulties that were passed


class Curriculum:
    """The level at hand; a Stateful part of a checkpoint.

    Example: Curriculum((1, 2, 5)).choose(0) == 1
    """

    def __init__(
        self,
        difficulties: Sequence[int],
        *,
        promote_at: float = PROMOTE_AT,
        window: int = PROMOTE_WINDOW,
        replay: float = REPLAY_SHARE,
    ) -> None:
        self._levels = sorted(difficulties)
        self._promote_at, self._window, self._replay = promote_at, window, replay
        self._level = 0
        self._recent: list[float] = []  # mean verified reward of the latest groups at this level

    @property
    def difficulty(self) -> int:
        """The difficulty that is being learnt."""
        return self._levels[self._level]

    def choose(self, index: int) -> int:
        """Difficulty of the index-th scenario: the level's, or for `replay` of them one that was passed."""
        if not is_in_share(index, self._replay) or self._level == 0:
            return self.difficulty
        return self._levels[int(index * self._replay) % self._level]

    def take(self, outcomes: Sequence[tuple[int, float]]) -> None:
        """Note groups as (difficulty, mean verified reward), and go up a level where it is due."""
        self._recent += [success for difficulty, success in outcomes if difficulty == self.difficulty]
        self._recent = self._recent[-self._window :]
        is_due = len(self._recent) == self._window and statistics.fmean(self._recent) >= self._promote_at
        if is_due and self._level + 1 < len(self._levels):
            self._level += 1
            self._recent = []

    def metrics(self) -> dict[str, float]:
        """Metrics to log: the level's difficulty, and success there so far (0 before the first group)."""
        success = statistics.fmean(self._recent) if self._recent else 0.0
        return {"curriculum/difficulty": float(self.difficulty), "curriculum/success": success}

    def state(self) -> Mapping[str, Any]:
        return {"level": self._level, "recent": list(self._recent)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._level, self._recent = state["level"], list(state["recent"])
