"""Places where tests break a training process (tests/support/planned_faults.py): without a plan, nowhere.

step     before an optimizer step
loss     the loss of a step
reward   one reward
save     inside a save: files are written, nothing is published yet
sync     before a file or folder is made durable
rename   before a checkpoint is renamed into place
"""

from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")


class FaultPlan(Protocol):
    """What a test has planned for this process."""

    def enter_stage(self, stage: str) -> None:
        """Count visits anew: "grpo/cto" begins."""
        ...

    def visit(self, place: str, value: Any) -> Any:
        """Return the value of a place, spoilt where that is planned; or raise, hang or kill the process."""
        ...


_plan: FaultPlan | None = None


def set_plan(plan: FaultPlan | None) -> None:
    """Replace this process's plan; None: nothing is broken."""
    global _plan
    _plan = plan


def enter_stage(stage: str) -> None:
    """Tell the plan that a stage ("grpo/cto") begins."""
    if _plan is not None:
        _plan.enter_stage(stage)


def fault_point(place: str, value: Value = None) -> Value:  # type: ignore[assignment]
    """Return the value, or break as a test has planned for this visit of `place`."""
    return value if _plan is None else _plan.visit(place, value)
