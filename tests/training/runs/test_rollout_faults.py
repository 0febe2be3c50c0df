"""Rollout workers killed, hung and slowed in mid-step (check R9): real processes, real signals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from emads.reliability.joint.rollout_faults import PR_FAULTS, FaultySteps
from training.joint.marl import JointLearner
from training.joint.records import EpisodeGroup, ReportSet


@pytest.fixture(scope="module")
def steps() -> Iterator[FaultySteps]:
    opened = FaultySteps()
    yield opened
    opened.close()


@pytest.mark.process
@pytest.mark.parametrize(("fault", "at"), PR_FAULTS)
def test_only_whole_groups_are_learnt_and_each_once(steps: FaultySteps, fault: str, at: int) -> None:
    assert steps.try_fault(fault, at) == ""


def is_lost(report_set: ReportSet) -> bool:
    return any(episode.error for episode in report_set.episodes)


@pytest.mark.process
def test_a_learner_that_keeps_broken_groups_is_caught(
    steps: FaultySteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: without one set of a case, the rest of the case must not be learnt."""

    def keep_the_rest(groups: Sequence[EpisodeGroup]) -> list[EpisodeGroup]:
        return [
            replace(group, report_sets=tuple(one for one in group.report_sets if not is_lost(one)))
            for group in groups
        ]

    monkeypatch.setattr("training.joint.play.complete_groups", keep_the_rest)
    assert "in the loss" in steps.try_fault("kill", 40)


@pytest.mark.process
def test_a_learner_that_learns_twice_is_caught(steps: FaultySteps, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = JointLearner.step

    def twice(self: JointLearner, scenarios: object) -> dict[str, float]:
        plain(self, scenarios)  # type: ignore[arg-type]
        return plain(self, scenarios)  # type: ignore[arg-type]

    monkeypatch.setattr(JointLearner, "step", twice)
    assert "learnt something else" in steps.try_fault("slow", 30)
