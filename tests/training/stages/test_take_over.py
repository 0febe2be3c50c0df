"""Stages that another run finished: what is taken over, what is not, and what comes along."""

from pathlib import Path

import pytest
import torch
from command_line import fail
from tiny_models import make_untrained_run

from emads.cli import main
from emads.commands.stages import train_stages
from roles.errors import UserError
from training.models.weights import load_weights
from training.runs.run_folder import Run
from training.stages.table import take_over

SFT = ("sft.transfer_from=cost", "sft.max_steps=2", "sft.batch_size=2", "sft.optimizer=adamw")
TRAINED = (*SFT, "model.adapter=lora", "model.lora_rank=4", "model.lora_alpha=32")


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.open(make_untrained_run(tmp_path_factory.mktemp("donor") / "run", *TRAINED))
    train_stages(run, "sft", ("cto",))
    return run


def make_run(path: Path, *settings: str) -> Run:
    """A run without any stage done; later settings win."""
    made = Run.open(make_untrained_run(path / "made", *TRAINED, *settings))
    return Run.create(path / "run", made.config)


def weights(run: Run, role: str) -> list[torch.Tensor]:
    return [one.detach() for one in load_weights(run, "sft", role)[0].parameters()]


def test_stages_of_equal_settings_come_with_weights_and_metrics(donor: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path, "grpo.learning_rate=1e-5", "marl.max_steps=3")
    assert take_over(donor, run) == ["base", "sft/cto", "sft/cost"]
    for role in ("cto", "cost"):
        assert all(torch.equal(*pair) for pair in zip(weights(run, role), weights(donor, role), strict=True))
    assert [(row.step, row.metrics) for row in run.read_metrics("sft/cto")] == [
        (row.step, row.metrics) for row in donor.read_metrics("sft/cto")
    ]
    assert run.read_payload("sft/cto")["taken_from"] == str(donor.path)
    assert take_over(donor, run) == []  # nothing twice
    train_stages(run, "sft", ("risk",))  # goes on from what was taken
    assert run.is_done("sft/risk")


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        (["sft.max_steps=3"], ["base"]),
        (["sft.learning_rate=1e-3"], ["base"]),
        (["grpo.max_steps=2", "sft.micro_batch_size=1"], ["base", "sft/cto", "sft/cost"]),
    ],
)
def test_only_what_the_settings_would_make_alike_is_taken(
    donor: Run, tmp_path: Path, settings: list[str], taken: list[str]
) -> None:
    assert take_over(donor, make_run(tmp_path, *settings)) == taken


@pytest.mark.parametrize(("settings", "are_taken"), [((), True), (("evaluation.temperature=0.5",), False)])
def test_sealed_plays_come_along_also_of_an_evaluation_that_was_stopped(
    donor: Run, tmp_path: Path, settings: tuple[str, ...], are_taken: bool
) -> None:
    plays = donor.path / "scores" / "outcomes" / "sft-cto.sampled.jsonl"
    plays.parent.mkdir(parents=True, exist_ok=True)
    plays.write_text('{"key": "cto/test/0/0/1"}\n')
    run = make_run(tmp_path, *settings)
    take_over(donor, run)
    taken = run.path / "scores" / "outcomes" / plays.name
    assert (taken.read_text() if taken.is_file() else None) == (plays.read_text() if are_taken else None)


def test_runs_of_other_scenarios_and_the_run_itself_are_refused(
    donor: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "data.seed=5")
    with pytest.raises(UserError, match="seed, model or data"):
        take_over(donor, run)
    assert not run.is_done("base")
    message = fail(capsys, "train", "base", run.path, "--resume", "--take-from", run.path)
    assert "is the run itself" in message
    assert "no run in" in fail(
        capsys, "train", "base", run.path, "--resume", "--take-from", tmp_path / "none"
    )


def test_the_command_says_what_it_took(
    donor: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path)
    assert main(["train", "base", str(run.path), "--resume", "--take-from", str(donor.path)]) == 0
    assert f"taken over from {donor.path}: base, sft/cto, sft/cost" in capsys.readouterr().out
