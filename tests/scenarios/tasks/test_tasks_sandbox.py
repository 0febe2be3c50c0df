"""The sandbox: more than 30 escapes, what it refuses without bubblewrap, and how it reports what happened."""

import itertools
import os
import platform
import struct
import sys
import time
from functools import partialmethod
from pathlib import Path

import pytest
from sandboxes import put_on_path, run_or_be_refused, take_away, works_here

from roles.errors import InfrastructureError, UserError
from scenarios.tasks.programs import (
    MAX_PROGRAM_CHARS,
    FunctionCase,
    judge_function,
    score_cases,
)
from scenarios.tasks.sandbox import (
    DENIED,
    MACHINES,
    TRUSTED_PATHS,
    ProgramRun,
    SandboxLimits,
    build_command,
    build_filter,
    find_sandbox,
    is_new_enough,
    require_trusted,
    run_program,
)

ROOT = Path(__file__).parent.parent.parent.parent
ALLOW, DENY, KILL = 0x7FFF0000, 0x00050001, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7

# Each prints ESCAPED where it gets out; any exception is the sandbox holding.
QUIET_ESCAPES = {
    "internet": "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)\nprint('ESCAPED')",
    "loopback": "import socket\nsocket.create_server(('127.0.0.1', 0))\nprint('ESCAPED')",
    "virtual machine socket": "import socket\nsocket.socket(socket.AF_VSOCK)\nprint('ESCAPED')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK)\nprint('ESCAPED')",
    "unix socket": "import socket\nsocket.socket(socket.AF_UNIX)\nprint('ESCAPED')",
    "pair of sockets": "import socket\nsocket.socketpair()\nprint('ESCAPED')",
    "pipe": "import os\nos.pipe()\nprint('ESCAPED')",
    "sleep": "import time\ntime.sleep(0.01)\nprint('ESCAPED')",
    "wait for a signal": "import signal\nsignal.sigwait([signal.SIGINT])\nprint('ESCAPED')",
    "wait for input": "import select\nselect.select([], [], [], 0.01)\nprint('ESCAPED')",
    "packages of the interpreter": "import os, sysconfig\n"
    "for kind in ('purelib', 'platlib'):\n"
    "  for name in os.listdir(sysconfig.get_path(kind)): print('ESCAPED', name)",
    "packages of the system": "import os\n"
    "for folder in ('lib/python3', 'lib/python3/dist-packages', 'share', 'lib/systemd', 'bin'):\n"
    "  if os.path.exists('/usr/' + folder): print('ESCAPED', folder)",
    "programs of the system": "import os\nfor top in ('/usr', '/lib', '/lib64'):\n"
    "  for folder, _, names in os.walk(top):\n"
    "    for name in names:\n"
    "      if '.so' not in name: print('ESCAPED', folder, name)",
    "write to the system": "open('/usr/lib/escaped', 'w')\nprint('ESCAPED')",
    "write to the interpreter": "import os\nopen(os.__file__, 'a')\nprint('ESCAPED')",
    "write to the root": "open('/escaped', 'w')\nprint('ESCAPED')",
    "rewrite the runner": "open('/runner.py', 'a')\nprint('ESCAPED')",
    "change modes": "import os\nos.chmod('/usr/lib', 0o777)\nprint('ESCAPED')",
    "passwords": "for name in ('passwd', 'shadow', 'hostname'):\n"
    "  try: print('ESCAPED', open('/etc/' + name).read())\n  except OSError: pass",
    "symbolic link": "import os\n"
    "os.symlink('/etc/passwd', '/tmp/link')\nprint('ESCAPED', open('/tmp/link').read())",
    "hard link": "import os\nos.link('/program.py', '/tmp/link')\nopen('/tmp/link', 'a')\nprint('ESCAPED')",
    "proc": "import os\nprint('ESCAPED', os.listdir('/proc'))",
    "dev and sys": "import os\nfor name in ('/dev', '/sys', '/run', '/home', '/root'):\n"
    "  if os.path.exists(name): print('ESCAPED', name)",
    "terminal": "open('/dev/tty')\nprint('ESCAPED')",
    "type into the terminal": "import fcntl\nfor fd in range(3):\n"
    "  fcntl.ioctl(fd, 0x5412, b'x')\nprint('ESCAPED')",
    "fork": "import os\nos.fork()\nprint('ESCAPED')",
    "thread": "import threading\nthreading.Thread(target=print, args=('ESCAPED',)).start()",
    "other program": "import subprocess\nprint('ESCAPED', subprocess.run(['/usr/lib/ld-linux.so.2']))",
    "device node": "import os, stat\n"
    "os.mknod('/tmp/d', stat.S_IFCHR | 0o666, os.makedev(1, 3))\nprint('ESCAPED')",
    "change root": "import os\nos.chroot('/tmp')\nprint('ESCAPED')",
    "more memory": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))\nprint('ESCAPED')",
    "capabilities": "import ctypes\nlibc = ctypes.CDLL(None)\n"
    "held = [number for number in range(41) if libc.prctl(23, number, 0, 0, 0)]\n"
    "if held: print('ESCAPED', held)",
    "memory bomb": "x = bytearray(1 << 31)\nprint('ESCAPED')",
    "creeping memory bomb": "x = []\nwhile len(x) < 4096: x.append(bytearray(1 << 20))\nprint('ESCAPED')",
    "large file": "with open('/tmp/x', 'wb') as f:\n"
    "  for _ in range(256): f.write(bytes(1 << 20))\nprint('ESCAPED')",
    "full disk": "for i in range(256):\n"
    "  with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(1 << 20))\nprint('ESCAPED')",
    "open files": "import os\nfor fd in range(3, 4096):\n  try: os.fstat(fd)\n  except OSError: continue\n"
    "  print('ESCAPED', fd)",
    "environment": "import os\n"
    "extra = set(os.environ) - {'PWD', 'LC_CTYPE', 'LD_LIBRARY_PATH', 'PYTHONHASHSEED'}\n"
    "if extra: print('ESCAPED', extra)",
}


