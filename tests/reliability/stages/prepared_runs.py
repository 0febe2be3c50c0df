"""Runs in which a stage can start, and the undisturbed end of each stage; made once and kept in a folder."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from reliability.stages import tiny_runs
from reliability.trials import Trial, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """The run that killed ones are compared with."""

    source: Path  # the prepared run, stage not started
    digest: dict[str, str]
    duration_s: float
    counts: dict[str, int]  # how often each place was reached


def train_undisturbed(source: Path, folder: Path, stage: str) -> Undisturbed:
    """Train once without a fault.

    Raises:
        RuntimeError: it did not come to its end, or learnt nothing that could be compared.
    """
    shutil.copytree(source, folder)
    start = time.monotonic()
    status = tiny_runs.train_in_fork(folder, stage)
    duration_s = time.monotonic() - start
    if status != 0:
        raise RuntimeError(f"undisturbed {stage} ended with {status}:\n{tiny_runs.read_log(folder)[-2000:]}")
    return Undisturbed(
        source=source,
        digest=tiny_runs.digest(folder, stage),
        duration_s=duration_s,
        counts=tiny_runs.read_counts(folder),
    )


class PreparedRuns:
    """The working folder of the checks: prepared runs, and new folders for trials."""

    def __init__(self, folder: Path, tier: str) -> None:
        self.folder, self.tier = folder, tier
        self.folder.mkdir(parents=True, exist_ok=True)
        self._plain: dict[str, Undisturbed] = {}

    def source(self, stage: str, *, foreign: bool = False) -> Path:
        """A run in which the stage can start; `foreign`: another one, of another seed."""
        tiny_runs.set_up()
        folder = self.folder / f"source-{stage}{'-foreign' if foreign else ''}"
        if not folder.exists():
            shutil.rmtree(making := folder.with_suffix(".making"), ignore_errors=True)
            tiny_runs.prepare(making, ["seed=1"] if foreign else ())
            tiny_runs.copy_source_weights(making, stage)
            making.rename(folder)
        return folder

    def undisturbed(self, stage: str) -> Undisturbed:
        """The run without a fault, trained once per process."""
        if stage not in self._plain:
            folder = self.fresh(f"plain-{stage}")
            self._plain[stage] = train_undisturbed(self.source(stage), folder, stage)
        return self._plain[stage]

    def fresh(self, name: str) -> Path:
        """A folder that is not there yet."""
        folder = self.folder / name
        for path in (folder, folder.with_suffix(".log"), folder.with_suffix(".counts")):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        return folder


def other_processes(runs: PreparedRuns, count: int) -> Trials:
    """Yield trials that train all stages in a new process with another hash seed."""
    for number in range(count):

        def call(number: int = number) -> str:
            plain = {stage: runs.undisturbed(stage) for stage in tiny_runs.STAGES}
            command = [sys.executable, "-m", "reliability.stages.rerun_digests"]
            for stage in tiny_runs.STAGES:
                command += [stage, str(runs.source(stage)), str(runs.fresh(f"again-{stage}"))]
            done = subprocess.run(
                command, env=os.environ | {"PYTHONHASHSEED": str(1 + number)}, capture_output=True, text=True
            )
            if done.returncode:
                return done.stderr[-500:]
            again = json.loads(done.stdout.splitlines()[-1])
            found = {stage: tiny_runs.differences(plain[stage].digest, again[stage]) for stage in plain}
            return f"differs: {found}" if any(found.values()) else ""

        yield Trial(f"{number}", "all stages", call)
