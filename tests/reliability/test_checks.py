"""R1-R5, S1, D3 at their pr counts: processes killed, files damaged, disks broken, strangers' artefacts."""

import io
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from planned_faults import Fault, parse_faults
from safetensors.torch import load_file

from reliability.__main__ import main
from reliability.malicious.input_files import PROBES
from reliability.malicious.probes import Payload
from reliability.stages import checkpoint_damage, tiny_runs
from reliability.stages.prepared_runs import PreparedRuns
from training.runs import checkpoints
from training.runs.resume import StageCheckpoints
from training.runs.run_errors import DIVERGED, OUT_OF_MEMORY
from training.runs.run_folder import Run

REPLACED = ("score_episode", "episode_reward", "TOKENIZER_SCENARIOS")


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedRuns]:
    """In memory where there is such a folder: syncing thousands of files to a busy disk takes minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="emads-", dir=memory if memory.is_dir() else None) as folder:
        yield PreparedRuns(Path(folder) / "pr", "pr")
    tiny_runs.put_back()


def test_what_the_checks_replace_is_put_back() -> None:
    def look() -> list[Any]:
        places = [module for name, module in sorted(sys.modules.items()) if name.startswith("training.")]
        found = [vars(place).get(name) for place in places for name in REPLACED]
        return [*found, StageCheckpoints.clear, torch.get_num_threads()]

    before = look()
    tiny_runs.set_up()
    during = look()
    tiny_runs.set_up()
    tiny_runs.put_back()
    assert before == look() != during


def run_check(prepared: PreparedRuns, name: str) -> list[dict[str, Any]]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        main(["--tier", "pr", "--only", name, "--work", str(prepared.folder.parent)])
    lines = (prepared.folder / "results.jsonl").read_text().splitlines()
    results = [result for result in map(json.loads, lines) if result["id"].startswith(f"{name}/")]
    assert f"| {name} |" in out.getvalue()
    return results


@pytest.mark.process
@pytest.mark.parametrize("name", ["R1", "R2", "R3"])
def test_a_killed_stage_ends_like_an_undisturbed_one(prepared: PreparedRuns, name: str) -> None:
    results = run_check(prepared, name)
    assert [result["detail"] for result in results] == [""] * 4
    assert [result["group"] for result in results].count("inside a save") == 2


@pytest.mark.slow
def test_every_damaged_checkpoint_is_set_aside(prepared: PreparedRuns) -> None:
    results = run_check(prepared, "R4")
    damages: dict[str, set[str]] = {}
    for result in results:
        place, _, damage = result["id"].removeprefix("R4/grpo: ").partition(": ")
        damages.setdefault(place, set()).add(damage.split()[0])
    of_folder, of_manifest = damages.pop("folder"), damages.pop("manifest")
    assert {"MANIFEST.json", "random.json"} < set(damages)
    assert all({"missing", "empty", "half", "bit"} <= of_file for of_file in damages.values())
    assert (of_folder, of_manifest) == ({"other", "wrong", "no", "extra", "file"}, {"of"})
    assert [result["id"] for result in results if not result["ok"]] == []


@pytest.mark.slow
def test_a_broken_disk_leaves_the_last_checkpoint(prepared: PreparedRuns) -> None:
    assert [result["detail"] for result in run_check(prepared, "R5")] == [""] * 3


@pytest.mark.process
def test_other_processes_and_hash_seeds_make_the_same_weights(prepared: PreparedRuns) -> None:
    assert [result["detail"] for result in run_check(prepared, "D3")] == [""]


@pytest.mark.process
def test_a_killed_rank_ends_like_an_undisturbed_run(prepared: PreparedRuns) -> None:
    assert [result["detail"] for result in run_check(prepared, "R10")] == [""]


def test_strangers_artefacts_run_nothing(prepared: PreparedRuns) -> None:
    results = run_check(prepared, "S1")
    assert len(results) == len(PROBES) >= 40
    assert [(result["id"], result["detail"]) for result in results if not result["ok"]] == []


def test_the_payload_would_run_if_it_were_unpickled(tmp_path: Path) -> None:
    function, arguments = Payload(tmp_path / "marker").__reduce__()
    function(*arguments)
    assert (tmp_path / "marker").exists()


@pytest.mark.slow
def test_a_state_that_is_forgotten_shows_in_the_digest(
    prepared: PreparedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: without the optimizer's state a resumed run ends elsewhere."""
    plain = prepared.undisturbed("grpo")
    monkeypatch.setattr(
        "training.rl.update.load_optimizer",
        lambda optimizer, stored: None,
    )
    fault = Fault(kind="kill", place="step", count=5, stage=None)
    folder = prepared.fresh("forgetful")
    shutil.copytree(plain.source, folder)
    assert tiny_runs.train_in_fork(folder, "grpo", [fault]) == 9
    assert tiny_runs.train_in_fork(folder, "grpo") == 0
    assert "state/learner.safetensors" in tiny_runs.differences(
        plain.digest, tiny_runs.digest(folder, "grpo")
    )


