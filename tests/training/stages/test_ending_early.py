"""A joint stage that is ended at its newest checkpoint: those weights become its result."""

from pathlib import Path

import pytest
from test_rollout_hosts import make_run
from tiny_models import same_weights, weights_of

from emads.cli import main
from emads.reliability.joint.rank_stage import engine_maker
from roles.errors import UserError
from roles.registry import ROLES
from training.joint import marl
from training.joint.marl import JointLearner
from training.models.weights import find_weights, load_weights
from training.runs.run_folder import Run
from training.stages.marl import train_marl
from training.stages.take_over import take_over


@pytest.mark.parametrize("extra", [(), ("marl.max_staleness=1", "marl.loss.importance=token")])
def test_the_newest_checkpoint_becomes_the_result_and_nothing_is_played(
    tmp_path: Path, extra: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("marl.guards.validate_every=0", *extra)
    run, short = (
        make_run(tmp_path / "run", *settings),
        make_run(tmp_path / "short", *settings, "marl.max_steps=1"),
    )
    monkeypatch.setattr(marl, "TransformersEngine", engine_maker(run.path))
    train_marl(run.path, max_steps=1)
    train_marl(short.path)
    played: list[object] = []
    monkeypatch.setattr(JointLearner, "play_here", lambda *arguments: played.append(arguments))
    train_marl(run.path, ends_here=True)
    assert not played
    assert run.read_payload("marl")["steps"] == 1
    for role in ROLES:
        ended, planned = (weights_of(load_weights(one, "marl", role)[0]) for one in (run, short))
        assert same_weights(ended, planned)
        assert find_weights(run, "marl", role).name == "step_1"
    assert not (run.path / "checkpoints" / "unfinished" / "marl").exists()
    assert len(run.read_metrics("marl")) == 1
    for donor, taken in ((run, []), (short, ["marl"])):  # with its settings, other weights would be made
        assert take_over(donor, Run.create(tmp_path / f"of-{donor.path.name}", donor.config)) == taken


def test_a_stage_without_a_step_cannot_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(
        UserError, match=r"no step of joint training is saved in .*; `emads train marl .*` begins it"
    ):
        train_marl(run.path, ends_here=True)
    assert not run.is_done("marl")
    for role in ROLES:
        run.mark_done(f"grpo/{role}", {})
    assert main(["train", "marl", str(run.path), "--end-here"]) == 2
    assert "no step of joint training" in capsys.readouterr().err
