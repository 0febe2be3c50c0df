"""Rollout workers killed, hung and slowed in mid-step (battery R9): real processes, real signals."""

from collections.abc import Iterator

import pytest
from rollout_worker import RolloutWorkers
from test_marl import CONFIG, draw, make_learner
from tiny_models import ScriptedModelEngine, same_weights, weights_of

from roles.registry import ROLES
from training import marl
from training.marl import JointLearner

CASES = draw(3)


@pytest.fixture(scope="module")
def workers() -> Iterator[RolloutWorkers]:
    pool = RolloutWorkers(draw(6))
    yield pool
    pool.close()


@pytest.fixture
def make(workers: RolloutWorkers, monkeypatch: pytest.MonkeyPatch) -> type[JointLearner]:
    monkeypatch.setattr(
        marl, "TransformersEngine", lambda **options: ScriptedModelEngine(workers.speakers(), **options)
    )
    return JointLearner


@pytest.mark.parametrize(
    ("fault", "at"), [("kill", 3), ("kill", 40), ("kill", 90), ("hang", 20), ("slow", 30)]
)
def test_only_whole_groups_are_learnt_and_each_once(
    workers: RolloutWorkers, make: type[JointLearner], fault: str, at: int
) -> None:
    healthy = make_learner(CONFIG)
    workers.strike("", 0)
    complete = healthy.play(CASES)
    assert len(complete) == len(CASES) * CONFIG.report_sets
    struck, before = make_learner(CONFIG), workers.losses
    workers.strike(fault, at)
    metrics = struck.step(CASES)
    assert workers.losses == before + (fault != "slow")
    lost = len(CASES) - int(metrics["sets"]) // CONFIG.report_sets
    assert lost == int(fault != "slow")
    # what was learnt is what a healthy step learns from the very same groups, no more and no less
    workers.strike("", 0)
    again = make_learner(CONFIG)
    workers.strike(fault, at)
    kept = {one.scenario.key for one in again.play(CASES)}
    assert len(kept) == len(CASES) - lost
    workers.strike("", 0)
    healthy.learn([one for one in complete if one.scenario.key in kept])
    for role in ROLES:
        assert same_weights(weights_of(healthy.models[role]), weights_of(struck.models[role]))
    assert struck.step(draw(6)[3:])["sets"] == 3 * CONFIG.report_sets  # and the next step is whole
