"""The payload that a malicious file carries, and a trial of one such file; sound runs to put it into."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reliability.stages import tiny_runs
from roles.errors import UserError
from training.runs.run_folder import Run


class Payload:
    """Creates the marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.marker}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`attack(folder, marker)` makes the file in `folder` and has it loaded."""

    attack: Callable[[Path, Path], object]
    may_load: bool = False  # it is harmless to go on, as long as nothing runs


def try_file(folder: Path, probe: Probe) -> str:
    """Return the fault: a payload that ran, no refusal, or one of many lines; "" if nothing."""
    folder.mkdir(parents=True)
    marker = folder / "executed"
    work = folder / "file"
    work.mkdir()
    problem = "" if probe.may_load else "was not refused"
    try:
        probe.attack(work, marker)
    except UserError as error:
        problem = "" if 0 < len(str(error)) < 2000 else f"unclear refusal: {str(error)[:200]!r}"
    except Exception as error:  # a traceback is what is looked for
        problem = f"refused by a traceback: {type(error).__name__}: {str(error)[:200]}"
    if marker.exists():
        problem = "THE PAYLOAD RAN"
    shutil.rmtree(folder)
    return problem


def model_folder(folder: Path) -> Path:
    """A sound model of ours, to be spoilt."""
    (step,) = (Path(_sound_run().name) / "run" / "checkpoints" / "base").iterdir()
    shutil.copytree(step, folder, dirs_exist_ok=True)
    (folder / "MANIFEST.json").unlink()
    return folder


@cache
def _sound_run() -> tempfile.TemporaryDirectory[str]:
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="emads-")
    tiny_runs.set_up()
    tiny_runs.prepare(Path(folder.name) / "run")
    return folder


def prepared_run(path: Path) -> Run:
    """A copy of a sound run."""
    shutil.copytree(Path(_sound_run().name) / "run", path)
    return Run.open(path)
