"""Files of lines that are only added to: kills, full disks and several writers at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roles.errors import UserError
from simulator.line_files import LineFile, read_lines


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines.jsonl"
    assert read_lines(path) == []
    with LineFile(path) as file:
        file.add(b"1", b"2")
        file.add(b"3")
    assert read_lines(path) == [b"1", b"2", b"3"]


def test_a_line_that_was_cut_short_is_left_out_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2')
    assert read_lines(path) == [b'{"a": 1}']
    with LineFile(path) as file:
        file.add(b'{"a": 3}')
    assert path.read_bytes() == b'{"a": 1}\n{"a": 3}\n'


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    child = (
        "import resource, sys; from pathlib import Path; from simulator.line_files import LineFile\n"
        "file = LineFile(Path(sys.argv[1])); file.add(b'kept')\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))\n"
        "try: file.add(b'x' * 100)\n"
        "except OSError as error: print('refused', error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", child, str(path)], capture_output=True, text=True)
    assert done.stdout.startswith("refused"), done.stderr
    assert path.read_bytes() == b"kept\n"


def test_one_process_at_a_time_where_it_is_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with LineFile(path, alone=True), pytest.raises(UserError, match="in use by another process"):
        LineFile(path, alone=True)
    LineFile(path, alone=True).close()


WRITER = """
import sys
from pathlib import Path
from simulator.line_files import LineFile

with LineFile(Path(sys.argv[1])) as file:
    for number in range(10**9):
        file.add(f"{sys.argv[2]} {number} {'x' * 5000}".encode())
        print(number, flush=True)
"""


@pytest.mark.process
def test_writers_that_are_killed_lose_no_line_that_they_reported(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout
        assert writer.stdout.readline() == "0\n"
    time.sleep(0.3)
    reported = {}
    for name, writer in zip("ab", writers, strict=True):
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        reported[name] = int(rest[-1]) if rest else 0
    found = [line.split() for line in read_lines(path)]
    assert all(len(line) == 3 and line[2] == b"x" * 5000 for line in found)
    for name in "ab":
        numbers = [int(line[1]) for line in found if line[0] == name.encode()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > reported[name]
