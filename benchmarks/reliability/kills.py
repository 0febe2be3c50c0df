"""R1-R3: kill -9 at random times, half of them inside a save, then resume: the same end, bit for bit."""

import os
import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reliability import victims
from training.runs.faults import Fault

SAVE_PLACES = ("save", "sync", "rename")
SECOND_KILL_SHARE = 0.25  # of the trials are killed once more while they resume


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """The run that killed ones are compared with."""

    source: Path  # the prepared run, stage not started
    digest: dict[str, str]
    duration_s: float
    counts: dict[str, int]  # how often each place was reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One killed and resumed run. Example: Trial(stage="grpo", kills=("save:4",), differences=())"""

    stage: str
    kills: tuple[str, ...]
    differences: tuple[str, ...]  # empty: equal to the undisturbed run in every bit


def play_undisturbed(source: Path, folder: Path, stage: str) -> Undisturbed:
    """Train once without a fault.

    Raises:
        RuntimeError: it did not come to its end, or learnt nothing that could be compared.
    """
    shutil.copytree(source, folder)
    start = time.monotonic()
    status = victims.play(folder, stage)
    duration_s = time.monotonic() - start
    if status != 0:
        raise RuntimeError(f"undisturbed {stage} ended with {status}:\n{victims.read_log(folder)[-2000:]}")
    return Undisturbed(
        source=source,
        digest=victims.digest(folder, stage),
        duration_s=duration_s,
        counts=victims.read_counts(folder),
    )


def kill_and_resume(plain: Undisturbed, folder: Path, stage: str, seed: str, *, inside_save: bool) -> Trial:
    """Kill once or twice, resume to the end, compare.

    Raises:
        RuntimeError: the resumed run failed.
    """
    rng = random.Random(seed)
    shutil.copytree(plain.source, folder)
    kills = [_kill(plain, folder, stage, rng, inside_save=inside_save)]
    if rng.random() < SECOND_KILL_SHARE:
        kills.append(_kill(plain, folder, stage, rng, inside_save=rng.random() < 0.5))
    status = victims.play(folder, stage)
    if status != 0:
        raise RuntimeError(f"{stage} after {kills} ended with {status}:\n{victims.read_log(folder)[-3000:]}")
    found = victims.differences(plain.digest, victims.digest(folder, stage))
    shutil.rmtree(folder)
    return Trial(stage=stage, kills=tuple(kills), differences=tuple(found))


def _kill(plain: Undisturbed, folder: Path, stage: str, rng: random.Random, *, inside_save: bool) -> str:
    """One kill, tried until it hits a living process; says where.

    A resumed run reaches fewer places and ends sooner: a kill that misses leaves a finished run, which is
    thrown away in favour of a fresh one.
    """
    while True:
        if inside_save:
            place = rng.choice(SAVE_PLACES)
            count = rng.randint(1, plain.counts[place])
            what = f"{place}:{count}"
            fault = Fault(kind="kill", place=place, count=count, stage=None)
            status = victims.play(folder, stage, [fault])
        else:
            delay_s = rng.uniform(0.02, 1.0) * plain.duration_s
            what = f"{delay_s / plain.duration_s:.0%} of the time"
            status = victims.play(folder, stage, kill_after_s=delay_s)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return what
        if status != 0:
            raise RuntimeError(f"{stage} ended with {status}:\n{victims.read_log(folder)[-3000:]}")
        shutil.rmtree(folder)
        shutil.copytree(plain.source, folder)
