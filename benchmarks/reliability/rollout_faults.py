"""R9: rollout workers killed, hung and slowed in mid-step: what is learnt is what whole groups said, once.

The workers are real processes that speak for every role (`tests/support/rollout_worker.py`); one of them is
struck at a call, while the joint learner plays a step.
"""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roles.registry import ROLES
from training.joint import marl

if TYPE_CHECKING:
    from benchmarks.reliability.batteries import Bench

KINDS = ("kill", "hang", "slow")
MOST_CALLS = 90  # of a step: 9 report sets of 9 calls, and a second decision on each
PR_FAULTS = (("kill", 3), ("kill", 40), ("kill", 90), ("hang", 20), ("slow", 30))


def load_tests() -> None:
    """The tests' own workers, cases and learners can be imported."""
    folder = str(Path(__file__).parent.parent.parent / "tests" / "support")
    if folder not in sys.path:
        sys.path.insert(0, folder)


class StruckSteps:
    """Worker processes, and joint learners that play on them."""

    def __init__(self) -> None:
        load_tests()
        from rollout_worker import RolloutWorkers
        from test_marl import CONFIG, draw, make_learner
        from tiny_models import ScriptedModelEngine, same_weights, weights_of

        self.make_learner, self.same_weights, self.weights_of = make_learner, same_weights, weights_of
        self.config, self.cases, self.later = CONFIG, draw(3), draw(6)[3:]
        self.workers = RolloutWorkers(draw(6))
        self._engine = ScriptedModelEngine

    def try_fault(self, fault: str, at: int) -> str:
        """Strike the worker that gets call number `at`; what was wrong, or ""."""
        original = getattr(marl, "TransformersEngine")  # noqa: B009 (marl only imports it)
        setattr(marl, "TransformersEngine", lambda **o: self._engine(self.workers.speakers(), **o))  # noqa: B010
        try:
            return "; ".join(self._problems(fault, at))
        finally:
            setattr(marl, "TransformersEngine", original)  # noqa: B010

    def _problems(self, fault: str, at: int) -> Iterator[str]:
        sets = self.config.report_sets
        self.workers.strike("", 0)
        healthy = self.make_learner(self.config)
        complete = healthy.play(self.cases)
        if len(complete) != len(self.cases) * sets:
            yield f"{len(complete)} sets of a healthy step"
        struck, before = self.make_learner(self.config), self.workers.losses
        self.workers.strike(fault, at)
        metrics = struck.step(self.cases)
        expected = int(fault != "slow")
        if self.workers.losses - before != expected:
            yield f"{self.workers.losses - before} workers lost"
        if int(metrics["sets"]) != (len(self.cases) - expected) * sets:
            yield f"{metrics['sets']} sets in the loss"
        # what was learnt is what a healthy step learns from the very same groups, no more and no less
        again = self.make_learner(self.config)
        self.workers.strike(fault, at)
        kept = {one.scenario.key for one in again.play(self.cases)}
        if len(kept) != len(self.cases) - expected:
            yield f"{len(kept)} cases kept"
        self.workers.strike("", 0)
        healthy.learn([one for one in complete if one.scenario.key in kept])
        for role in ROLES:
            if not self.same_weights(*(self.weights_of(one.models[role]) for one in (healthy, struck))):
                yield f"{role} learnt something else than its whole groups"
        if struck.step(self.later)["sets"] != len(self.later) * sets:
            yield "the next step is not whole"

    def close(self) -> None:
        self.workers.close()


def trials(bench: "Bench", count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Kills, hangs and slow workers in turn, at calls drawn at random."""
    opened: list[Any] = []

    def call(fault: str, at: int) -> str:
        if not opened:
            opened.append(StruckSteps())
        return str(opened[0].try_fault(fault, at))

    rng = random.Random("R9")
    for number in range(count):
        fault, at = KINDS[number % len(KINDS)], rng.randint(1, MOST_CALLS)
        yield f"{number}", fault, lambda fault=fault, at=at: call(fault, at)  # type: ignore[misc]
    if opened:
        opened[0].close()
