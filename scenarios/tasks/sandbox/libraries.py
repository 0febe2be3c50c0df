"""The files of the system that a sandboxed interpreter needs: its shared libraries, and nothing else."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from roles.errors import UserError

LDD = "/usr/bin/ldd"
_PATH = re.compile(r"(?:=> )?(/[^ ]+) \(0x")


@lru_cache(maxsize=4)
def list_libraries(executable: Path, library: Path) -> tuple[str, ...]:
    """Paths of the shared libraries that the interpreter and its own modules are linked with, by name.

    Raises:
        UserError: the system's `ldd` is missing or does not answer.
    """
    modules = sorted(
        str(path) for path in (library / "lib-dynload").glob("*.so") if "tkinter" not in path.name
    )
    shared = sorted(str(path) for path in library.parent.glob("libpython*.so*"))
    try:
        asked = subprocess.run(
            [LDD, str(executable), *shared, *modules],
            capture_output=True,
            timeout=60,
            env={"LD_LIBRARY_PATH": str(library.parent)},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"programs run only in a sandbox, and {LDD} does not work here ({error})") from None
    found = {path for line in asked.stdout.decode(errors="replace").splitlines() for path in _read(line)}
    return tuple(sorted(path for path in found if not path.startswith(str(library.parent))))


def bind_libraries(executable: Path, library: Path) -> Iterator[str]:
    """Arguments of bubblewrap that show each library at its own path, read-only."""
    for folder in ("lib", "lib64"):
        if Path("/", folder).is_symlink():
            yield from ("--symlink", f"usr/{folder}", f"/{folder}")
    for path in list_libraries(executable, library):
        place = path
        for folder in ("lib", "lib64"):
            if path.startswith(f"/{folder}/") and Path("/", folder).is_symlink():
                place = f"/usr{path}"
        yield from ("--ro-bind", os.path.realpath(path), place)


def _read(line: str) -> list[str]:
    found = _PATH.search(line)
    return [found[1]] if found and os.path.exists(found[1]) else []
