"""For tests that need the sandbox: with bubblewrap they run for real, without it they must be refused."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from roles.errors import UserError
from scenarios.tasks import sandbox
from scenarios.tasks.sandbox import find_sandbox

T = TypeVar("T")

# Stands in for bubblewrap: runs nothing, says what it is told to, and reports an exit code like the real one.
FAKE = """#!{python} -SE
import os, sys, time
arguments = sys.argv[1:]
program = os.read(int(arguments[arguments.index("/program.py") - 1]), 1 << 20)
status = int(arguments[arguments.index("--json-status-fd") + 1])
def end(code):
    os.write(status, b'{{ "child-pid": 7 }}\\n{{ "exit-code": %d }}\\n' % code)
    sys.exit(code)
if b"the sandbox works" in program:
    print("the sandbox works", flush=True)
    end(0)
{behaviour}
"""


def works_here() -> bool:
    """Whether programs can be run on this machine."""
    try:
        find_sandbox()
    except UserError:
        return False
    return True


def run_or_be_refused(act: Callable[[], T]) -> T | None:
    """What `act` gives where there is a sandbox; elsewhere it must raise, and None comes back."""
    if works_here():
        return act()
    with pytest.raises(UserError, match="programs run only in a sandbox"):
        act()
    return None


def take_away(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As if no bubblewrap were installed."""
    monkeypatch.setattr(sandbox, "TRUSTED_PATHS", (str(folder / "bwrap"),))


def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, behaviour: str) -> Path:
    """A fake bwrap with this behaviour on the PATH, and taken for a trusted one."""
    path = folder / "bwrap"
    path.write_text(FAKE.format(python=sys.executable, behaviour=behaviour))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sandbox, "TRUSTED_PATHS", (str(path),))
    monkeypatch.setattr(sandbox, "find_program", lambda paths: paths[0])
    sandbox._find_working.cache_clear()
    return path