@pytest.mark.slow
def test_a_loader_that_trusts_sizes_alone_is_caught(
    prepared: PreparedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: without the comparison of digests a flipped bit is loaded."""
    ours, theirs = prepared.folder / "ours-grpo", prepared.folder / "theirs-grpo"
    if not ours.exists():
        checkpoint_damage.interrupt(prepared.source("grpo"), ours, "grpo")
        checkpoint_damage.interrupt(prepared.source("grpo", foreign=True), theirs, "grpo")
    real = checkpoints.verify

    def trust(path: Path, **options: Any) -> Any:
        try:
            return real(path, **options)
        except checkpoints.DamagedCheckpointError as error:
            if "differs from its sha256" in str(error):
                return None
            raise

    monkeypatch.setattr(checkpoints, "verify", trust)
    found = list(checkpoint_damage.damage_all(ours, theirs, prepared.folder / "trusting", "grpo", "x"))
    silent = [one.name for one in found if not one.fell_back]
    assert any("bit" in name for name in silent)
    assert not any("half" in name or "missing" in name for name in silent)


@pytest.mark.slow
def test_what_was_logged_after_the_checkpoint_is_logged_once(prepared: PreparedRuns) -> None:
    plain = prepared.undisturbed("sft")
    folder = prepared.fresh("logged")
    shutil.copytree(plain.source, folder)
    tiny_runs.train_in_fork(folder, "sft", [Fault(kind="kill", place="step", count=12, stage=None)])
    tiny_runs.train_in_fork(folder, "sft")
    rows = Run.open(folder).read_metrics(tiny_runs.STAGES["sft"])
    assert len(rows) == len({row.step for row in rows}) > 0


def play_copy(prepared: PreparedRuns, name: str, *faults: str) -> tuple[Path, int, str]:
    """The SFT stage with planned faults: folder, exit status, what it printed."""
    folder = prepared.fresh(name)
    shutil.copytree(prepared.undisturbed("sft").source, folder)
    status = tiny_runs.train_in_fork(folder, "sft", parse_faults(faults))
    return folder, os.waitstatus_to_exitcode(status), tiny_runs.read_log(folder)


@pytest.mark.slow
def test_a_loss_that_is_no_number_costs_its_step_and_nothing_else(prepared: PreparedRuns) -> None:
    folder, status, _ = play_copy(prepared, "nan", "nan@loss:4", "inf@loss:7")
    assert status == 0
    logged = Run.open(folder).read_metrics("sft/cto")
    skipped = {row.step: row.metrics.get("skipped_steps", 0.0) for row in logged}
    assert skipped == {step: (step >= 4) + (step >= 7) for step in range(1, 1 + len(logged))}
    assert len(logged) > 7
    (final,) = (folder / "checkpoints" / "sft" / "cto").iterdir()
    weights = load_file(final / "model.safetensors")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


@pytest.mark.slow
def test_many_such_losses_in_a_row_end_the_run_with_their_own_status(prepared: PreparedRuns) -> None:
    folder, status, printed = play_copy(prepared, "diverged", *(f"nan@loss:{step}" for step in range(3, 8)))
    assert status == DIVERGED
    assert "step 7: loss or gradient was not finite in 5 steps in a row" in printed
    assert not (folder / "stages" / "sft" / "cto.json").exists()
    _, status, _ = play_copy(prepared, "recovered", *(f"nan@loss:{step}" for step in (3, 4, 5, 6, 8)))
    assert status == 0


@pytest.mark.slow
def test_out_of_memory_says_what_to_lower_and_can_be_resumed(prepared: PreparedRuns) -> None:
    folder, status, printed = play_copy(prepared, "memory", "oom@step:5")
    assert status == OUT_OF_MEMORY
    assert "out of memory in sft/cto" in printed
    assert "lower sft.micro_batch_size" in printed
    assert tiny_runs.train_in_fork(folder, "sft") == 0
    assert tiny_runs.differences(prepared.undisturbed("sft").digest, tiny_runs.digest(folder, "sft")) == []


@pytest.mark.slow
def test_a_gradient_that_is_no_number_leaves_that_role_as_it_is(prepared: PreparedRuns) -> None:
    folder = prepared.fresh("nan-marl")
    shutil.copytree(prepared.undisturbed("marl").source, folder)
    assert tiny_runs.train_in_fork(folder, "marl", parse_faults(["nan@loss:1"])) == 0
    first = Run.open(folder).read_metrics("marl")[0].metrics
    norms = [value for name, value in first.items() if name.startswith("grad_norm/")]
    assert sum(math.isnan(value) for value in norms) == 1
    for file in (folder / "checkpoints" / "marl").rglob("model.safetensors"):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in load_file(file).values())
