"""Planned faults: strict words, the right place, the right time, once, and nothing without a plan."""

import math
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from planned_faults import (
    Fault,
    PlannedFaultError,
    parse_fault,
    parse_faults,
    plan_faults,
)

from training.runs.faults import enter_stage, fault_point


@pytest.fixture(autouse=True)
def no_plan_is_left() -> Iterator[None]:
    yield
    plan_faults(())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill@save:3", Fault(kind="kill", place="save", count=3, stage=None)),
        ("oom@grpo/cto:step:5", Fault(kind="oom", place="step", count=5, stage="grpo/cto")),
        ("nan@sft:loss:1", Fault(kind="nan", place="loss", count=1, stage="sft")),
        ("hang@reward:1", Fault(kind="hang", place="reward", count=1, stage=None)),
    ],
)
def test_words_become_faults_and_read_back(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault
    assert str(fault) == text


@pytest.mark.parametrize(
    "text",
    ["kill", "kill@save", "kill@save:x", "kill@save:3; rm -rf x", "kill@save:0", "kill@sav:1", "kil@save:1",
     "nan@step:1", "oom@save:1"],
)  # fmt: skip
def test_other_words_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of kill\|oom.*@step:COUNT"):
        parse_fault(text)


def test_nothing_happens_without_a_plan() -> None:
    enter_stage("sft/cto")
    for _ in range(3):
        for place in ("step", "save", "sync", "rename"):
            fault_point(place)
    assert fault_point("reward", 0.5) == 0.5
    assert fault_point("loss", torch.tensor(2.0)).item() == 2.0


def test_a_fault_strikes_once_at_its_count_in_its_stage() -> None:
    plan_faults(parse_faults(["eio@grpo:save:2"]))
    enter_stage("sft/cto")
    for _ in range(4):
        fault_point("save")
    enter_stage("grpo/cto")
    fault_point("save")
    with pytest.raises(OSError, match="Input/output error"):
        fault_point("save")
    fault_point("save")
    enter_stage("grpo/coo")
    for _ in range(4):
        fault_point("save")


def test_a_stage_name_does_not_cover_a_longer_one() -> None:
    plan_faults(parse_faults(["raise@sft:step:1"]))
    enter_stage("sft_more/cto")
    fault_point("step")
    enter_stage("sft/cto")
    with pytest.raises(PlannedFaultError):
        fault_point("step")


def test_memory_runs_out_as_torch_says_it() -> None:
    plan_faults(parse_faults(["oom@step:1"]))
    with pytest.raises(torch.OutOfMemoryError):
        fault_point("step")


def test_spoilt_numbers() -> None:
    plan_faults(
        parse_faults(["nan@reward:1", "inf@reward:2", "huge@reward:3", "none@reward:4", "nan@loss:1"])
    )
    spoilt: list[Any] = [fault_point("reward", 0.5) for _ in range(5)]
    first, second, third, fourth, fifth = spoilt
    assert math.isnan(first)
    assert (second, third, fourth, fifth) == (math.inf, 1e308, None, 0.5)
    weight = torch.ones(1, requires_grad=True)
    fault_point("loss", (2 * weight).sum()).backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert torch.isnan(weight.grad).all()


def test_kill_is_sigkill() -> None:
    child = os.fork()
    if child == 0:
        plan_faults(parse_faults(["kill@step:1"]))
        fault_point("step")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
