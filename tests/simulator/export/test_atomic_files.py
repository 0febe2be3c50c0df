"""Replacing a file: the old content or the new, never a mixture, and nothing left beside it."""

import errno
import os
from pathlib import Path

import pytest

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors, open_atomic, write_atomic


def test_text_and_bytes_replace_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "5 \u20ac")
    assert path.read_bytes() == b"5 \xe2\x82\xac"
    write_atomic(path, b"\x00new")
    assert path.read_bytes() == b"\x00new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def write_half(path: Path) -> None:
    """Write much, check that the file does not show it yet, and fail."""
    with open_atomic(path) as file:
        file.write(b"new\n" * 100_000)
        file.flush()
        assert path.read_text() == "old\n"
        raise RuntimeError("no more")


def test_an_exception_midway_keeps_the_old_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    write_atomic(path, "old\n")
    with pytest.raises(RuntimeError, match="no more"):
        write_half(path)
    assert path.read_text() == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["lines.jsonl"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_atomic(tmp_path / "new" / "below" / "a.txt", "x")
    assert (tmp_path / "new" / "below" / "a.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "No space left on device; free some space or choose another path"),
        (errno.EEXIST, "File exists; something else stands there: remove it or choose another path"),
        (errno.EACCES, "Permission denied; choose a path that can be written to"),
    ],
)
def test_the_remedy_fits_the_error_of_the_system(number: int, remedy: str) -> None:
    with pytest.raises(UserError) as caught, explain_os_errors("write run folder", Path("runs/a")):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"cannot write run folder runs/a: {remedy}"
