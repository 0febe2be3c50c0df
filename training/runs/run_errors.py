"""Errors that stop a run: out of memory, a lost worker process, losses that stay infinite.

Each has its own exit status, so that a job script can tell them apart. The run folder can be resumed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from roles.errors import UserError

OUT_OF_MEMORY, DIVERGED, WORKER_LOST = 4, 5, 6
MAX_SKIPPED_STEPS = 5  # in a row
_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad allocation")


class StoppedRunError(UserError):
    """A run that stopped because of its machine or its numbers; `status` is the exit status."""

    status = WORKER_LOST


class FaultyRunError(StoppedRunError):
    """Too many episodes without a reward, for reasons that are not the policy's."""

    status = 7


class OutOfMemoryError(StoppedRunError):
    """The machine had no memory left for a step."""

    status = OUT_OF_MEMORY


class DivergedError(StoppedRunError):
    """Losses or gradients were not finite for many steps in a row."""

    status = DIVERGED


class SkippedSteps:
    """Optimizer steps that were left out because a gradient was not finite."""

    def __init__(self) -> None:
        self.count = self.in_a_row = 0

    def watch(self, step: int, norms: Sequence[float]) -> bool:
        """Return whether all gradient norms of a step are finite.

        Raises:
            DivergedError: MAX_SKIPPED_STEPS steps in a row were not.
        """
        if all(math.isfinite(norm) for norm in norms):
            self.in_a_row = 0
            return True
        self.count += 1
        self.in_a_row += 1
        if self.in_a_row >= MAX_SKIPPED_STEPS:
            raise DivergedError(
                f"step {step}: loss or gradient was not finite in {self.in_a_row} steps in a row, which were"
                " left out; lower the learning rate or look at the rewards, and start another run"
            )
        return False

    def state(self) -> dict[str, int]:
        return {"count": self.count, "in_a_row": self.in_a_row}

    def load_state(self, state: Mapping[str, int]) -> None:
        self.count, self.in_a_row = state["count"], state["in_a_row"]


class WorkerLostError(StoppedRunError):
    """A worker process was killed by the system or by a user."""


@contextmanager
def explain_memory_errors(stage: str, key: str = "") -> Iterator[None]:
    """Turn what libraries raise when memory runs out into an OutOfMemoryError that says what to lower.

    `key`: of the config, that changes memory and not the result; "": the stage's batch size changes both.

    Raises:
        OutOfMemoryError: in place of MemoryError, torch.OutOfMemoryError or a RuntimeError that says so.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not any(sign in text.lower() for sign in _SIGNS):
            raise
        reason = text.splitlines()[0][:200] if text else "no memory left"
    else:
        return
    remedy = f"or first lower {key} or num_workers in the run's config.yaml (the result stays the same)"
    if key.endswith("micro_batch_tokens"):
        remedy += "; where play needs the memory, start a run with a lower rollouts.block_size"
    remedy = remedy if key else "or begin the stage with a lower batch_size"
    raise OutOfMemoryError(
        f"out of memory in {stage} ({reason}); free some and go on with --resume, {remedy}"
    )