def call_every_denied_system_call() -> str:
    """A program that tries each call of the table with harmless arguments, and names those not denied."""
    column = MACHINES[platform.machine()][1]
    numbers = {name: numbers[column] for name, numbers in DENIED.items()}
    return (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {numbers!r}.items():\n"
        "  if libc.syscall(number, -1, -1, -1, -1, -1) != -1 or ctypes.get_errno() != 1:\n"
        "    print('ESCAPED', name)"
    )


def run_escape(source: str, tmp_path: Path) -> ProgramRun | None:
    """The escape, after a try to leave a mark on the host that shows whether it ran outside."""
    mark = tmp_path / "mark"
    program = f"try: open({str(mark)!r}, 'w')\nexcept OSError: pass\n{source}"
    run = run_or_be_refused(lambda: run_program(program, limits=SandboxLimits(wall_s=8, cpu_s=2)))
    assert not mark.exists()
    return run


@pytest.mark.parametrize("name", QUIET_ESCAPES)
def test_no_way_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMADS_SECRET", "hunter2")
    run = run_escape(QUIET_ESCAPES[name], tmp_path)
    if run is not None:
        assert run.outcome == "finished"
        assert "ESCAPED" not in run.stdout, run.stdout
        assert "hunter2" not in run.stdout
        assert "SyntaxError" not in run.stderr


def test_denied_system_calls_are_denied(tmp_path: Path) -> None:
    run = run_escape(call_every_denied_system_call(), tmp_path)
    assert run is None or (run.stdout, run.exit_code) == ("", 0), run


