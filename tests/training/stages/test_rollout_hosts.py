"""The joint stage on rollout hosts in processes: the weights of no hosts, and the run's whole life."""

from pathlib import Path

import pytest
from rank_launch import fork_hosts
from test_marl_on_ranks import SETTINGS
from tiny_models import same_weights, small_model, tiny_tokenizer, weights_of

from reliability.joint.rank_stage import engine_maker, open_scripted_host
from roles.errors import UserError
from roles.registry import ROLES
from training.config.loading import load_config
from training.learner.ranks import ONE_RANK
from training.models.weights import load_weights, save_weights
from training.rl import loop
from training.runs.run_folder import Run
from training.stages.rl import open_hosts
from training.stages.table import train_stage


def make_run(path: Path, *settings: str) -> Run:
    run = Run.create(path, load_config(None, (*SETTINGS, "rollouts.block_size=2", *settings)))
    for place, role in enumerate(ROLES):
        save_weights(run, "grpo", role, small_model(place), tiny_tokenizer(), step=1)
    return run


def check_same_learning(alone: Run, spread: Run) -> None:
    """Both runs learnt something in the joint stage, and the same to the bit."""
    for role in ROLES:
        start, played, again = (
            weights_of(load_weights(run, stage, role)[0])
            for run, stage in ((alone, "grpo"), (alone, "marl"), (spread, "marl"))
        )
        assert not same_weights(start, played), f"{role} learnt nothing"
        assert same_weights(again, played)


@pytest.mark.process
@pytest.mark.parametrize(
    "extra", [(), ("marl.max_staleness=1", "marl.loss.importance=token", "marl.max_steps=3")]
)
def test_hosts_give_the_weights_of_no_hosts_also_after_a_stop(
    tmp_path: Path, extra: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if extra:  # the others are started as they are in use
        fork_hosts(monkeypatch)
    monkeypatch.setattr("training.stages.rl.open_host", open_scripted_host)
    alone, spread = (
        make_run(tmp_path / "alone", *extra),
        make_run(tmp_path / "spread", *extra, "rollouts.hosts=2"),
    )
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(alone.path))
    train_stage(alone.path, "marl")
    train_stage(spread.path, "marl", max_steps=1)
    assert not spread.is_done("marl")
    train_stage(spread.path, "marl")
    check_same_learning(alone, spread)
    rewards = [[row.metrics["team_reward"] for row in run.read_metrics("marl")] for run in (alone, spread)]
    assert rewards[0] == rewards[1]


def test_hosts_without_blocks_are_refused() -> None:
    with pytest.raises(UserError, match=r"rollouts.hosts is 2, but all 3 cases of a step go to one .* to 2"):
        load_config(None, (*SETTINGS, "rollouts.hosts=2"))


def test_no_more_hosts_are_started_than_have_work(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "marl.scenarios_per_step=2", "rollouts.hosts=4")
    with open_hosts(run, ONE_RANK, ("grpo", None)) as pool:
        assert pool is None
