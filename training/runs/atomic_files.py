"""Writing files so that a kill or a full disk leaves the old content or the new, never a mixture."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from roles.errors import UserError

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def explain_os_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError (no permission, full disk, a file in the way) into a UserError of one line.

    Example: `with explain_os_errors("write run folder", path): ...` raises
    UserError("cannot write run folder /x: No space left on device; choose another path or free some space").
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
    except Exception as error:
        # Libraries in other languages (safetensors) raise their own kinds; only the system's words tell.
        known = [os.strerror(number) for number in _DISK_ERRORS if os.strerror(number) in str(error)]
        if not known:
            raise
        reason = known[0]
    else:
        return
    raise UserError(f"cannot {action} {path}: {reason}; choose another path or free some space")


def sync_folder(path: Path) -> None:
    """Make renames inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: temp sibling, fsync, rename, fsync folder.

    Raises:
        OSError: the disk is full or the like; `path` is then as it was.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed `write_atomic` left directly in a folder."""
    for path in folder.glob(".tmp-*"):
        path.unlink(missing_ok=True)


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Be the only process that writes to an existing folder; a kill gives it back.

    Raises:
        UserError: another process has claimed it.
    """
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
    """The JSON value in a file of ours.

    Raises:
        UserError: missing or not JSON, naming the file.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); delete it to have it made again") from None
