"""Ablations: strict plans, cells by hand, a real grid that is killed half way and ends as if never killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from scored_outcomes import role_plays, store_plays, team_plays

from emads.cli import main
from emads.commands.ablate import configure, list_cells, read_plan
from evaluation.summary.comparison import ablation_table, measure_cell
from roles.errors import UserError
from training.stages.table import prefix_digest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "configs" / "ablations"
SHIPPED = sorted((ROOT / "configs" / "ablations").glob("**/*.yaml"))
TOY = """
name: toy
question: Does anything matter at this size?
stages: [sft, grpo]
seeds: [0]
roles: [cost]
base:
  model: {hidden_size: 32, num_layers: 1, num_heads: 2, intermediate_size: 48}
  sft: {max_steps: 3, batch_size: 2}
  grpo: {max_steps: 1, prompts_per_step: 1, max_turns: 1, max_completion_tokens: 8}
  evaluation: {num_role_scenarios: 6}
grid:
  grpo.group_size: [2, 4]
  grpo.loss.kl_coefficient: [0.0, 0.1]
"""
CELLS = [f"group_size-{size}-kl_coefficient-{kl}" for size in (2, 4) for kl in (0.0, 0.1)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_plan_is_valid_and_names_its_command(path: Path) -> None:
    plan = read_plan(path)
    assert plan.name == "-".join(path.relative_to(FOLDER).with_suffix("").parts)
    assert len(list_cells(plan)) >= 2
    assert f"emads ablate --config configs/ablations/{path.relative_to(FOLDER)}" in path.read_text()


def test_the_questions_of_the_shipped_plans_are_all_asked() -> None:
    values = {path.stem: read_plan(path).grid for path in FOLDER.glob("*.yaml")}
    assert values["group-size"]["grpo.group_size"] == [4, 8, 16, 32]
    assert values["kl"]["grpo.loss.kl_coefficient"] == [0.0, 0.01, 0.05, 0.2]
    assert {"reward-parts", "difficulty-transfer", "credit", "adapters", "more-sft"} <= values.keys()


def start(plan: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "emads.cli",
        "ablate",
        "--config",
        str(plan),
        "--out",
        str(out),
        "--workers",
        "0",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((out / "toy" / "ablation.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key != "train_s"} for row in rows]


@pytest.mark.process
def test_a_grid_killed_half_way_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    plan = tmp_path / "toy.yaml"
    plan.write_text(TOY)
    torch.set_num_threads(1)  # as in the child
    assert main(["ablate", "--config", str(plan), "--out", str(tmp_path / "calm"), "--workers", "0"]) == 0
    child = start(plan, tmp_path / "hard")
    second = tmp_path / "hard" / "toy" / CELLS[1] / "seed-0" / "stages" / "grpo" / "cost.json"
    deadline = time.monotonic() + 200
    while not second.exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.01)
    assert child.poll() is None, "the child ended before it could be killed"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not (tmp_path / "hard" / "toy" / "ablation.json").exists()
    first = tmp_path / "hard" / "toy" / CELLS[0] / "seed-0" / "stages" / "grpo" / "cost.json"
    trained = first.stat().st_mtime_ns
    assert main(["ablate", "--config", str(plan), "--out", str(tmp_path / "hard"), "--workers", "0"]) == 0
    assert first.stat().st_mtime_ns == trained  # what was done was not done again
    assert rows_of(tmp_path / "hard") == rows_of(tmp_path / "calm")
    assert [row["cell"] for row in rows_of(tmp_path / "calm")] == [
        f"group_size={size}, kl_coefficient={kl}" for size in (2, 4) for kl in (0.0, 0.1)
    ]
    shared = json.loads(
        (tmp_path / "calm" / "toy" / CELLS[3] / "seed-0" / "stages" / "sft" / "cost.json").read_text()
    )
    assert shared["payload"]["taken_from"].endswith(f"{CELLS[0]}/seed-0")  # SFT was trained once
    page = (tmp_path / "calm" / "toy" / "results.md").read_text()
    assert "Does anything matter at this size?" in page
    assert page.count("| group_size=") == 4


def test_cells_are_every_combination(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "name: x\ncells:\n  a: {grpo.reward: rlvr}\n  b: {grpo.reward: default, grpo.reward_weights: {}}\n"
        "grid:\n  grpo.group_size: [2, 4]\n"
    )
    plan = read_plan(path)
    cells = list_cells(plan)
    assert [cell.name for cell in cells] == [f"{name}, group_size={size}" for name in "ab" for size in (2, 4)]
    config = configure(plan, cells[3], 7, "x")
    assert (config.seed, config.grpo.group_size, config.grpo.reward) == (7, 4, "default")


def test_equal_prefixes_are_told_from_different_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(TOY)
    plan = read_plan(path)
    one, other = (configure(plan, list_cells(plan)[place], 0, "x") for place in (0, 3))
    assert prefix_digest(one, "sft") == prefix_digest(other, "sft")
    assert prefix_digest(one, "grpo") != prefix_digest(other, "grpo")
    longer = one.model_copy(update={"sft": one.sft.model_copy(update={"max_steps": 4})})
    assert prefix_digest(one, "sft") != prefix_digest(longer, "sft")
    assert prefix_digest(one, "base") == prefix_digest(longer, "base")
    assert prefix_digest(one, "base") != prefix_digest(configure(plan, list_cells(plan)[0], 1, "x"), "base")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("grpo.group_size", "grpo.group_sise"), r"unknown config key 'grpo.group_sise'.*grpo.group_size"),
        (("[2, 4]", "[2, 1]"), r"grpo.group_size = 1"),
        (("stages: [sft, grpo]", "stages: [grpo]"), r"starts from sft"),
        (("roles: [cost]", "roles: [kost]"), r"toy.yaml:\d+.*unknown role 'kost'; did you mean 'cost'"),
        (("seeds: [0]", "seeds: [0, 0]"), r"repeat"),
        (("seeds: [0]", "seed: [0]"), r"toy.yaml:5: unknown key 'seed'; did you mean 'seeds'"),
        (("name: toy", "name: Toy Plan"), r"toy.yaml:2: name"),
        (("stages: [sft, grpo]", "stages: [sft, grpo, marl]"), r"leave out roles"),
        (("base:", "base:\n  seed: 3"), r"seed is set by the ablation itself"),
    ],
)
def test_a_mistake_in_a_plan_is_named(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY.replace(*change, 1))
    assert main(["ablate", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def stored(path: Path, stage: str, rewards: tuple[float, ...]) -> Path:
    store_plays(path, role_plays("cost", stage, rewards, rewards))
    return path


def test_a_cell_is_measured_by_hand(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "missing"]
    for path, gain in zip(paths[:2], (0.25, 0.5), strict=True):
        stored(path, "sft", (0.0, 0.5))
        stored(path, "grpo", (gain, 0.5))
    row = measure_cell("c", {}, paths, owners=["cost"], stage="grpo", before="sft", train_s=1.0)
    assert (row["num_seeds"], row["note"]) == (2, "2 of 3 seeds")
    assert row["mean"]["mean"] == pytest.approx((0.375 + 0.5) / 2)
    assert row["gain"]["mean"] == pytest.approx((0.125 + 0.25) / 2)
    assert row["against_first"] is None
    assert row["mean"]["high"] <= 1.0  # a reward's interval ends where rewards do
    for place, reward in enumerate((0.0, 0.25)):
        stored(tmp_path / f"first-{place}", "grpo", (reward, 0.5))
    first = [tmp_path / "first-0", tmp_path / "first-1", tmp_path / "first-2"]
    beside = measure_cell(
        "c", {}, paths, owners=["cost"], stage="grpo", before=None, train_s=1.0, first=first
    )
    assert beside["against_first"]["mean"] == pytest.approx((0.125 + 0.125) / 2)  # seed by seed, not pooled
    none = measure_cell("d", {}, paths[2:], owners=["cost"], stage="grpo", before="sft", train_s=0.0)
    assert (none["mean"], none["note"]) == (None, "not run")


def test_joint_training_is_measured_by_the_team(tmp_path: Path) -> None:
    for stage, reward in (("grpo", 0.25), ("marl", 0.75)):
        stored(tmp_path, stage, (0.5, 1.0))
        store_plays(tmp_path, team_plays(stage, (reward, reward), (0.0, 0.5)))
    row = measure_cell(
        "c",
        {},
        [tmp_path],
        owners=["cost", "team"],
        stage="marl",
        before="grpo",
        train_s=1.0,
        validations=[{"peak": 0.7, "last": 0.66, "fall_error": 0.02}],
    )
    # the role's are .75, 0, .75
    assert [row[name]["mean"] for name in ("mean", "gain", "greedy")] == [0.75, 0.5, 0.25]
    table = ablation_table("", [row])
    titles, cells = table.titles, table.rows
    assert titles[2].startswith("team, ")
    assert dict(zip(titles, cells[0], strict=True))["validations: best, last (SE)"] == ".70, .66 (.02)"


def test_a_plan_without_a_file_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read ablation"):
        read_plan(tmp_path / "none.yaml")
