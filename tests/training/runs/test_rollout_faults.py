"""Rollout workers killed, hung and slowed in mid-step (battery R9): real processes, real signals."""

from collections.abc import Iterator

import pytest

from benchmarks.reliability.rollout_faults import PR_FAULTS, StruckSteps
from training.joint.marl import JointLearner


@pytest.fixture(scope="module")
def steps() -> Iterator[StruckSteps]:
    opened = StruckSteps()
    yield opened
    opened.close()


@pytest.mark.parametrize(("fault", "at"), PR_FAULTS)
def test_only_whole_groups_are_learnt_and_each_once(steps: StruckSteps, fault: str, at: int) -> None:
    assert steps.try_fault(fault, at) == ""


def test_a_learner_that_keeps_broken_groups_is_caught(
    steps: StruckSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The battery can fail: without one set of a case, the rest of the case must not be learnt."""
    monkeypatch.setattr("training.joint.play.complete_groups", lambda played, report_sets: list(played))
    assert "in the loss" in steps.try_fault("kill", 40)


def test_a_learner_that_learns_twice_is_caught(steps: StruckSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = JointLearner.step

    def twice(self: JointLearner, scenarios: object) -> dict[str, float]:
        plain(self, scenarios)  # type: ignore[arg-type]
        return plain(self, scenarios)  # type: ignore[arg-type]

    monkeypatch.setattr(JointLearner, "step", twice)
    assert "learnt something else" in steps.try_fault("slow", 30)
