"""Data folders made by real processes: any hash seed, any number of workers, any kill, the same bytes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from data_folders import hash_folder

from emads.cli import main
from training.data.folders.datasets import generate_folder

ROOT = Path(__file__).parent.parent.parent.parent
TIMEOUT_S = 180


def command(out: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "emads.cli", "generate", *arguments, "--out", str(out)]


@pytest.mark.process
def test_hash_seeds_and_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    found = []
    for hash_seed, processes in (("0", "1"), ("1", "2"), ("4711", "2")):
        out = tmp_path / f"{hash_seed}-{processes}"
        subprocess.run(
            command(out, "--family", "all", "--count", "12", "--processes", processes),
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        found.append(hash_folder(out))
    assert len(found[0]) == 6 + 2
    assert all(one == found[0] for one in found)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for_end_of_group(group: int) -> None:
    """Wait until no process of the group runs; nobody may have reaped the ended ones."""
    end = time.monotonic() + 20
    while alive := list(list_group(group)):
        assert time.monotonic() < end, f"workers {alive} outlived their parent"
        time.sleep(0.05)


def list_group(group: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state != "Z":
                yield int(path.parent.name)


@pytest.mark.process
def test_workers_of_a_killed_parent_leave_by_themselves(tmp_path: Path) -> None:
    call = command(tmp_path, "--family", "risk", "--count", "600", "--processes", "2")
    process = subprocess.Popen(
        call, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_for(tmp_path / "dataset.json", process)
    process.send_signal(signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    wait_for_end_of_group(process.pid)


@pytest.mark.process
def test_kill_nine_at_random_moments_then_resume_gives_equal_bytes(tmp_path: Path) -> None:
    from reliability.checks import CHECKS  # not above: a worker of the test below imports this module
    from reliability.data.generation_kills import generation_kills
    from reliability.stages.prepared_runs import PreparedRuns

    trials = generation_kills(PreparedRuns(tmp_path, "pr"), CHECKS["R8"].pr)
    assert [trial.call() for trial in trials] == [""] * 5


@pytest.mark.process
def test_a_dead_worker_is_one_line_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.data.folders import datasets as dataset_blocks

    arguments = ["generate", "--family", "cost", "--count", "60", "--processes", "2", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr(dataset_blocks, "draw_block", os._exit)  # what a worker runs: a Block is no status
        patch.setattr(dataset_blocks, "_start_worker", die)
        assert main([*arguments, str(tmp_path / "data")]) == 2
    assert "a worker process died" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "data")]) == 0
    generate_folder(("cost",), 60, tmp_path / "whole", processes=1)
    assert hash_folder(tmp_path / "data") == hash_folder(tmp_path / "whole")


def die() -> None:
    os._exit(9)
