"""Writing files so that a kill or a full disk leaves the old content or the new, never a mixture."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from roles.errors import UserError
from simulator.line_files import sync_folder

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY)
SYSTEM_ERRORS = (*_DISK_ERRORS, *_IN_THE_WAY, errno.EACCES, errno.ENAMETOOLONG)  # not bugs of ours


@contextmanager
def explain_os_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError (no permission, full disk, a file in the way) into a UserError of one line.

    Example: `with explain_os_errors("write run folder", path): ...` raises
    UserError("cannot write run folder /x: No space left on device; free some space or choose another path").
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        number, reason = error.errno, error.strerror or str(error)
    except Exception as error:
        # Libraries in other languages (safetensors) raise their own kinds; only the system's words tell.
        known = [number for number in _DISK_ERRORS if os.strerror(number) in str(error)]
        if not known:
            raise
        number, reason = known[0], os.strerror(known[0])
    else:
        return
    raise UserError(f"cannot {action} {path}: {reason}; {_find_remedy(number)}")


def _find_remedy(number: int | None) -> str:
    """Remedy of the user for an error of the system."""
    if number in _FULL:
        return "free some space or choose another path"
    if number in _IN_THE_WAY:
        return "something else stands there: remove it or choose another path"
    return "choose a path that can be written to"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content` (text as UTF-8): temp sibling, fsync, rename, fsync folder.

    Raises:
        OSError: the disk is full or the like; `path` is then as it was.
    """
    with open_atomic(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path`, as `write_atomic` does, when the block ends without an exception.

    For content that is written piece by piece.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed `write_atomic` or `open_atomic` left directly in a folder."""
    for path in folder.glob(".tmp-*"):
        path.unlink(missing_ok=True)


@contextmanager
def claim_folder(folder: Path, what: str) -> Iterator[None]:
    """Make the folder if it is missing, and be the only process that writes to it; a kill gives it back.

    Raises:
        UserError: another process has claimed it, or it cannot be made; says `what` it is.
    """
    with explain_os_errors(f"write {what}", folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is writing to {folder}; wait for it or choose another folder"
            ) from None
        yield
    finally:
        os.close(descriptor)


def encode_json(value: Any) -> bytes:
    """Readable JSON with sorted keys: the same value gives the same bytes. NaN is refused."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read the JSON value in a file of this project.

    Raises:
        UserError: missing or not JSON, naming the file.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); delete it to have it made again") from None


def write_document(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a JSON object in the order of its keys, all or nothing. NaN is refused."""
    write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


def read_document(path: Path, remedy: str) -> dict[str, Any]:
    """Return what `write_document` stored; empty where nothing is.

    Raises:
        UserError: a damaged file; names the remedy.
    """
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}); {remedy}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path} is no object; {remedy}")
    return document