def test_the_repository_and_the_host_are_out_of_sight(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    paths = [str(ROOT / "pyproject.toml"), str(tmp_path / "secret"), str(Path.home()), sys.prefix]
    run = run_escape(f"import os\nfor p in {paths!r}:\n  if os.path.exists(p): print('ESCAPED', p)", tmp_path)
    assert run is None or (run.stdout, run.exit_code) == ("", 0), run


def test_signals_reach_nobody_outside(tmp_path: Path) -> None:
    run = run_escape(
        "import os\nfor pid in (os.getppid(), 1, -1):\n  for signal in (9, 15, 19):\n"
        f"    try: os.kill(pid, signal)\n    except OSError: pass\n"
        f"try: os.kill({os.getpid()}, 9)\nexcept OSError: print('held')",
        tmp_path,
    )
    assert run is None or run.outcome in ("finished", "timeout")
    assert run is None or run.stdout in ("", "held\n")


@pytest.mark.parametrize(
    ("source", "outcomes"),
    [
        ("while True: pass", {("finished", 137), ("timeout", None)}),
        ("import time\ntime.sleep(60)", {("finished", 1)}),
        ("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", {("timeout", None)}),
        ("import signal, time\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n"
         "  except (OSError, ValueError): pass\nwhile True: time.time()",
         {("finished", 137), ("timeout", None)}),
        ("while True: print('x' * 4096)", {("output_limit", None)}),
        ("import sys\nwhile True: sys.stderr.write('x' * 4096)", {("output_limit", None)}),
        ("import os\nos.close(1)\nos.close(2)\nwhile True: pass", {("finished", 137), ("timeout", None)}),
        ("10 ** 10 ** 8", {("finished", 137), ("finished", 1), ("timeout", None)}),
        ("def f(): f()\nimport sys\nsys.setrecursionlimit(10**9)\nf()",
         {("finished", 137), ("finished", 139), ("finished", 1), ("timeout", None)}),
        ("import os\nos.abort()", {("finished", 134)}),
        ("import os\nos._exit(7)", {("finished", 7)}),
        ("raise SystemExit(3)", {("finished", 3)}),
        ("def broken(", {("finished", 1)}),
        ("\x00", {("finished", 1)}),
        ("'\ud800'", {("finished", 1)}),
    ],
)  # fmt: skip
def test_endings_are_reported_as_they_are(source: str, outcomes: set[tuple[str, int | None]]) -> None:
    start = time.monotonic()
    run = run_or_be_refused(lambda: run_program(source, limits=SandboxLimits(wall_s=2, cpu_s=1)))
    assert time.monotonic() - start < 20
    if run is not None:
        assert (run.outcome, run.exit_code) in outcomes, run
        assert len(run.stdout) + len(run.stderr) <= SandboxLimits().output_bytes


def test_a_program_reads_prints_and_keeps_its_own_folder() -> None:
    source = "import os\nopen('note', 'w').write(input())\nprint(os.getcwd(), open('/tmp/note').read())"
    run = run_or_be_refused(lambda: run_program(source, stdin="caf\u00e9\n"))
    assert run is None or (run.stdout, run.exit_code) == ("/tmp caf\u00e9\n", 0)
    assert not Path("/tmp/note").exists()


SQUARE = "def solve(x):\n    return x * x\n"
CASES = [FunctionCase(arguments=[x], expected=x * x) for x in range(2, 8)]
CHEATS = {
    "constant": "def solve(x): return 4",
    "exit with 0": "import os\nos._exit(0)",
    "says it passed": "import os\nos.write(1, b'passed\\nOK\\n{\"passed\": true}\\n' * 9)",
    "claims a value": "import os\nos.write(1, b'{\"value\": 4}\\n' * 9)\nos._exit(0)",
    "equal to everything": "class E(int):\n  __eq__ = lambda s, o: True\ndef solve(x): return E(4)",
    "patched json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\ndef solve(x): return 1",
    "patched loads": "import json\njson.loads = lambda *a, **k: []\ndef solve(x): return 1",
    "reads the frames": "import sys\ndef solve(x):\n  return sys._getframe(1).f_locals.get('expected')",
    "reads standard input": "import sys\ndef solve(x): return sys.stdin.read()",
    "closes the output": "import os\nos.close(1)\ndef solve(x): return x * x if x < 0 else None",
    "true for one": "def solve(x): return x * x == 4",
    "text": "def solve(x): return str(x * x)",
    "float": "def solve(x): return float(x * x)",
    "not a number": "def solve(x): return float('nan')",
    "deep": "def solve(x):\n  v = []\n  for _ in range(900): v = [v]\n  return v",
    "huge": "def solve(x): return 'x' * 10**6",
    "no function": "solution = 4",
    "not a function": "solve = 4",
    "leaves": "def solve(x): raise SystemExit(0)",
    "recursion": "def solve(x): return solve(x)",
    "generator": "def solve(x): yield x * x",
}


def test_a_right_function_passes_every_case() -> None:
    results = run_or_be_refused(lambda: judge_function(SQUARE, "solve", CASES))
    if results is not None:
        assert [result.passed for result in results] == [True] * len(CASES)
        assert score_cases(results).value == 1


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes_more_than_one_value(name: str) -> None:
    results = run_or_be_refused(lambda: judge_function(CHEATS[name], "solve", CASES))
    assert results is None or sum(result.passed for result in results) <= 1, results
    assert results is None or score_cases(results).failure == "wrong"


def test_printing_between_the_cases_does_no_harm() -> None:
    source = "print('hello')\ndef solve(x):\n    print('{\"value\": 1}')\n    return x * x\n"
    results = run_or_be_refused(lambda: judge_function(source, "solve", CASES))
    assert results is None or all(result.passed for result in results)


def test_a_program_too_long_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    source = "#" * (MAX_PROGRAM_CHARS + 1)
    assert not any(result.passed for result in judge_function(source, "solve", CASES))


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    take_away(monkeypatch, tmp_path)
    with pytest.raises(UserError, match=r"bwrap is not installed.*; install bubblewrap 0\.8"):
        run_program(f"open({str(tmp_path / 'mark')!r}, 'w')")
    assert not (tmp_path / "mark").exists()


BROKEN = {
    "not permitted": "sys.stderr.write('bwrap: No permissions to create new namespace'); sys.exit(1)",
    "too old": "sys.stderr.write('bwrap: Unknown option --disable-userns'); sys.exit(1)",
    "silent": "sys.exit(1)",
    "claims success": "end(0)",
    "says another thing": "print('hello', flush=True); end(0)",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_bubblewrap_that_does_not_work_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = put_on_path(monkeypatch, tmp_path, "")
    path.write_text(
        path.read_text().replace('if b"the sandbox works"', f'{BROKEN[name]}\nif b"the sandbox works"')
    )
    with pytest.raises(UserError, match="does not work here"):
        find_sandbox()


def test_a_bubblewrap_that_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = put_on_path(monkeypatch, tmp_path, "")
    path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(UserError, match="does not work here"):
        find_sandbox()


def test_a_program_called_bwrap_on_the_path_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It could run programs outside: only the system's own places count, where root alone writes."""
    trusted = TRUSTED_PATHS
    mark = tmp_path / "ran"
    path = put_on_path(monkeypatch, tmp_path, f"open({str(mark)!r}, 'w'); end(0)")
    monkeypatch.setattr("scenarios.tasks.sandbox.TRUSTED_PATHS", trusted)
    if works_here():
        assert find_sandbox() in trusted
    else:
        with pytest.raises(UserError):
            find_sandbox()
    assert not mark.exists()
    for mode in (0o777, 0o775, 0o757):
        path.chmod(mode)
        with pytest.raises(UserError, match="may be changed by others than root"):
            require_trusted(str(path))
    path.chmod(0o755)
    if os.getuid() == 0:
        require_trusted(str(path))
        os.chown(path, 1234, 1234)
    with pytest.raises(UserError, match="may be changed by others than root"):
        require_trusted(str(path))


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        ("bubblewrap 0.8.0", True),
        ("bubblewrap 0.11.0", True),
        ("bubblewrap 1.0", True),
        ("bubblewrap 0.7.9", False),
        ("bubblewrap 0.4.1", False),
        ("bwrap 9.9", False),
        ("", False),
    ],
)
def test_a_version_is_old_or_new_by_its_numbers(said: str, accepted: bool) -> None:
    assert is_new_enough(said) is accepted


