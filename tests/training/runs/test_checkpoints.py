"""Checkpoints: published once, never loaded damaged, and a kill at any point leaves the earlier one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roles.errors import UserError
from training.runs.checkpoints import MANIFEST, DamagedCheckpointError, newest_sound, publish, verify

ROOT = Path(__file__).parent.parent.parent.parent
FILES = {"cto/weights.safetensors": bytes(range(256)) * 8, "state.json": b'{"step": 1}'}


def write_files(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def publish_steps(parent: Path, *steps: int, run: str = "ours") -> None:
    for step in steps:
        publish(parent, f"step_{step}", write_files, run=run, step=step)


def read_all(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_was_published_is_what_is_verified(tmp_path: Path) -> None:
    path = publish(tmp_path, "step_3", write_files, run="ours", step=3, previous="step_2")
    manifest = verify(path, run="ours", step=3)
    assert (manifest.run, manifest.step, manifest.parent) == ("ours", 3, "step_2")
    assert {entry.path: entry.size for entry in manifest.files} == {n: len(c) for n, c in FILES.items()}
    assert read_all(path) == FILES
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_3"]


def test_the_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    publish_steps(tmp_path, 9, 10, 2)
    newest = newest_sound(tmp_path, run="ours")
    assert newest is not None
    assert newest.name == "step_10"


def test_names_without_a_step_are_ordered_by_their_manifest(tmp_path: Path) -> None:
    publish(tmp_path, "best", write_files, run="ours", step=30)
    publish(tmp_path, "cto@2", write_files, run="ours", step=20)
    assert newest_sound(tmp_path) == tmp_path / "best"


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert newest_sound(tmp_path) is None
    assert newest_sound(tmp_path / "absent") is None


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position // 8 % len(content)] ^= 1 << position % 8
    path.write_bytes(bytes(content))


def truncate_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replace_by_link(path: Path) -> None:
    path.rename(path.parent / "x")
    path.symlink_to(path.parent / "x")


FILE_DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": truncate_half,
    "one bit": lambda path: flip_bit(path, 1234),
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"\n{}"),
    "link": replace_by_link,
}


@pytest.mark.parametrize("damage", FILE_DAMAGE)
@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_damaged_file_is_quarantined_and_the_older_checkpoint_is_used(
    tmp_path: Path, file: str, damage: str
) -> None:
    publish_steps(tmp_path, 1, 2)
    FILE_DAMAGE[damage](tmp_path / "step_2" / file)
    reasons: list[str] = []
    assert newest_sound(tmp_path, run="ours", report=reasons.append) == tmp_path / "step_1"
    assert read_all(tmp_path / "step_1") == FILES
    assert len(reasons) == 1
    assert "step_2" in reasons[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_1", "step_2.quarantined"]


def test_every_bit_of_the_manifest_counts(tmp_path: Path) -> None:
    path = publish(tmp_path, "step_1", lambda folder: None, run="r", step=1)
    whole = (path / MANIFEST).read_bytes()
    for position in range(len(whole) * 8):
        flip_bit(path / MANIFEST, position)
        with pytest.raises(DamagedCheckpointError):
            verify(path)
        (path / MANIFEST).write_bytes(whole)
    verify(path)


def copy_other_run(parent: Path) -> None:
    publish_steps(parent / "elsewhere", 2, run="theirs")
    shutil.rmtree(parent / "step_2")
    (parent / "elsewhere" / "step_2").rename(parent / "step_2")
    (parent / "elsewhere").rmdir()


def copy_wrong_step(parent: Path) -> None:
    shutil.rmtree(parent / "step_2")
    shutil.copytree(parent / "step_1", parent / "step_2")


def edit_manifest(parent: Path) -> None:
    manifest = json.loads((parent / "step_2" / MANIFEST).read_text())
    (parent / "step_2" / MANIFEST).write_text(json.dumps(manifest | {"files": []}))
    for name in FILES:
        (parent / "step_2" / name).unlink()


def empty_folder(parent: Path) -> None:
    shutil.rmtree(parent / "step_2")
    (parent / "step_2").mkdir()


FOLDER_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "other run's": (copy_other_run, "is of run theirs, not ours"),
    "wrong step": (copy_wrong_step, "is of step 1, not 2"),
    "extra file": (
        lambda parent: (parent / "step_2" / "x.bin").write_bytes(b"x"),
        "x.bin is not in the manifest",
    ),
    "edited manifest": (edit_manifest, "differs from its own sha256"),
    "emptied": (empty_folder, "has no MANIFEST"),
}


@pytest.mark.parametrize("damage", FOLDER_DAMAGE)
def test_a_wrong_folder_is_quarantined_with_its_reason(tmp_path: Path, damage: str) -> None:
    publish_steps(tmp_path, 1, 2)
    spoil, reason = FOLDER_DAMAGE[damage]
    spoil(tmp_path)
    reasons: list[str] = []
    assert newest_sound(tmp_path, run="ours", report=reasons.append) == tmp_path / "step_1"
    assert reason in reasons[0]


def test_quarantine_keeps_every_damaged_copy(tmp_path: Path) -> None:
    for _ in range(3):
        publish_steps(tmp_path, 1)
        (tmp_path / "step_1" / "state.json").write_bytes(b"")
        assert newest_sound(tmp_path, report=lambda line: None) is None
    assert len(list(tmp_path.glob("step_1.quarantined*"))) == 3


def test_a_damaged_checkpoint_is_one_line_for_the_user(tmp_path: Path) -> None:
    publish_steps(tmp_path, 1)
    (tmp_path / "step_1" / "state.json").unlink()
    with pytest.raises(UserError, match=r"step_1: file state\.json is missing"):
        verify(tmp_path / "step_1")


def test_a_full_disk_while_writing_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    publish_steps(tmp_path, 1)

    def fill_disk(folder: Path) -> None:
        write_files(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        publish(tmp_path, "step_2", fill_disk, run="ours", step=2)
    with pytest.raises(UserError, match="No space left on device"):
        publish(tmp_path, "step_1", fill_disk, run="ours", step=1)

    def fill_disk_in_rust(folder: Path) -> None:
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(UserError, match="No space left on device"):
        publish(tmp_path, "step_2", fill_disk_in_rust, run="ours", step=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]
    assert newest_sound(tmp_path) == tmp_path / "step_1"


@pytest.mark.parametrize("call", range(1, 8))
def test_a_full_disk_at_any_sync_leaves_a_sound_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    publish_steps(tmp_path, 1)
    calls = 0

    def fail_once(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail_once)
        with pytest.raises(UserError, match="Input/output error"):
            publish(tmp_path, "step_2", write_files, run="ours", step=2)
    newest = newest_sound(tmp_path, report=pytest.fail)
    assert newest is not None
    assert read_all(newest) == FILES
    publish_steps(tmp_path, 2)
    assert newest_sound(tmp_path) == tmp_path / "step_2"


def test_names_and_steps_that_contradict_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contradicts step 3"):
        publish(tmp_path, "step_2", write_files, run="ours", step=3)
    for name in ("../x", "a/b", "", ".x", "step_2.quarantined"):
        with pytest.raises(ValueError, match="not a checkpoint name"):
            publish(tmp_path, name, write_files, run="ours", step=3)


def test_a_writer_that_leaves_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a plain file nor a folder"):
        publish(tmp_path, "step_1", lambda folder: (folder / "x").symlink_to("/etc"), run="ours", step=1)
    assert list(tmp_path.iterdir()) == []


# A real process that publishes step 2 (again) and dies by SIGKILL at a chosen call.
VICTIM = """
import os, signal, sys
from pathlib import Path
from training.runs.checkpoints import publish

