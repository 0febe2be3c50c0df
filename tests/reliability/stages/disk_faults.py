"""R5: the disk is full, read-only or broken inside a save: one clear line, and the last checkpoint stands."""

import os
import random
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from planned_faults import ERRNOS, Fault

from reliability.stages import tiny_runs
from reliability.stages.prepared_runs import PreparedRuns, Undisturbed
from reliability.trials import Trial, Trials

WORDS = {
    "enospc": "No space left on device",
    "eio": "Input/output error",
    "erofs": "Read-only file system",
    "efbig": "File too large",  # no planned fault: the kernel's own limit on file sizes
}
KINDS = (*ERRNOS, "efbig")
PLACES = ("save", "sync", "rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskTrial:
    """One failed save. Example: DiskTrial(what="eio@sync:31", problems=())"""

    what: str
    problems: tuple[str, ...]


def fail_a_save(plain: Undisturbed, folder: Path, stage: str, kind: str, seed: str) -> DiskTrial:
    """Let one save fail, look at what stands, resume to the end, compare with the undisturbed run."""
    rng = random.Random(seed)
    shutil.copytree(plain.source, folder)
    place = rng.choice(PLACES)
    count = rng.randint(1, plain.counts[place])
    if kind == "efbig":
        what = "file size limit"
        status = _play_limited(folder, stage)
    else:
        what = f"{kind}@{place}:{count}"
        status = tiny_runs.train_in_fork(
            folder, stage, [Fault(kind=kind, place=place, count=count, stage=None)]
        )
    printed = tiny_runs.read_log(folder)
    problems = []
    if os.waitstatus_to_exitcode(status) <= 0:
        problems.append(f"ended with {os.waitstatus_to_exitcode(status)}")
    if f"roles.errors.UserError: cannot write checkpoint {folder}" not in printed:
        problems.append(f"no clear line: {printed[-500:]}")
    if WORDS[kind] not in printed:
        problems.append(f"does not say {WORDS[kind]!r}")
    unfinished = folder / "checkpoints" / "unfinished" / tiny_runs.STAGES[stage]
    if tiny_runs.train_in_fork(folder, stage) != 0:
        problems.append("does not resume")
    elif "set aside" in tiny_runs.read_log(folder):
        problems.append("left a damaged checkpoint")
    elif changed := tiny_runs.differences(plain.digest, tiny_runs.digest(folder, stage)):
        problems.append(f"other result: {changed}")
    elif list(unfinished.glob(".tmp-*")):
        problems.append("left temporary files")
    shutil.rmtree(folder)
    return DiskTrial(what=what, problems=tuple(problems))


def _play_limited(folder: Path, stage: str) -> int:
    """Train where no file can grow beyond 12 kB, which the optimizer's does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, before[1]))
    try:
        return tiny_runs.train_in_fork(folder, stage)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def disk_faults(runs: PreparedRuns, count: int) -> Trials:
    """Yield so many failed saves, kinds and stages in turn."""
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        stage = ("grpo", "sft", "marl")[number // len(KINDS) % 3]

        def call(number: int = number, kind: str = kind, stage: str = stage) -> str:
            plain = runs.undisturbed(stage)
            trial = fail_a_save(plain, runs.fresh("disk"), stage, kind, f"disk/{number}")
            return f"{trial.what}: {'; '.join(trial.problems)}" if trial.problems else ""

        yield Trial(f"{number}", kind, call)
