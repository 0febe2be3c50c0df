"""Checkpoints are directories published once, and loaded only when every byte is what was published.

Order of publishing: temp sibling, files synced, MANIFEST.json last, rename, parent synced. A kill at
any point leaves the earlier checkpoints as they were. Nothing here knows what the files mean.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from roles.errors import UserError
from simulator.export.atomic_files import encode_json, explain_os_errors
from simulator.line_files import sync_folder
from training.config.section import StrictRecord
from training.runs.faults import fault_point

MANIFEST = "MANIFEST.json"
FORMAT = "emads-checkpoint/1"
QUARANTINE_SUFFIX = ".quarantined"
MOST_MANIFEST_BYTES = 16 << 20

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.@-]*")
_STEP_NAME = re.compile(r"step_\d+")
_STEP = re.compile(r"(?:^|[_-])step[_-]?(\d+)$")
logger = logging.getLogger(__name__)


class DamagedCheckpointError(UserError):
    """A checkpoint is not what was published; the message names it and the first difference found."""


class FileEntry(StrictRecord):
    """One file of a checkpoint. Example: FileEntry(path="cto/w.safetensors", size=1204, sha256="9f...")"""

    path: str  # inside the checkpoint, with "/"
    size: int  # bytes
    sha256: str


class Manifest(StrictRecord):
    """Published files. `sha256` covers all other fields, so that a flipped bit in here shows too.

    Example: verify(Path("runs/trial/checkpoints/marl/step_40")).step == 40
    """

    format: str
    run: str  # digest or name of the run that wrote it
    step: int
    parent: str | None  # name of the checkpoint that it continues; None for the first
    files: tuple[FileEntry, ...]  # sorted by path
    sha256: str


def publish(
    parent: Path,
    name: str,
    write: Callable[[Path], None],
    *,
    run: str,
    step: int,
    previous: str | None = None,
) -> Path:
    """Let `write` fill a new directory and publish it as `parent/name`; one writer per name at a time.

    A checkpoint of the same name (a resumed run repeats its steps) is replaced.

    Raises:
        UserError: the disk is full or not writable; earlier checkpoints are untouched.
        ValueError: a bad name, or `write` made something other than plain files and folders.
    """
    if not is_checkpoint_name(name):
        raise ValueError(f"{name!r} is not a checkpoint name (letters, digits, _ . @ and -)")
    if step_in_name(Path(name)) not in (None, step):
        raise ValueError(f"checkpoint name {name!r} contradicts step {step}")
    temporary, target = parent / f".tmp-{name}-{os.getpid()}", parent / name
    with explain_os_errors("write checkpoint", target):
        parent.mkdir(parents=True, exist_ok=True)
        restore_replaced(parent)
        for leftover in parent.glob(f".tmp-{name}-*"):
            shutil.rmtree(leftover)
        temporary.mkdir()
        try:
            write(temporary)
            fault_point("save")
            _seal(temporary, run=run, step=step, previous=previous)
            _swap_in(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return target


def verify(
    path: Path, *, run: str | None = None, step: int | None = None, ignored: Collection[str] = ()
) -> Manifest:
    """Check every byte of a checkpoint and return its manifest; if given, it must be of this run and step.

    `ignored`: names at its root that may be there beside it.

    Raises:
        DamagedCheckpointError: missing, altered, incomplete, or of another run or step.
    """
    manifest = read_manifest(path)
    for wanted, found, what in ((run, manifest.run, "run"), (step, manifest.step, "step")):
        if wanted is not None and wanted != found:
            raise DamagedCheckpointError(f"{path} is of {what} {found}, not {wanted}")
    expected = {entry.path: entry for entry in manifest.files}
    try:
        present = {name for name in _list_files(path) if name.split("/")[0] not in ignored}
        for name in sorted(expected.keys() - present):
            raise DamagedCheckpointError(f"{path}: file {name} is missing")
        for name in sorted(present - expected.keys()):
            raise DamagedCheckpointError(f"{path}: file {name} is not in the manifest")
        for name, entry in expected.items():
            size = (path / name).stat().st_size
            if size != entry.size:
                raise DamagedCheckpointError(f"{path}: {name} has {size} bytes, not {entry.size}")
            if _hash_file(path / name) != entry.sha256:
                raise DamagedCheckpointError(f"{path}: content of {name} differs from its sha256")
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error}") from None
    return manifest


def newest_sound(
    parent: Path, *, run: str | None = None, report: Callable[[str], None] = logger.warning
) -> Path | None:
    """The sound checkpoint of the highest step in `parent`, or None.

    Damaged ones that stand before it are renamed to NAME.quarantined, each with one line to `report`.
    The step in a directory's name ("step_40") must be the step in its manifest.
    """
    if not parent.is_dir():
        return None
    restore_replaced(parent)
    candidates = [
        path
        for path in parent.iterdir()
        if path.is_dir() and not path.name.startswith(".") and QUARANTINE_SUFFIX not in path.name
    ]
    for path in sorted(candidates, key=_order, reverse=True):
        try:
            verify(path, run=run, step=step_in_name(path))
        except DamagedCheckpointError as error:
            report(f"{error}; set aside as {_quarantine(path).name}")
        else:
            return path
    return None


def prune(parent: Path, keep: int) -> None:
    """Delete all but the `keep` highest steps of `parent`; what is not named by a step ("best") stays."""
    numbered = [path for path in parent.iterdir() if path.is_dir() and _STEP_NAME.fullmatch(path.name)]
    for path in sorted(numbered, key=_order)[: -keep or None]:
        doomed = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        path.rename(doomed)  # a kill must not leave half of it under its name
        shutil.rmtree(doomed)


def restore_replaced(parent: Path) -> None:
    """Mend a kill between the two renames of a replacement: the old checkpoint comes back."""
    with lock_folder(parent):
        for aside in parent.glob(".replaced-*"):
            target = parent / aside.name.removeprefix(".replaced-")
            if target.exists():
                shutil.rmtree(aside)
            else:
                aside.rename(target)


def _seal(folder: Path, *, run: str, step: int, previous: str | None) -> None:
    entries = []
    for name in sorted(_list_files(folder)):
        path = folder / name
        fault_point("sync")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        entries.append(FileEntry(path=name, size=path.stat().st_size, sha256=_hash_file(path)))
    for directory in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync_folder(directory)
    manifest = Manifest(format=FORMAT, run=run, step=step, parent=previous, files=tuple(entries), sha256="")
    manifest = manifest.model_copy(update={"sha256": _hash_manifest(manifest)})
    with (folder / MANIFEST).open("wb") as file:
        file.write(encode_json(manifest.model_dump(mode="json")))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _swap_in(temporary: Path, target: Path) -> None:
    aside = target.with_name(f".replaced-{target.name}")
    with lock_folder(target.parent):
        fault_point("rename")
        if target.exists():
            target.rename(aside)
            fault_point("rename")
        temporary.rename(target)
        fault_point("sync")
        sync_folder(target.parent)
        if aside.exists():
            shutil.rmtree(aside)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes that lock this folder out."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_manifest(path: Path) -> Manifest:
    """Return a checkpoint's manifest, checked by itself; `verify` also checks the files.

    Raises:
        DamagedCheckpointError: there is none, or it is damaged or of another format.
    """
    if not path.is_dir():
        raise DamagedCheckpointError(f"no checkpoint in {path}")
    try:
        if (path / MANIFEST).stat().st_size > MOST_MANIFEST_BYTES:
            raise DamagedCheckpointError(f"{path}: {MANIFEST} has more than {MOST_MANIFEST_BYTES} bytes")
        manifest = Manifest.model_validate_json((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path} has no {MANIFEST}") from None
    except (OSError, ValidationError):
        raise DamagedCheckpointError(f"{path}: {MANIFEST} is damaged") from None
    if manifest.format != FORMAT:
        raise DamagedCheckpointError(f"{path} has format {manifest.format!r}, not {FORMAT!r}")
    if manifest.sha256 != _hash_manifest(manifest):
        raise DamagedCheckpointError(f"{path}: {MANIFEST} differs from its own sha256")
    return manifest


def _hash_manifest(manifest: Manifest) -> str:
    content = manifest.model_dump(mode="json", exclude={"sha256"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_files(folder: Path) -> set[str]:
    """Relative paths of all files but the manifest; links and special files are refused (ValueError)."""
    names = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path.name} is neither a plain file nor a folder")
        if path.is_file():
            names.add(path.relative_to(folder).as_posix())
    return names - {MANIFEST}


def is_checkpoint_name(name: str) -> bool:
    """Tell whether a checkpoint can have this name."""
    return _NAME.fullmatch(name) is not None and not name.endswith(QUARANTINE_SUFFIX)


def step_in_name(path: Path) -> int | None:
    """Return the step that a directory's name ends in: 40 of "step_40"; None of any other name."""
    match = _STEP.search(path.name)
    return int(match.group(1)) if match else None


def _order(path: Path) -> tuple[int, str]:
    """Newest first needs a step for every directory: the name's, else what the manifest claims, else none."""
    step = step_in_name(path)
    if step is None:
        with suppress(DamagedCheckpointError):
            step = read_manifest(path).step
    return (-1 if step is None else step, path.name)


def _quarantine(path: Path) -> Path:
    target = path.with_name(path.name + QUARANTINE_SUFFIX)
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{QUARANTINE_SUFFIX}-{number}")
    with explain_os_errors("set aside damaged checkpoint", path):
        path.rename(target)
    return target
