"""Runs a program that nobody trusts: Python in bubblewrap, and nowhere else. Without bubblewrap it refuses.

Inside there are no network, no /proc, /dev, /etc or environment, no other process. What there is, read-only:
the program, the interpreter with its standard library but without installed packages, and the shared
libraries that these are linked with; /tmp is private and small. Memory, CPU, file sizes, descriptors, wall
time and output are limited; `seccomp.py` names the system calls that are denied, among them all that sleep or
wait but for a lock. Prefer an ordinary user: run by root, the program has no capability but is still user 0
to the files it sees.
"""

import contextlib
import json
import os
import platform
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from roles.errors import InfrastructureError, UserError
from scenarios.tasks.sandbox.libraries import bind_libraries
from scenarios.tasks.sandbox.seccomp import build_filter
from scenarios.tasks.sandbox.trusted_program import INSTALL, TRUSTED_PATHS, find_program

RUNNER = Path(__file__).with_name("program_runner.py")
_GREETING = "the sandbox works"
# greets only where it sees neither the host nor a way out
_TRIAL = f"""
import os, socket
shut = [(lambda: os.listdir("/etc")), (lambda: os.listdir("/proc")), socket.socket, os.fork]
def is_shut(way):
    try:
        way()
    except OSError:
        return True
print({_GREETING!r} if all(map(is_shut, shut)) else "the sandbox is open")
"""

