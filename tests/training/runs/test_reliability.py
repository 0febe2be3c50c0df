"""R1-R5, S1, D3 at their pr counts: processes killed, files damaged, disks broken, strangers' artefacts."""

import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.reliability import damage, victims
from benchmarks.reliability.__main__ import main
from benchmarks.reliability.artefacts import PROBES, Payload
from benchmarks.reliability.artefacts_inputs import INPUT_PROBES
from benchmarks.reliability.batteries import Bench
from training.runs import checkpoints
from training.runs.faults import Fault, parse_faults
from training.runs.run_folder import Run
from training.runs.run_errors import DIVERGED, OUT_OF_MEMORY


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """In memory where there is such a folder: syncing thousands of files to a busy disk takes minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="emads-", dir=memory if memory.is_dir() else None) as folder:
        yield Bench(Path(folder) / "pr", "pr")


def run_battery(bench: Bench, name: str) -> list[dict[str, Any]]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        main(["--tier", "pr", "--only", name, "--work", str(bench.folder.parent)])
    lines = (bench.folder / "results.jsonl").read_text().splitlines()
    results = [result for result in map(json.loads, lines) if result["id"].startswith(f"{name}/")]
    assert f"| {name} |" in out.getvalue()
    return results


@pytest.mark.parametrize("name", ["R1", "R2", "R3"])
def test_a_killed_stage_ends_like_an_undisturbed_one(bench: Bench, name: str) -> None:
    results = run_battery(bench, name)
    assert [result["detail"] for result in results] == [""] * 4
    assert [result["group"] for result in results].count("inside a save") == 2


def test_every_damaged_checkpoint_is_set_aside(bench: Bench) -> None:
    results = run_battery(bench, "R4")
    assert len(results) > 60
    assert [result["id"] for result in results if not result["ok"]] == []


def test_a_broken_disk_leaves_the_last_checkpoint(bench: Bench) -> None:
    assert [result["detail"] for result in run_battery(bench, "R5")] == [""] * 3


def test_other_processes_and_hash_seeds_make_the_same_weights(bench: Bench) -> None:
    assert [result["detail"] for result in run_battery(bench, "D3")] == [""]


def test_a_killed_rank_ends_like_an_undisturbed_run(bench: Bench) -> None:
    assert [result["detail"] for result in run_battery(bench, "R10")] == [""]


def test_strangers_artefacts_run_nothing(bench: Bench) -> None:
    results = run_battery(bench, "S1")
    assert len(results) == len(PROBES | INPUT_PROBES) >= 40
    assert [(result["id"], result["detail"]) for result in results if not result["ok"]] == []


def test_the_payload_would_run_if_it_were_unpickled(tmp_path: Path) -> None:
    function, arguments = Payload(tmp_path / "marker").__reduce__()
    function(*arguments)
    assert (tmp_path / "marker").exists()


def test_a_state_that_is_forgotten_shows_in_the_digest(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The battery can fail: without the optimizer's state a resumed run ends elsewhere."""
    plain = bench.undisturbed("grpo")
    monkeypatch.setattr(
        "training.roles.resumable_trainer.ResumableTrainer._load_optimizer_and_scheduler", lambda self, path: None
    )
    fault = Fault(kind="kill", place="step", count=5, stage=None)
    folder = bench.fresh("forgetful")
    shutil.copytree(plain.source, folder)
    assert victims.play(folder, "grpo", [fault]) == 9
    assert victims.play(folder, "grpo") == 0
    assert "state/optimizer.safetensors" in victims.differences(plain.digest, victims.digest(folder, "grpo"))


def test_mid_window_nothing_is_played_again(bench: Bench) -> None:
    """A window is 4 steps (2 slices, twice); a kill inside it must not cost a fifth batch of rollouts."""
    plain = bench.undisturbed("grpo")
    folder = bench.fresh("window")
    shutil.copytree(plain.source, folder)
    victims.play(folder, "grpo", [Fault(kind="kill", place="step", count=4, stage=None)])
    assert victims.play(folder, "grpo") == 0
    place = folder / "checkpoints" / "unfinished" / victims.STAGES["grpo"] / "step_8"
    assert json.loads((place / "part-rollouts.json").read_text())["num_calls"] == 2
    assert victims.differences(plain.digest, victims.digest(folder, "grpo")) == []


