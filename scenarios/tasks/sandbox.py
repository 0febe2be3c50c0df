"""Runs a program that nobody trusts: Python in bubblewrap, and nowhere else. Without bubblewrap it refuses.

The bubblewrap that is run lies in a system folder that root alone may change: whoever could put a file on the
PATH could run model programs outside. Inside there are no network, no /proc, /dev, /etc or environment, no
other process. What there is, read-only: the program, the interpreter with its standard library but without
installed packages, and the shared libraries that these are linked with; /tmp is private and small. Memory,
CPU, file sizes, descriptors, wall time and output are limited. A filter denies system calls: the program may
start no process or thread, open no socket (some kinds ignore network namespaces) and no pipe, neither sleep
nor wait (but for a lock), share no memory, trace nothing, mount nothing; another machine's or another table's
calls (x32) kill it. Prefer an ordinary user: run by root, the program has no capability but is still user 0
to the files it sees.
"""

import contextlib
import json
import os
import platform
import re
import selectors
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from roles.errors import InfrastructureError, UserError

TRUSTED_PATHS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
INSTALL = "install bubblewrap 0.8 or newer (Debian: apt-get install bubblewrap) and allow user namespaces"
LEAST_VERSION = (0, 8)
ROOT = 0
LDD = "/usr/bin/ldd"
_LIBRARY = re.compile(r"(/[^ \n]+) \(0x")
RUNNER = Path(__file__).with_name("sandbox_runner.py")
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

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # deny: error EPERM
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000

# name: (x86_64, aarch64, where fork and vfork are clone, and older calls are the newer ones)
DENIED: Mapping[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "fork": (57, 220), "vfork": (58, 220),
    "socket": (41, 198), "socketpair": (53, 199), "pipe": (22, 59), "pipe2": (293, 59),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "pause": (34, 73), "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137), "select": (23, 72), "pselect6": (270, 72), "poll": (7, 73),
    "ppoll": (271, 73),
    "epoll_create": (213, 20), "epoll_create1": (291, 20), "timerfd_create": (283, 85), "signalfd": (282, 74),
    "signalfd4": (289, 74), "inotify_init": (253, 26), "inotify_init1": (294, 26), "flock": (73, 32),
    "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "personality": (135, 92), "clock_settime": (227, 112), "settimeofday": (164, 170), "vmsplice": (278, 75),
}  # fmt: skip
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # audit number, column of the table

ProgramEnd = Literal["finished", "timeout", "output_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Bounds of a program. Example: SandboxLimits(cpu_s=1)"""

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

    outcome: ProgramEnd
    exit_code: int | None  # 128 + signal where one ended it; None where it was stopped from outside
    stdout: str  # as far as the output limit
    stderr: str


def run_program(
    source: str, *, function: str = "", stdin: str = "", limits: SandboxLimits | None = None
) -> ProgramRun:
    """Run a program, or call one of its functions (see `sandbox_runner.py`), in the sandbox.

    Raises:
        UserError: no working sandbox here; nothing was run.
        InfrastructureError: the sandbox failed before the program started.
    """
    return _run(find_sandbox(), source, function=function, stdin=stdin, limits=limits or SandboxLimits())


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
        run = _run(path, _TRIAL, function="", stdin="", limits=SandboxLimits())
        reason = run.stderr if run.stdout != f"{_GREETING}\n" else None
    except (InfrastructureError, OSError) as error:
        reason = str(error)
    if reason is not None:
        raise UserError(
            f"programs run only in a sandbox, and {path} does not work here"
            f" ({' '.join(reason.split())[-200:]}); {INSTALL}"
        )


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


def build_command(
    path: str, *, function: str, limits: SandboxLimits, descriptors: Mapping[str, int]
) -> list[str]:
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


def _run(path: str, source: str, *, function: str, stdin: str, limits: SandboxLimits) -> ProgramRun:
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


def _collect(process: subprocess.Popen[bytes], limits: SandboxLimits) -> tuple[ProgramEnd, bytes, bytes]:
    """Read what the program writes until it ends or passes a limit; at most `output_bytes` are kept."""
    assert process.stdout is not None
    assert process.stderr is not None
    deadline, room = time.monotonic() + limits.wall_s, limits.output_bytes
    kept = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    outcome: ProgramEnd = "finished"
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
            env={"LD_LIBRARY_LIBRARY": str(library.parent)},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"programs run only in a sandbox, and {LDD} does not work here ({error})") from None
    found = {match[1] for match in _LIBRARY.finditer(asked.stdout.decode(errors="replace"))}
    return tuple(
        sorted(path for path in found if os.path.exists(path) and not path.startswith(str(library.parent)))
    )


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


def build_filter(machine: str) -> bytes:
    """The filter for a machine as `os.uname().machine` names it.

    Raises:
        UserError: a machine whose system calls are not in the table.
    """
    if machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise UserError(f"programs cannot be run on a {machine} machine: the sandbox's filter knows {known}")
    audit, column = MACHINES[machine]
    lines = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_JUMP_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in DENIED.values():
        lines += [(_JUMP_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _DENY)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