def test_a_bubblewrap_that_shuts_nothing_off_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It runs the trial program for real, outside: the program sees the host and does not greet."""
    path = put_on_path(monkeypatch, tmp_path, "end(0)")
    path.write_text(
        path.read_text().replace(
            'print("the sandbox works", flush=True)', 'exec(program, {"__name__": "__main__"})'
        )
    )
    with pytest.raises(UserError, match="does not work here"):
        find_sandbox()


def test_what_ended_by_the_clock_is_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A busy machine is no property of a program: only what finished is remembered."""
    count = tmp_path / "count"
    put_on_path(
        monkeypatch,
        tmp_path,
        f"n = len(open({str(count)!r}, 'a+').read() or '') or os.path.getsize({str(count)!r})\n"
        f"open({str(count)!r}, 'a').write('x')\n"
        "time.sleep(60) if n == 0 else (print('{\"value\": 4}', flush=True), end(0))",
    )
    monkeypatch.setattr(SandboxLimits, "__init__", partialmethod(SandboxLimits.__init__, wall_s=1.0))
    cases = [FunctionCase(arguments=[2], expected=4)]
    assert [judge_function("# slow", "solve", cases)[0].passed for _ in range(3)] == [False, True, True]
    assert count.read_text() == "xx"


def test_a_sandbox_that_fails_later_is_no_fault_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_on_path(monkeypatch, tmp_path, "sys.stderr.write('bwrap: out of inodes'); sys.exit(1)")
    with pytest.raises(InfrastructureError, match="out of inodes"):
        run_program("print(1)")


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ("print('42', flush=True); end(3)", ("finished", 3, "42\n")),
        ("time.sleep(60)", ("timeout", None, "")),
        ("os.close(1); os.close(2); time.sleep(60)", ("timeout", None, "")),
        ("print('x' * 100, flush=True); time.sleep(60)", ("output_limit", None, "x" * 50)),
    ],
)
def test_limits_hold_from_outside(
    behaviour: str, expected: tuple[str, int | None, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_on_path(monkeypatch, tmp_path, behaviour)
    find_sandbox()
    start = time.monotonic()
    run = run_program("", limits=SandboxLimits(wall_s=2, output_bytes=50))
    assert (run.outcome, run.exit_code, run.stdout) == expected
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "nothing",
        "4",
        '{"value": 4, "error": 1}',
        '{"value": NaN}',
        '{"values": 4}',
        "[" * 9000,
        '{"value": "4"}',
    ],
)
def test_results_are_read_strictly(printed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_on_path(monkeypatch, tmp_path, f"print({printed!r}, flush=True); end(0)")
    results = judge_function(f"# {printed!r}", "solve", [FunctionCase(arguments=[2], expected=4)])
    assert [result.passed for result in results] == [False]


def test_the_command_closes_every_door() -> None:
    command = build_command(
        "/usr/bin/bwrap", function="solve", limits=SandboxLimits(cpu_s=1),
        descriptors={"runner": 10, "program": 11, "filter": 12, "status": 13},
    )  # fmt: skip
    inside, outside = command[command.index("--") + 1 :], command[: command.index("--")]
    for flag in ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent"):
        assert flag in outside
    for pair in (("--cap-drop", "ALL"), ("--tmpfs", "/tmp"), ("--remount-ro", "/"), ("--seccomp", "12")):
        assert pair in itertools.pairwise(outside)
    assert "--clearenv" in outside
    assert not {"--share-net", "--bind", "--dev-bind", "--dev", "--proc", "--cap-add"} & set(command)
    shown = {outside[i + 2] for i, word in enumerate(outside) if word in ("--ro-bind", "--ro-bind-try")}
    assert all(path.startswith(("/usr/lib", "/lib", "/python/")) for path in shown)
    assert all(".so" in path or path.startswith("/python/") for path in shown)
    assert inside[0].startswith("/python/bin/")
    assert '"RLIMIT_CPU": 1' in inside[-2]
    assert inside[-1] == "solve"


def decide(machine: str, audit: int, number: int) -> int:
    """What the filter answers to one system call: a classic BPF machine with the four instructions used."""
    program = list(struct.iter_unpack("=HBBI", build_filter(machine)))
    loaded, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        if code == 0x06:
            return int(value)
        if code == 0x20:
            loaded = {0: number, 4: audit}[value]
            at += 1
        else:
            holds = loaded == value if code == 0x15 else loaded >= value
            at += 1 + (if_true if holds else if_false)


@pytest.mark.parametrize(("machine", "audit", "column"), [("x86_64", X86, 0), ("aarch64", ARM, 1)])
def test_the_filter_denies_its_table_and_nothing_else(machine: str, audit: int, column: int) -> None:
    denied = {numbers[column] for numbers in DENIED.values()}
    for number in range(500):
        assert decide(machine, audit, number) == (DENY if number in denied else ALLOW)
    assert decide(machine, ARM if audit == X86 else X86, 0) == KILL
    assert decide(machine, audit, 0x40000000) == KILL


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(UserError, match="riscv64"):
        build_filter("riscv64")
