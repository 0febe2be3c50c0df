"""Planned faults, by which tests break a training process at a known moment: `kill@save:3`, `nan@loss:4`, ...

A fault is KIND@PLACE:COUNT, in one stage alone KIND@STAGE:PLACE:COUNT (`oom@grpo/cto:step:5`). It
strikes once, when the training process comes to PLACE for the COUNT-th time in a stage. Nothing is planned
by default.
"""

import errno
import math
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roles.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

HANG_S = 3600.0  # how long a planned hang lasts unless somebody ends it
SLOW_S = 1.0
ERRNOS = {"enospc": errno.ENOSPC, "eio": errno.EIO, "erofs": errno.EROFS}
REWARDS = {"nan": math.nan, "inf": math.inf, "huge": 1e308, "none": None}
# which kinds each place knows
PLACES: dict[str, tuple[str, ...]] = {
    "step": ("kill", "oom", "hang", "slow", "raise"),  # before an optimizer step
    "loss": ("nan", "inf"),  # the loss of a step
    "reward": ("nan", "inf", "huge", "none", "raise", "hang", "kill"),  # one reward
    "save": ("kill", *ERRNOS, "hang", "slow"),  # inside a save: files written, nothing published yet
    "sync": ("kill", *ERRNOS),  # before a file or folder is made durable
    "rename": ("kill", *ERRNOS),  # before a checkpoint is renamed into place
}
_FORM = re.compile(r"([a-z0-9]+)@(?:([a-z_]+(?:/[A-Za-z0-9_-]+)?):)?([a-z]+):([0-9]{1,9})")


class PlannedFaultError(Exception):
    """Error that `raise@...` raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One planned fault. Example: Fault(kind="kill", place="save", count=3, stage=None)"""

    kind: str
    place: str
    count: int  # 1 is the first time
    stage: str | None  # "sft", "grpo/cto", ...; None: any

    def __str__(self) -> str:
        stage = f"{self.stage}:" if self.stage else ""
        return f"{self.kind}@{stage}{self.place}:{self.count}"

    def strikes(self, stage: str, place: str, count: int) -> bool:
        """Return whether it is this one's turn. A stage without role covers all its roles."""
        covers = self.stage is None or stage == self.stage or stage.startswith(f"{self.stage}/")
        return covers and (place, count) == (self.place, self.count)


def parse_fault(text: str) -> Fault:
    """One `--fault` value.

    Raises:
        UserError: another form, an unknown place or kind, a count of 0.
    """
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in PLACES.get(match[3], ()) or not int(match[4]):
        known = "; ".join(f"{'|'.join(kinds)}@{place}:COUNT" for place, kinds in PLACES.items())
        raise UserError(f"--fault {text!r} is none of {known} (counts from 1, PLACE also as STAGE:PLACE)")
    return Fault(kind=match[1], place=match[3], count=int(match[4]), stage=match[2])


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """All `--fault` values; raises as `parse_fault`."""
    return tuple(parse_fault(text) for text in texts)


_faults: list[Fault] = []  # planned for this process
_stage = ""  # at hand
_counts: Counter[str] = Counter()  # visits of each place in this stage


def plan_faults(faults: Sequence[Fault]) -> None:
    """Replace this process's plan."""
    _faults[:] = faults
    enter_stage("")


def enter_stage(stage: str) -> None:
    """Counts start again with every stage ("grpo/cto")."""
    global _stage
    _stage = stage
    _counts.clear()


def count_places() -> dict[str, int]:
    """Visits of each place in this stage; counted only while a fault is planned."""
    return dict(_counts)


def _next_fault(place: str) -> Fault | None:
    if not _faults:
        return None
    _counts[place] += 1
    struck = next((one for one in _faults if one.strikes(_stage, place, _counts[place])), None)
    if struck is not None:
        _faults.remove(struck)
    return struck


def fault_point(place: str) -> None:
    """Come to `place`; a fault planned for now happens here.

    Raises:
        OSError, MemoryError kinds, PlannedFaultError: as planned.
    """
    fault = _next_fault(place)
    if fault is not None:
        _strike(fault)


def inject_loss_fault(loss: "Tensor") -> "Tensor":
    """The loss of a step, or one that is not finite, with a gradient that is not finite either."""
    fault = _next_fault("loss")
    return loss if fault is None else loss * (math.nan if fault.kind == "nan" else math.inf)


def spoil_reward(reward: float) -> float | None:
    """One reward, or what was planned in its place (raises and hangs included)."""
    fault = _next_fault("reward")
    if fault is None:
        return reward
    if fault.kind in REWARDS:
        return REWARDS[fault.kind]
    _strike(fault)
    return reward


def _strike(fault: Fault) -> None:
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "oom":
        import torch

        raise torch.OutOfMemoryError(f"planned fault {fault}: out of memory")
    elif fault.kind in ERRNOS:
        number = ERRNOS[fault.kind]
        raise OSError(number, os.strerror(number))
    elif fault.kind == "hang":
        time.sleep(HANG_S)
    elif fault.kind == "slow":
        time.sleep(SLOW_S)
    else:
        raise PlannedFaultError(f"planned fault {fault}")
