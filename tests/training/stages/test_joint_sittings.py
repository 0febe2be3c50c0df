"""Joint training in several sittings: ended at its newest checkpoint, gone on with in another run."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from test_rollout_hosts import make_run
from tiny_models import same_weights, weights_of

from emads.cli import main
from reliability.joint.rank_stage import engine_maker
from roles.errors import UserError
from roles.registry import ROLES
from training.models.weights import find_weights, load_weights
from training.rl import loop
from training.rl.loop import RLLearner
from training.rl.team.algorithm import DriftWatch
from training.runs.run_folder import Run
from training.stages.from_config import first_joint_case, joint_cases, past_own_scores
from training.stages.rl import open_host
from training.stages.table import take_over, train_stage


@pytest.mark.parametrize("extra", [(), ("marl.max_staleness=1", "marl.loss.importance=token")])
def test_the_newest_checkpoint_becomes_the_result_and_nothing_is_played(
    tmp_path: Path,
    extra: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ("marl.guards.validate_every=0", *extra)
    run, short = (
        make_run(tmp_path / "run", *settings),
        make_run(tmp_path / "short", *settings, "marl.max_steps=1"),
    )
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(run.path))
    train_stage(run.path, "marl", max_steps=1)
    train_stage(short.path, "marl")
    played: list[object] = []
    monkeypatch.setattr(RLLearner, "play_here", lambda *arguments: played.append(arguments))
    for role in ROLES:
        run.mark_done(f"grpo/{role}", {"steps": 1})
    assert main(["train", "marl", str(run.path), "--end-here"]) == 0
    assert "joint training ended after step 1 of 2\n" in capsys.readouterr().out
    assert not played
    assert run.read_payload("marl")["steps"] == 1
    for role in ROLES:
        ended, planned = (weights_of(load_weights(one, "marl", role)[0]) for one in (run, short))
        assert same_weights(ended, planned)
        assert find_weights(run, "marl", role).name == "step_1"
    assert not (run.path / "checkpoints" / "unfinished" / "marl").exists()
    assert len(run.read_metrics("marl")) == 1
    for donor in (run, short):  # with its settings, other weights would be made in place of the run's
        taken = take_over(donor, Run.create(tmp_path / f"of-{donor.path.name}", donor.config))
        assert ("marl" in taken) == (donor is short)
    run.mark_done("marl", {})  # as an earlier version left it
    assert main(["train", "marl", str(run.path), "--end-here"]) == 0
    assert "joint training ended after step 2 of 2\n" in capsys.readouterr().out


def test_a_stage_without_a_step_cannot_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(
        UserError, match=r"no step of joint training is saved in .*; `emads train marl .*` begins it"
    ):
        train_stage(run.path, "marl", ends_here=True)
    assert not run.is_done("marl")
    for role in ROLES:
        run.mark_done(f"grpo/{role}", {})
    assert main(["train", "marl", str(run.path), "--end-here"]) == 2
    assert "no step of joint training" in capsys.readouterr().err


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose joint training is done; runs that go on from it play with its engine."""
    run = make_run(tmp_path / "first")
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(run.path))
    train_stage(run.path, "marl")
    return run


def assert_a_host_holds(run: Run, sources: Mapping[str, tuple[Run, str]]) -> None:
    """A rollout host of the run begins with these runs' weights after these stages, role by role."""
    with open_host(run.path, ("grpo", None)) as host:
        for role in ROLES:
            held = weights_of(load_weights(*sources[role], role)[0])
            assert same_weights(weights_of(host.models[role]), held)


def test_joint_training_goes_on_from_another_runs_team_and_behind_its_cases(
    first: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Adam step moves a weight by its rate, so the second run began where the first one ended."""
    more = (f"marl.start_from={first.path}", "marl.max_steps=1")
    second = make_run(tmp_path / "second", "marl.guards.validate_every=0", *more)
    begin = first_joint_case(second)
    assert joint_cases(second.config, 0, begin) == joint_cases(first.config, 2)
    assert_a_host_holds(second, dict.fromkeys(ROLES, (first, "marl")))
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(second.path))
    train_stage(second.path, "marl")
    third = make_run(tmp_path / "third", f"marl.start_from={second.path}")
    assert first_joint_case(third) == begin + second.config.marl.scenarios_per_step
    pairs = [
        (weights_of(load_weights(first, "marl", role)[0]), weights_of(load_weights(second, "marl", role)[0]))
        for role in ROLES
    ]
    moved = [max(float((a[name] - b[name]).abs().max()) for name in a) for a, b in pairs]
    assert all(0 < one < 1.01 * second.config.marl.learning_rate for one in moved), moved


def test_own_scores_are_compared_with_those_of_the_runs_that_the_weights_come_from(
    first: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a role could fall for ever, in runs that are each too short for the alarm."""
    logged = {
        role: [row.metrics[f"own_score/{role}"] for row in first.read_metrics("marl")] for role in ROLES
    }
    first.log("marl", 3, {f"own_score/{role}": 1.5 for role in ROLES})
    second = make_run(tmp_path / "second", f"marl.start_from={first.path}")
    second.log("marl", 1, {f"own_score/{role}": 1.25 for role in ROLES})
    run = make_run(tmp_path / "run", f"marl.start_from={second.path}")
    assert past_own_scores(run, "cto") == [*logged["cto"], 1.5, 1.25]
    assert past_own_scores(second, "coo") == [*logged["coo"], 1.5]
    assert past_own_scores(first, "cto") == []
    monkeypatch.setattr("training.rl.team.algorithm.DriftWatch", partial(DriftWatch, window=2))
    third = make_run(tmp_path / "third", f"marl.start_from={first.path}")
    monkeypatch.setattr(loop, "TransformersEngine", engine_maker(third.path))
    train_stage(third.path, "marl", max_steps=1)
    step = third.read_metrics("marl")[0].metrics
    assert step["drift/cto"] == pytest.approx((1.5 + step["own_score/cto"] - sum(logged["cto"])) / 2)


def test_a_team_of_another_model_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", "model.hidden_size=64")
    run = make_run(tmp_path / "run", f"marl.start_from={other.path}")
    with pytest.raises(
        UserError, match=r"marl.start_from .*other: its model is another one \(hidden_size 64 there"
    ):
        train_stage(run.path, "marl")
