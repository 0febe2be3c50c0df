"""Finds the bubblewrap that is run: in a system folder that root alone may change, and new enough.

The PATH is not asked: whoever can put a file on it could run model programs outside.
"""

import os
import re
import stat
import subprocess
from pathlib import Path

from roles.errors import UserError

TRUSTED_PATHS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
INSTALL = "install bubblewrap 0.8 or newer (Debian: apt-get install bubblewrap) and allow user namespaces"
LEAST_VERSION = (0, 8)
ROOT = 0


def find_program(paths: tuple[str, ...]) -> str:
    """The first of these paths that there is, checked.

    Raises:
        UserError: none, or one that others may change, that is too old or does not run.
    """
    path = next((path for path in paths if os.path.exists(path)), None)
    if path is None:
        raise UserError(
            f"programs run only in a sandbox, and bwrap is not installed ({', '.join(paths)}); {INSTALL}"
        )
    require_trusted(path)
    said = _ask_version(path)
    if not is_new_enough(said):
        raise UserError(
            f"programs run only in a sandbox, and {path} does not work here"
            f" (it says {said[:60]!r}, not bubblewrap 0.8 or newer); {INSTALL}"
        )
    return path


def require_trusted(path: str) -> None:
    """Refuse a program that belongs to another than root or that others may write.

    Raises:
        UserError: says so.
    """
    real = Path(os.path.realpath(path))
    for one in (real, real.parent):
        found = one.stat()
        is_sticky = one.is_dir() and bool(found.st_mode & stat.S_ISVTX)
        if found.st_uid != ROOT or (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky):
            raise UserError(
                f"programs run only in a sandbox, and {one} may be changed by others than root;"
                f" make it root's own, or {INSTALL}"
            )


def is_new_enough(said: str) -> bool:
    """Return whether the answer to --version names bubblewrap of at least LEAST_VERSION."""
    found = re.fullmatch(r"bubblewrap ([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]+)*", said.strip())
    return found is not None and (int(found[1]), int(found[2])) >= LEAST_VERSION


def _ask_version(path: str) -> str:
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, timeout=10, env={}, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return asked.stdout.decode(errors="replace")
