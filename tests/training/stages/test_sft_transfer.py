"""SFT that starts from another role's weights: who is first, where the others begin, what it counts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_untrained_run

from emads.commands.stages import order_owners, schedule_tasks, train_stages
from roles.errors import UserError
from training.config.loading import load_config
from training.data.demonstrations import supervised_rows
from training.models.weights import load_weights
from training.runs.run_folder import Run
from training.stages import sft
from training.stages.table import train_stage

RATE = 1e-3
TRANSFER = ("sft.transfer_from=cost", "sft.max_steps=3", "sft.batch_size=2")
ADAMW = ("sft.optimizer=adamw", f"sft.learning_rate={RATE}")


def farthest(run: Run, one: tuple[str, str], other: tuple[str, str]) -> float:
    """The largest difference of a weight between two roles' stages."""
    pairs = zip(*(load_weights(run, *place)[0].parameters() for place in (one, other)), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def test_a_role_starts_from_the_weights_of_the_first_which_is_trained_before_it(tmp_path: Path) -> None:
    run = Run.open(make_untrained_run(tmp_path / "run", *TRANSFER, *ADAMW))
    train_stages(run, "sft", ("cto",))
    assert run.is_done("sft/cost")
    assert run.is_done("sft/cto")
    assert not run.is_done("sft/risk")
    assert farthest(run, ("sft", "cost"), ("base", "cost")) > 0
    assert 0 < farthest(run, ("sft", "cto"), ("sft", "cost")) < farthest(run, ("sft", "cto"), ("base", "cto"))


def test_tasks_of_the_others_wait_for_the_first(tmp_path: Path) -> None:
    run = Run.open(make_untrained_run(tmp_path / "run", *TRANSFER))
    tasks = {task.name: task for task in schedule_tasks(run)}
    assert tasks["sft/cost"].after == ("base",)
    assert all(tasks[f"sft/{role}"].after == ("sft/cost",) for role in ("cto", "coo", "risk", "reconcile"))
    assert order_owners(run)[:2] == ["cost", "reconcile"]


@pytest.mark.parametrize(("steps", "per_log"), [(3, 1), (85, 2)])
def test_its_progress_counts_every_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, per_log: int
) -> None:
    settings = (f"sft.max_steps={steps}", "sft.batch_size=1", *ADAMW)
    run = Run.open(make_untrained_run(tmp_path / "run", *settings))
    counted: list[float] = []
    monkeypatch.setattr("training.stages.sft.report_progress", lambda units, **_: counted.append(units))
    train_stage(run.path, "sft", "cto")
    whole, rest = divmod(steps, per_log)
    assert counted == [per_log] * whole
    assert rest == steps - sum(counted)


def test_a_role_goes_on_from_another_runs_weights_with_further_demonstrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Adam step moves a weight by its rate; the demonstrations are those behind the first run's six."""
    few = ("sft.max_steps=3", "sft.batch_size=2")
    first = Run.open(make_untrained_run(tmp_path / "first", *few, *ADAMW))
    train_stages(first, "sft", ("cost",))
    drawn: list[tuple[int, int]] = []

    def note(*given: Any, num_rows: int, first_row: int, **options: Any) -> Any:
        drawn.append((first_row, num_rows))
        return supervised_rows(*given, num_rows=num_rows, first_row=first_row, **options)

    monkeypatch.setattr("training.stages.sft.supervised_rows", note)
    more = (f"sft.start_from={first.path}", "sft.max_steps=1")
    second = Run.open(make_untrained_run(tmp_path / "second", *more, "sft.batch_size=2", *ADAMW))
    train_stage(second.path, "sft", "cost")
    assert (6, 2) in drawn
    models = [load_weights(run, "sft", "cost")[0] for run in (first, second)]
    pairs = zip(*(model.parameters() for model in models), strict=True)
    assert 0 < max(float((a - b).detach().abs().max()) for a, b in pairs) < 1.01 * RATE
    with pytest.raises(UserError, match=r"no sound sft weights in .*first"):
        train_stage(second.path, "sft", "risk")


def test_a_run_of_another_model_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    first = make_untrained_run(tmp_path / "first", "model.adapter=lora")
    begun = f"sft.start_from={first}"
    second = make_untrained_run(tmp_path / "second", begun)
    with pytest.raises(UserError, match=r"its model is another one.*adapter 'lora' there, 'none' here"):
        train_stage(second, "sft", "cost")
    third = make_untrained_run(tmp_path / "third", begun, "model.adapter=lora", "seed=1")
    with pytest.raises(UserError, match="its adapters are of another base"):
        train_stage(third, "sft", "cost")
    fourth = make_untrained_run(tmp_path / "fourth", "sft.start_from=/nonexistent")
    with pytest.raises(UserError, match=r"^sft\.start_from /nonexistent: no run in /nonexistent"):
        train_stage(fourth, "sft", "cost")


def test_training_goes_on_in_the_precision_of_the_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Run.open(make_untrained_run(tmp_path / "first", "sft.max_steps=1", "model.adapter=lora"))
    train_stages(first, "sft", ("cost",))
    models: list[Any] = []
    monkeypatch.setattr("training.stages.sft.train_on_rows", lambda *given, **_: models.append(given[3]))
    begun = ("model.adapter=lora", f"sft.start_from={first.path}", "model.dtype=bfloat16")
    train_stage(make_untrained_run(tmp_path / "second", *begun), "sft", "cost")
    (model,) = models
    kinds = {"lora_" in name: parameter.dtype for name, parameter in model.named_parameters()}
    assert kinds == {False: torch.bfloat16, True: torch.float32}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sft.transfer_from=cto", "sft.start_from=runs/a"], "leave one out"),
        (["sft.transfer_from=ctoo"], "did you mean 'cto'"),
        (["sft.transfer_from=cto", "model.adapter=lora", "model.adapter_sharing=shared"], "leave it out"),
        (["sft.max_steps=900000"], "sft.max_steps = 900000"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, settings)


def test_a_first_role_that_is_itself_asked_for_is_trained_once(tmp_path: Path) -> None:
    run = Run.open(make_untrained_run(tmp_path / "run", *TRANSFER, *ADAMW))
    train_stages(run, "sft", ("cost",))
    before = [p.clone() for p in load_weights(run, "sft", "cost")[0].parameters()]
    train_stages(run, "sft", ("cost", "risk"))
    after = list(load_weights(run, "sft", "cost")[0].parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert run.is_done("sft/risk")


def test_drawing_demonstrations_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, float]] = []
    monkeypatch.setattr(sft, "report_progress", lambda units, **metrics: told.append(metrics))
    rows: list[Any] = list(range(2 * sft.ROWS_PER_REPORT + 1))
    assert list(sft.report_drawn(rows, 5)) == rows
    assert told == [{"demonstrations": 5 * sft.ROWS_PER_REPORT}, {"demonstrations": 10 * sft.ROWS_PER_REPORT}]
