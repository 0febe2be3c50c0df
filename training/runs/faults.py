"""Places where tests break a training process (tests/planned_faults.py): without a plan, nowhere.

step     before an optimizer step
loss     the loss of a step
reward   one reward
save     inside a save: files are written, nothing is published yet
sync     before a file or folder is made durable
rename   before a checkpoint is renamed into place
"""

from typing import Any, TypeVar

Value = TypeVar("Value")
plan: Any = None  # of this process, set by a test: its `enter_stage(stage)`, `visit(place, value)` are called


def enter_stage(stage: str) -> None:
    """Tell the plan that a stage ("grpo/cto") begins."""
    if plan is not None:
        plan.enter_stage(stage)


def fault_point(place: str, value: Value = None) -> Value:  # type: ignore[assignment]
    """Return the value, or break as a test has planned for this visit of `place`."""
    broken: Value = value if plan is None else plan.visit(place, value)
    return broken
