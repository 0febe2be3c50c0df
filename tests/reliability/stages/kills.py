"""R1-R3: kill -9 at random times, half of them inside a save, then resume: the same end, bit for bit."""

import os
import random
import shutil
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from planned_faults import Fault

from reliability.stages import tiny_runs
from reliability.stages.prepared_runs import PreparedRuns, Undisturbed
from reliability.trials import Trial, Trials

SAVE_PLACES = ("save", "sync", "rename")
SECOND_KILL_SHARE = 0.25  # of the trials are killed once more while they resume


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledRun:
    """One killed and resumed run. Example: KilledRun(stage="grpo", kills=("save:4",), differences=())"""

    stage: str
    kills: tuple[str, ...]
    differences: tuple[str, ...]  # empty: equal to the undisturbed run in every bit


def kill_and_resume(
    plain: Undisturbed, folder: Path, stage: str, seed: str, *, inside_save: bool
) -> KilledRun:
    """Kill once or twice, resume to the end, compare.

    Raises:
        RuntimeError: the resumed run failed.
    """
    rng = random.Random(seed)
    shutil.copytree(plain.source, folder)
    kills = [_kill(plain, folder, stage, rng, inside_save=inside_save)]
    if rng.random() < SECOND_KILL_SHARE:
        kills.append(_kill(plain, folder, stage, rng, inside_save=rng.random() < 0.5))
    status = tiny_runs.train_in_fork(folder, stage)
    if status != 0:
        raise RuntimeError(
            f"{stage} after {kills} ended with {status}:\n{tiny_runs.read_log(folder)[-3000:]}"
        )
    found = tiny_runs.differences(plain.digest, tiny_runs.digest(folder, stage))
    shutil.rmtree(folder)
    return KilledRun(stage=stage, kills=tuple(kills), differences=tuple(found))


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
            status = tiny_runs.train_in_fork(folder, stage, [fault])
        else:
            delay_s = rng.uniform(0.02, 1.0) * plain.duration_s
            what = f"{delay_s / plain.duration_s:.0%} of the time"
            status = tiny_runs.train_in_fork(folder, stage, kill_after_s=delay_s)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return what
        if status != 0:
            raise RuntimeError(f"{stage} ended with {status}:\n{tiny_runs.read_log(folder)[-3000:]}")
        shutil.rmtree(folder)
        shutil.copytree(plain.source, folder)


def stage_kills(stage: str, runs: PreparedRuns, count: int) -> Trials:
    """Yield so many kills of a stage, every second one inside a save."""
    for number in range(count):
        inside = number % 2 == 0

        def call(number: int = number, inside: bool = inside) -> str:
            plain = runs.undisturbed(stage)
            folder = runs.fresh(f"killed-{stage}")
            trial = kill_and_resume(plain, folder, stage, f"{stage}/{number}", inside_save=inside)
            return f"{trial.kills}: {trial.differences}" if trial.differences else ""

        yield Trial(f"{stage}-{number}", "inside a save" if inside else "any time", call)


sft_kills, grpo_kills, marl_kills = (partial(stage_kills, stage) for stage in tiny_runs.STAGES)