def test_a_loader_that_trusts_sizes_alone_is_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The battery can fail: without the comparison of digests a flipped bit is loaded."""
    ours, theirs = bench.folder / "ours-grpo", bench.folder / "theirs-grpo"
    if not ours.exists():
        damage.interrupt(bench.source("grpo"), ours, "grpo")
        damage.interrupt(bench.source("grpo", foreign=True), theirs, "grpo")
    real = checkpoints.verify

    def trust(path: Path, **options: Any) -> Any:
        try:
            return real(path, **options)
        except checkpoints.DamagedCheckpointError as error:
            if "differs from its sha256" in str(error):
                return None
            raise

    monkeypatch.setattr(checkpoints, "verify", trust)
    found = list(damage.damage_all(ours, theirs, bench.folder / "trusting", "grpo", "x"))
    silent = [one.name for one in found if not one.fell_back]
    assert any("bit" in name for name in silent)
    assert not any("half" in name or "missing" in name for name in silent)


def test_what_was_logged_after_the_checkpoint_is_logged_once(bench: Bench) -> None:
    plain = bench.undisturbed("sft")
    folder = bench.fresh("logged")
    shutil.copytree(plain.source, folder)
    victims.play(folder, "sft", [Fault(kind="kill", place="step", count=12, stage=None)])
    victims.play(folder, "sft")
    rows = Run.open(folder).read_metrics(victims.STAGES["sft"])
    assert len(rows) == len({row.step for row in rows}) > 0


def play_copy(bench: Bench, name: str, *faults: str) -> tuple[Path, int, str]:
    """The SFT stage with planned faults: folder, exit status, what it printed."""
    folder = bench.fresh(name)
    shutil.copytree(bench.undisturbed("sft").source, folder)
    status = victims.play(folder, "sft", parse_faults(faults))
    return folder, os.waitstatus_to_exitcode(status), victims.read_log(folder)


def test_a_loss_that_is_no_number_costs_its_step_and_nothing_else(bench: Bench) -> None:
    folder, status, _ = play_copy(bench, "nan", "nan@loss:4", "inf@loss:7")
    assert status == 0
    assert [row.metrics.get("skipped_steps") for row in Run.open(folder).read_metrics("sft/cto")] == [2.0]
    (final,) = (folder / "checkpoints" / "sft" / "cto").iterdir()
    weights = load_file(final / "model.safetensors")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def test_many_such_losses_in_a_row_end_the_run_with_their_own_status(bench: Bench) -> None:
    folder, status, printed = play_copy(bench, "diverged", *(f"nan@loss:{step}" for step in range(3, 8)))
    assert status == DIVERGED
    assert "step 7: loss or gradient was not finite in 5 steps in a row" in printed
    assert not (folder / "stages" / "sft" / "cto.json").exists()
    _, status, _ = play_copy(bench, "recovered", *(f"nan@loss:{step}" for step in (3, 4, 5, 6, 8)))
    assert status == 0


def test_out_of_memory_says_what_to_lower_and_can_be_resumed(bench: Bench) -> None:
    folder, status, printed = play_copy(bench, "memory", "oom@step:5")
    assert status == OUT_OF_MEMORY
    assert "out of memory in sft/cto" in printed
    assert "lower sft.micro_batch_size" in printed
    assert victims.play(folder, "sft") == 0
    assert victims.differences(bench.undisturbed("sft").digest, victims.digest(folder, "sft")) == []


def test_a_gradient_that_is_no_number_leaves_that_role_as_it_is(bench: Bench) -> None:
    folder = bench.fresh("nan-marl")
    shutil.copytree(bench.undisturbed("marl").source, folder)
    assert victims.play(folder, "marl", parse_faults(["nan@loss:1"])) == 0
    first = Run.open(folder).read_metrics("marl")[0].metrics
    norms = [value for name, value in first.items() if name.startswith("grad_norm/")]
    assert sum(math.isnan(value) for value in norms) == 1
    for file in (folder / "checkpoints" / "marl").rglob("model.safetensors"):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in load_file(file).values())