parent, name, target, countdown = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

def dying(original):
    def call(*args, **kwargs):
        global countdown
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return call

if target == "fsync":
    os.fsync = dying(os.fsync)
elif target == "rename":
    Path.rename = dying(Path.rename)

def write(folder):
    (folder / "state.json").write_bytes(b"new")
    if target == "write":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "weights.bin").write_bytes(b"w" * 100_000)

publish(parent, name, write, run="ours", step=int(name.removeprefix("step_")))
"""


@pytest.mark.parametrize("name", ["step_2", "step_1"])
@pytest.mark.parametrize(
    ("target", "countdown"),
    [("write", 1), ("fsync", 1), ("fsync", 2), ("fsync", 4), ("fsync", 6), ("rename", 1), ("rename", 2)],
)
def test_kill_nine_inside_publish_leaves_a_sound_checkpoint(
    tmp_path: Path, name: str, target: str, countdown: int
) -> None:
    publish_steps(tmp_path, 1)
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(tmp_path), name, target, str(countdown)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
    )
    survived = name == "step_2" and (target, countdown) == ("rename", 2)  # a first publish renames once
    assert done.returncode == (0 if survived else -signal.SIGKILL), done.stderr
    newest = newest_sound(tmp_path, run="ours", report=pytest.fail)
    assert newest is not None
    assert read_all(newest) in (FILES, {"state.json": b"new", "weights.bin": b"w" * 100_000})
    publish_steps(tmp_path, 1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_1", "step_2"]
    assert newest_sound(tmp_path, run="ours") == tmp_path / "step_2"
