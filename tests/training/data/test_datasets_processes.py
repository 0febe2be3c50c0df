"""Data folders made by real processes: any hash seed, any number of workers, any kill, the same bytes."""

import itertools
import os
import random
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
NUM_KILLS = 5
TIMEOUT_S = 180


def command(out: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "emads.cli", "generate", *arguments, "--out", str(out)]


@pytest.mark.process
def test_hash_seeds_and_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    found = []
    for hash_seed, processes in itertools.product(("0", "1", "4711"), ("1", "2")):
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


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> float:
    """Seconds on the clock when `path` is there."""
    end = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    return time.monotonic()


def wait_for_end_of_group(group: int) -> None:
    """Workers of a killed parent leave by themselves (nobody may have reaped them yet)."""
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


def start(out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(out, *arguments),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.process
def test_kill_nine_at_random_moments_then_resume_gives_equal_bytes(tmp_path: Path) -> None:
    arguments = ("--family", "risk", "--family", "reconcile", "--count", "1100", "--processes")
    whole = start(tmp_path / "whole", *arguments, "2")
    began = wait_for(tmp_path / "whole" / "dataset.json", whole)
    assert whole.wait(TIMEOUT_S) == 0
    duration_s = time.monotonic() - began
    expected = hash_folder(tmp_path / "whole")
    rng = random.Random(8)
    num_kills = 0
    for attempt in range(3 * NUM_KILLS):
        out = tmp_path / f"killed-{attempt}"
        process = start(out, *arguments, "2")
        wait_for(out / "dataset.json", process)
        time.sleep(rng.uniform(0, 0.8 * duration_s))
        with suppress(ProcessLookupError):
            if attempt % 2:
                os.killpg(process.pid, signal.SIGKILL)  # everything at once, as when a machine goes down
            else:
                process.send_signal(signal.SIGKILL)  # the parent alone
        if process.wait(TIMEOUT_S) != -signal.SIGKILL:
            continue  # it was faster than the first time
        num_kills += 1
        wait_for_end_of_group(process.pid)
        subprocess.run(
            command(out, *arguments, "1"), cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S
        )
        assert hash_folder(out) == expected  # no temporary file either
        if num_kills == NUM_KILLS:
            return
    pytest.fail(f"only {num_kills} of {3 * NUM_KILLS} attempts were killed in time")


@pytest.mark.process
def test_a_dead_worker_is_one_line_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.data.folders import blocks as dataset_blocks

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
