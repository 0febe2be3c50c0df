"""Planned faults, by which tests break a training process at a known moment: `kill@save:3`, `nan@loss:4`, ...

A fault is KIND@PLACE:COUNT, in one stage alone KIND@STAGE:PLACE:COUNT (`oom@grpo/cto:step:5`). It
strikes once, when the training process comes to PLACE for the COUNT-th time in a stage. Product code
comes to its places by training/runs/faults.py.
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
from typing import Any

from training.runs import faults as places

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
    """One fault. Raises ValueError: another form, an unknown place or kind, a count of 0."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in PLACES.get(match[3], ()) or not int(match[4]):
        known = "; ".join(f"{'|'.join(kinds)}@{place}:COUNT" for place, kinds in PLACES.items())
        raise ValueError(f"fault {text!r} is none of {known} (counts from 1, PLACE also as STAGE:PLACE)")
    return Fault(kind=match[1], place=match[3], count=int(match[4]), stage=match[2])


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """All these faults; raises as `parse_fault`."""
    return tuple(parse_fault(text) for text in texts)


class Plan:
    """Faults of this process, each of which strikes once; counts the visits of every place in a stage."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = list(faults)
        self._stage = ""
        self.counts: Counter[str] = Counter()

    def enter_stage(self, stage: str) -> None:
        self._stage = stage
        self.counts.clear()

    def visit(self, place: str, value: Any) -> Any:
        """Raises OSError, MemoryError kinds or PlannedFaultError as planned."""
        self.counts[place] += 1
        fault = next(
            (one for one in self._faults if one.strikes(self._stage, place, self.counts[place])), None
        )
        if fault is None:
            return value
        self._faults.remove(fault)
        if place == "loss":
            return value * (math.nan if fault.kind == "nan" else math.inf)
        if fault.kind in REWARDS:
            return REWARDS[fault.kind]
        _strike(fault)
        return value


def plan_faults(faults: Sequence[Fault]) -> Plan:
    """Plan these faults for this process in place of what was planned; none: nothing is broken."""
    plan = Plan(faults)
    places.plan = plan if faults else None
    return plan


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
