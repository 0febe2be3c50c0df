"""Rollouts that run ahead of learning: as stale as it says, repeatable, resumed exactly."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from joint_learning import (
    WEIGHTS,
    Engines,
    change,
    draw,
    make_learner,
)
from tiny_models import same_weights, small_model, tiny_chat, weights_of

from roles.registry import ROLES
from scenarios.team import TeamScenario
from training.learner.fsdp import shard_model, whole
from training.models.adapters import role_weights
from training.rl.loop import RLLearner
from training.rl.overlap import OverlappedLearner, copy_models
from training.rl.team.algorithm import make_team_learner


def cases_of(step: int) -> list[TeamScenario]:
    return draw(6)[2 * step : 2 * step + 2]


def run_overlapped(learner: RLLearner, steps: int, max_steps: int = 3) -> tuple[Any, list[float]]:
    trainer = OverlappedLearner(learner, cases_of, max_steps)
    staleness = [trainer.step().get("staleness", 0.0) for _ in range(steps)]
    return trainer, staleness


def test_overlap_is_as_stale_as_it_says_and_repeatable(scripted: Engines) -> None:
    config = change(max_staleness=1, report_sets=2, loss__importance="call")
    first, second, plain = make_learner(config), make_learner(config), make_learner(config)
    trainer, staleness = run_overlapped(first, 3)
    trainer.close()
    assert staleness == [0.0, 1.0, 1.0]
    versions = [{c.policy_version.split("@")[1] for _, c in engine.calls} for engine in scripted]
    assert versions == [{"0"}, {"0"}, {"1"}]
    run_overlapped(second, 3)[0].close()
    for step in range(3):
        plain.step(cases_of(step))
    for role in ROLES:
        assert same_weights(weights_of(first.models[role]), weights_of(second.models[role]))
        assert not same_weights(weights_of(first.models[role]), weights_of(plain.models[role]))


@pytest.mark.slow
def test_a_sharded_learner_may_have_rollouts_ahead_of_it(scripted: Engines, tmp_path: Path) -> None:
    """On one rank of FSDP2: plays run on whole copies, and the weights become those without sharding."""
    config = change(max_staleness=1, report_sets=2, loss__importance="call")
    plain = make_learner(config)
    run_overlapped(plain, 2)[0].close()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        models = {role: small_model(place) for place, role in enumerate(ROLES)}
        actors = copy_models(models)
        for model in models.values():
            shard_model(model)
        sharded = make_team_learner(
            models, config, chat=tiny_chat(), reward_weights=WEIGHTS, seed=0, actors=actors
        )
        run_overlapped(sharded, 2)[0].close()
        for role in ROLES:
            for name, weight in role_weights(sharded.models[role], role).items():
                torch.testing.assert_close(whole(weight), dict(plain.models[role].named_parameters())[name])
    finally:
        dist.destroy_process_group()


def test_without_staleness_overlap_is_the_plain_learner(scripted: Engines) -> None:
    one, other = (make_learner(change(report_sets=2)) for _ in range(2))
    run_overlapped(one, 2)[0].close()
    for step in range(2):
        other.step(cases_of(step))
    assert all(same_weights(weights_of(one.models[r]), weights_of(other.models[r])) for r in ROLES)


def test_overlapped_training_goes_on_exactly(scripted: Engines) -> None:
    config = change(max_staleness=1, report_sets=2, loss__importance="token")
    whole, part, resumed = make_learner(config), make_learner(config), make_learner(config, seed=0)
    run_overlapped(whole, 3)[0].close()
    trainer, _ = run_overlapped(part, 2)
    state = trainer.state()
    trainer.close()
    again = OverlappedLearner(resumed, cases_of, 3)
    again.load_state(state)
    again.step()
    again.close()
    for role in ROLES:
        assert same_weights(weights_of(whole.models[role]), weights_of(resumed.models[role]))
