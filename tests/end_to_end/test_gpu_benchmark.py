"""The GPU benchmark keeps what it has measured where a part of it breaks, hangs, or does not fit any more."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.records import Record, read_records
from benchmarks.gpu.sizes import REHEARSAL, Scale

pytestmark = pytest.mark.process


def good(scale: Scale, record: Record) -> None:
    record("measured", rate=1.0)


def broken(scale: Scale, record: Record) -> None:
    record("measured", rate=2.0)
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def killed(scale: Scale, record: Record) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hanging(scale: Scale, record: Record) -> None:
    record("measured", rate=3.0)
    time.sleep(600)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"broken": (30, broken), "killed": (30, killed), "hanging": (3, hanging), "good": (30, good)}
    monkeypatch.setattr(gpu, "PARTS", made)


def test_a_part_that_breaks_or_hangs_costs_only_itself(parts: None, tmp_path: Path) -> None:
    gpu.run_parts(["broken", "killed", "hanging", "good"], REHEARSAL, tmp_path / "r", 60)
    records = read_records(tmp_path / "r")
    assert [one["rate"] for one in records if one["kind"] == "measured"] == [2.0, 3.0, 1.0]
    assert [one["part"] for one in records if one["kind"] == "error"] == ["broken"]
    assert [one["part"] for one in records if one["kind"] == "stopped"] == ["hanging"]
    exits = {one["part"]: one["exitcode"] for one in records if one["kind"] == "took"}
    assert exits["good"] == 0
    assert exits["killed"] < 0


def test_what_does_not_fit_is_left_out_and_named(parts: None, tmp_path: Path) -> None:
    gpu.run_parts(["good"], REHEARSAL, tmp_path / "r", 10)
    assert [(one["part"], one["kind"]) for one in read_records(tmp_path / "r")] == [("good", "left_out")]


def test_a_rehearsal_runs_the_checks_and_finds_the_same_numbers(tmp_path: Path) -> None:
    assert gpu.main(["--rehearse", "--part", "checks", "--out", str(tmp_path / "r")]) == 0
    found = {one["kind"]: one for one in read_records(tmp_path / "r")}
    assert found["description"]["rehearsal"]
    assert max(found["check_gradients"][name] for name in ("padded_checkpointed", "shared_prompt")) < 1e-5
    assert found["check_mismatch"]["largest"] < 1e-5
    assert found["check_sharded"]["gradient"] < 1e-5