Outcome = Literal["finished", "timeout", "output_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a program. Example: Limits(cpu_s=1)"""

    wall_s: float = 6.0
    cpu_s: int = 2
    memory_bytes: int = 256 << 20  # of address space
    disk_bytes: int = 16 << 20  # of /tmp; a quarter of it for one file
    output_bytes: int = 64 << 10  # of standard output and standard error together
    open_files: int = 32

    def as_rlimits(self) -> dict[str, int]:
        """By name in the module `resource`."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_FSIZE": self.disk_bytes // 4,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """End of a program. Example: ProgramRun(outcome="finished", exit_code=0, stdout="42\\n", stderr="")"""

    outcome: Outcome
    exit_code: int | None  # 128 + signal where one ended it; None where it was stopped from outside
    stdout: str  # as far as the output limit
    stderr: str


def run_program(
    source: str, *, function: str = "", stdin: str = "", limits: Limits | None = None
) -> ProgramRun:
    """Run a program, or call one of its functions (see `program_runner.py`), in the sandbox.

    Raises:
        UserError: no working sandbox here; nothing was run.
        InfrastructureError: the sandbox failed before the program started.
    """
    return _run(find_sandbox(), source, function=function, stdin=stdin, limits=limits or Limits())


def find_sandbox() -> str:
    """Path of a bubblewrap that works here, tried once per process.

    Raises:
        UserError: missing, too old, not permitted, or a program that others than root may change.
    """
    return _find_working(TRUSTED_PATHS)


@lru_cache(maxsize=8)
def _find_working(paths: tuple[str, ...]) -> str:
    path = find_program(paths)
    _try_out(path)
    return path


def _try_out(path: str) -> None:
    try:
        run = _run(path, _TRIAL, function="", stdin="", limits=Limits())
        reason = run.stderr if run.stdout != f"{_GREETING}\n" else None
    except (InfrastructureError, OSError) as error:
        reason = str(error)
    if reason is not None:
        raise UserError(
            f"programs run only in a sandbox, and {path} does not work here"
            f" ({' '.join(reason.split())[-200:]}); {INSTALL}"
        )


def build_command(path: str, *, function: str, limits: Limits, descriptors: Mapping[str, int]) -> list[str]:
    """The whole bubblewrap command; `descriptors` of runner, program, filter and status are open files."""
    executable = Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]
    library = Path(os.__file__).parent
    inside = f"/python/bin/{executable.name}"
    return [
        path,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent"),
        *("--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"),
        *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "LD_LIBRARY_PATH", "/python/lib"),
        *bind_libraries(executable, library),
        *("--ro-bind", str(executable), inside, "--ro-bind", str(library), f"/python/lib/{library.name}"),
        *_hide_packages(library),
        *_bind_shared_interpreter(library.parent),
        *("--ro-bind-data", str(descriptors["runner"]), "/runner.py"),
        *("--ro-bind-data", str(descriptors["program"]), "/program.py"),
        *("--size", str(limits.disk_bytes), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"),
        *("--seccomp", str(descriptors["filter"]), "--json-status-fd", str(descriptors["status"])),
        *("--", inside, "-S", "-s", "-P", "-B", "-X", "utf8", "/runner.py"),
        *(json.dumps(limits.as_rlimits()), function),
    ]


def _hide_packages(library: Path) -> Iterator[str]:
    """Empty folders over those of installed packages."""
    for name in ("site-packages", "dist-packages"):
        if (library / name).is_dir():
            yield from ("--tmpfs", f"/python/lib/{library.name}/{name}")
            yield from ("--remount-ro", f"/python/lib/{library.name}/{name}")


def _bind_shared_interpreter(folder: Path) -> Iterator[str]:
    for library in sorted(folder.glob(f"libpython{sys.version_info.major}.{sys.version_info.minor}*.so*")):
        yield from ("--ro-bind", str(library), f"/python/lib/{library.name}")


def _run(path: str, source: str, *, function: str, stdin: str, limits: Limits) -> ProgramRun:
    contents = {
        "runner": RUNNER.read_bytes(),
        "program": source.encode("utf-8", "surrogatepass"),
        "filter": build_filter(platform.machine()),
        "stdin": stdin.encode("utf-8", "surrogatepass"),
    }
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(_memory_file(name, data)) for name, data in contents.items()}
        status, status_end = os.pipe()
        stack.callback(os.close, status)
        with os.fdopen(status_end, "wb") as writer:
            descriptors = {**files, "status": writer.fileno()}
            process = subprocess.Popen(
                build_command(path, function=function, limits=limits, descriptors=descriptors),
                stdin=files["stdin"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[number for name, number in descriptors.items() if name != "stdin"],
                env={},
                cwd="/",
            )
        with process:
            outcome, stdout, stderr = _collect(process, limits)
            process.kill()
        exit_code = _read_exit_code(status)
    if outcome == "finished" and exit_code is None:
        reason = stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(f"the sandbox did not start: {reason[-1] if reason else 'no reason given'}")
    return ProgramRun(
        outcome=outcome,
        exit_code=exit_code if outcome == "finished" else None,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )


@contextlib.contextmanager
def _memory_file(name: str, content: bytes) -> Iterator[int]:
    """A file without a path, read from its start."""
    descriptor = os.memfd_create(name)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _collect(process: subprocess.Popen[bytes], limits: Limits) -> tuple[Outcome, bytes, bytes]:
    """Read what the program writes until it ends or passes a limit; at most `output_bytes` are kept."""
    assert process.stdout is not None
    assert process.stderr is not None
    deadline, room = time.monotonic() + limits.wall_s, limits.output_bytes
    kept = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    outcome: Outcome = "finished"
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and outcome == "finished":
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fd)
                kept[key.fd] += chunk[:room]
                if len(chunk) > room:
                    outcome = "output_limit"
                room -= min(room, len(chunk))
            if not ready and time.monotonic() >= deadline:
                outcome = "timeout"
    if outcome == "finished":
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            outcome = "timeout"
    stdout, stderr = kept.values()
    return outcome, stdout, stderr


def _read_exit_code(status: int) -> int | None:
    """The exit code that bubblewrap reports; None where the program never ran or was stopped."""
    os.set_blocking(status, False)
    try:
        text = os.read(status, 1 << 16)
    except BlockingIOError:
        return None
    reports: Sequence[Mapping[str, int]] = [
        json.loads(line) for line in text.splitlines() if line.endswith(b"}")
    ]
    return next((report["exit-code"] for report in reports if "exit-code" in report), None)
