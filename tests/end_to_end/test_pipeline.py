"""One small real run from nothing to report, what may happen to its folder, faults that gates must see.

The run is made once; every test that changes something works on a copy of its folder.
"""

import contextlib
import importlib.metadata
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from shared_folders import make_once

from emads.cli import main
from emads.commands import evaluate
from evaluation.report.charts import CURVE_CHARTS, find_curves, read_metrics
from evaluation.scoring.outcomes import read_plays
from evaluation.summary import gates
from evaluation.summary.gates import check_gates
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from scenarios.registry import SHORT_FAMILIES
from scenarios.team import PlanGame
from training.config.loading import load_config
from training.config.run_config import DataConfig
from training.data import demonstrations
from training.data.demonstrations import team_scenario
from training.models.weights import copy_weights, load_weights, weights_differ
from training.rl.credit import CreditAssigner
from training.rl.solo.alarms import read_alarms, write_alarms
from training.rl.solo.algorithm import GroupCredit
from training.rl.update import PolicyUpdater
from training.runs.run_folder import Run
from training.stages.evaluation import evaluate_baselines
from training.stages.table import train_stage

SETTINGS = (
    "name=small",
    "num_workers=0",
    "model.hidden_size=32",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.intermediate_size=64",
    "data.seat_share=0.7",  # so short an SFT writes reports that can be read at this share, and not at less
    "data.num_demonstrations=1400",
    "sft.max_steps=220",
    "sft.batch_size=16",
    "sft.muon_learning_rate=0.04",
    "sft.learning_rate=0.015",
    "grpo.max_steps=2",
    "grpo.prompts_per_step=3",
    "grpo.group_size=6",
    "marl.max_steps=2",
    "marl.scenarios_per_step=8",
    "marl.report_sets=2",
    "marl.decisions_per_set=3",
    "marl.credit.scheme=shared",
    "marl.rate_schedule=constant",
    "marl.guards.validation_scenarios=2",
    "evaluation.num_role_scenarios=10",
    "evaluation.num_team_scenarios=10",
    "evaluation.num_tries=2",
)
TRAINED = ("sft", "grpo", "marl")
HEALTHY_GATES = ("oracle_is_one", "weights_changed", "gradient_signal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The finished run and what making it printed."""

    path: Path
    status: int
    printed: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = make_once(tmp_path_factory, "pipeline", make_run)
    status, printed = json.loads((folder / "said.json").read_text())
    return Made(path=folder / "run", status=status, printed=printed)


def make_run(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        held = cache(demonstrations._hold.__wrapped__)  # one meeting of each case for all roles
        patch.setattr(demonstrations, "_hold", held)
        config = load_config(None, SETTINGS)
        status = evaluate.run_demo(folder / "run", config, seeds=1, controls=False, resume=False)
    (folder / "said.json").write_text(json.dumps([status, printed.getvalue()]))


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may spoil."""
    return Path(shutil.copytree(made.path, tmp_path / "run"))


def read_summary(path: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((path / "summary.json").read_text())
    return summary


def gates_of(summary: Mapping[str, Any]) -> dict[str, bool | None]:
    return {gate["name"]: gate["passed"] for gate in summary["gates"]}


def gates_now(path: Path) -> dict[str, str]:
    """Detail of every red gate, from the scores and stage records as they stand."""
    summary = evaluate.summarise(Run.open(path), read_plays(path), wall_s=1.0)
    return {gate["name"]: gate["detail"] for gate in summary["gates"] if gate["passed"] is False}


def markers(path: Path) -> dict[str, int]:
    """When each stage was marked done."""
    folder = path / "stages"
    return {file.relative_to(folder).as_posix(): file.stat().st_mtime_ns for file in folder.rglob("*.json")}


def manifest(path: Path, stage: str, role: str) -> bytes:
    (folder,) = (path / "checkpoints" / stage / role).iterdir()
    return (folder / "MANIFEST.json").read_bytes()


def run_cli(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one verb."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


def only_error(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in err
    assert err.rstrip().endswith(line)
    return line


def test_the_summary_has_the_promised_shape(made: Made) -> None:
    summary = read_summary(made.path)
    assert set(summary) >= {
        "roles",
        "team",
        "gates",
        "seed",
        "wall_s",
        "versions",
        "weights_changed",
        "signal",
    }
    assert summary["alarms"] == {f"grpo/{role}": {} for role in TEAM_ROLES}
    assert tuple(summary["roles"]) == TEAM_ROLES
    for stages_of_role in summary["roles"].values():
        assert set(stages_of_role) == {*TRAINED, "random", "constant", "heuristic", "oracle", "paired"}
        for stage in TRAINED:
            score = stages_of_role[stage]
            assert score["n"] == 10
            assert 0 <= score["low"] <= score["mean"] <= score["high"] <= 1
            assert 0 <= score["greedy"] <= 1
        assert set(stages_of_role["paired"]) == {
            "grpo-sft", "grpo-sft_greedy", "marl-grpo", "marl-grpo_greedy",
            "marl-heuristic", "marl-heuristic_greedy",
        }  # fmt: skip
        assert stages_of_role["oracle"]["mean"] == 1.0
    baselines = {
        "random", "greedy", "majority", "one_field", "two_fields", "single", "oracle_common", "oracle_best",
        "oracle_rising", "oracle_searched", "reachable", "oracle",
    }  # fmt: skip
    assert set(summary["team"]) == {*TRAINED, *baselines, "paired"}
    assert {"marl-grpo", "marl-grpo_greedy"} <= set(summary["team"]["paired"])
    assert summary["team"]["oracle"]["mean"] > summary["team"]["random"]["mean"]
    assert (summary["seed"], summary["wall_s"] > 0) == (0, True)
    assert summary["versions"]["torch"] == importlib.metadata.version("torch")
    assert summary["versions"]["trl"] == importlib.metadata.version("trl")
    assert summary["gates"] == [asdict(gate) for gate in check_gates(summary)]


def test_an_alarm_of_a_stage_stands_in_the_summary(copied: Path) -> None:
    run = Run.open(copied)
    write_alarms(run, "grpo/coo", {"kl_runaway": "KL is 0.81"})
    found = evaluate.summarise(run, read_plays(copied), wall_s=1.0)["alarms"]
    assert found["grpo/coo"] == {"kl_runaway": "KL is 0.81"}
    assert [stage for stage, alarms in found.items() if alarms] == ["grpo/coo"]
    assert "grpo/coo kl_runaway: KL is 0.81" in read_alarms(run)


def test_a_small_demo_is_not_judged_where_it_measures_too_little(made: Made) -> None:
    gates = gates_of(read_summary(made.path))
    assert {name: gates[name] for name in HEALTHY_GATES} == dict.fromkeys(HEALTHY_GATES, True)
    assert [name for name, passed in gates.items() if passed is False] == []
    assert "enough_scenarios" in [name for name, passed in gates.items() if passed is None]  # 10 tell nothing
    assert made.status == 0
    assert "gates:   7 not judged: too few scenarios" in made.printed


def test_training_lowered_losses_and_logged_every_stage(made: Made) -> None:
    run = Run.open(made.path)
    for role in ROLES:
        logged = run.read_metrics(f"sft/{role}")
        assert [row.step for row in logged] == list(range(5, 221, 5))  # of 220 steps
        losses = [row.metrics["loss"] for row in logged]
        assert losses[-1] < losses[0] / 2
        assert [row.step for row in run.read_metrics(f"grpo/{role}")] == [1, 2]
    marl = run.read_metrics("marl")
    assert [row.step for row in marl] == [1, 2]
    assert all(row.metrics["sets"] == 16 for row in marl)
    assert {"team_reward", "value", "consensus", "own_score/risk", "signal/cto"} <= set(marl[0].metrics)


def test_the_terminal_shows_tables_gates_and_an_episode_once(made: Made) -> None:
    for gate in HEALTHY_GATES:
        assert len(re.findall(rf"^ {gate} +pass ", made.printed, re.MULTILINE)) == 1
    assert str(made.path / "report.html") in made.printed


def test_the_report_is_one_self_contained_file(made: Made) -> None:
    page = (made.path / "report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert page.count("data:image/") >= 3
    assert not re.search(r"<(script|link|iframe|object)\b", page)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|#)""", page)
    assert "url(http" not in page
    for role in ("CTO", "COO", "Risk", "Cost", "ReconcileGPT"):
        assert role in page


def test_weights_of_every_stage_are_published_and_differ(made: Made) -> None:
    for role in ROLES:
        digests = {manifest(made.path, stage, role) for stage in ("sft", "grpo", "marl")}
        assert len(digests) == 3
    run = Run.open(made.path)
    (base, _), (trained, _) = load_weights(run, "base", "cto"), load_weights(run, "sft", "cto")
    assert weights_differ(trained, copy_weights(base, "cto"))
    assert 0 < sum(parameter.numel() for parameter in base.parameters()) < 100_000


def test_a_finished_run_is_not_done_again(copied: Path) -> None:
    before, summary = markers(copied), read_summary(copied)
    files = {path: path.stat().st_mtime_ns for path in (copied / "checkpoints").rglob("*") if path.is_file()}
    num_lines = len((copied / "metrics.jsonl").read_text().splitlines())
    status, out, _ = run_cli("demo", copied)
    assert status == 0
    assert "not judged: too few scenarios" in out
    changed = [name for name, time in markers(copied).items() if before.get(name) != time]
    assert changed == ["wall.json"]
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert len((copied / "metrics.jsonl").read_text().splitlines()) == num_lines
    again = read_summary(copied)
    assert again["wall_s"] > summary["wall_s"]
    assert {**again, "wall_s": 0} == {**summary, "wall_s": 0}


def test_red_gates_are_a_status_where_gates_are_asked_for(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MIN_SCENARIOS", 1)  # two steps of training are red, once they are judged
    status, out, _ = run_cli("demo", copied)
    assert (status, "RED: " in out, "A red gate is" in out) == (0, True, True)
    assert run_cli("demo", copied, "--gate")[0] == 3


def test_a_deleted_marker_runs_its_stage_again_and_nothing_else(copied: Path) -> None:
    """And the stage ends in the same weights, bit for bit: everything in it is seeded."""
    before, weights, summary = markers(copied), manifest(copied, "grpo", "risk"), read_summary(copied)
    (copied / "stages" / "grpo" / "risk.json").unlink()
    evaluate.run_all(Run.open(copied), controls=False, title="again")
    changed = sorted(name for name, time in markers(copied).items() if before[name] != time)
    assert changed == ["grpo/risk.json", "wall.json"]
    assert manifest(copied, "grpo", "risk") == weights
    assert {**read_summary(copied), "wall_s": 0} == {**summary, "wall_s": 0}
    rows = read_metrics(copied)
    assert len([row for row in rows if row["stage"] == "grpo/risk"]) == 2  # the new rows replace the old
    panel = next(panel for panel in CURVE_CHARTS if panel.stage == "grpo")
    assert [one.steps for one in find_curves(rows, panel, ["risk"]) if one.name == "risk"] == [
        (1, 2)
    ]  # one is drawn


def test_a_meeting_can_be_read(made: Made) -> None:
    status, out, _ = run_cli("simulate", made.path, "--index", 3)
    assert status == 0
    case = team_scenario(DataConfig(), "test", 3, Run.open(made.path).config.data.difficulties)
    assert case.key in out
    for seat in case.seats:
        assert PlanGame(case, "short").write_report_brief(seat).splitlines()[0] in out
    for title in ("CTO reports", "Cost reports", "Decision", "Votes", "team reward R"):
        assert title in out
    assert "weighted" not in out
    assert run_cli("simulate", made.path, "--index", 3)[1] == out
    _, two, _ = run_cli("simulate", made.path, "--index", 3, "--count", 2, "--stage", "sft")
    assert "team/test/0/3/" in two
    assert "team/test/0/4/" in two


def test_an_unknown_stage_is_refused(made: Made) -> None:
    status, out, err = run_cli("simulate", made.path, "--stage", "nope")
    assert (status, out) == (2, "")
    assert "unknown stage 'nope'" in only_error(err)


def damage(path: Path, stage: str, role: str) -> Path:
    """Flip one bit in the middle of a checkpoint's weights; returns the checkpoint."""
    (folder,) = (path / "checkpoints" / stage / role).iterdir()
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return folder


def test_a_damaged_checkpoint_is_set_aside_named_and_made_again(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, weights = damage(copied, "grpo", "coo"), manifest(copied, "grpo", "coo")
    before = markers(copied)
    status, _, err = run_cli("simulate", copied, "--stage", "grpo")
    assert status == 2
    line = only_error(err)
    assert f"no sound grpo weights in {folder.parent}" in line
    assert f"emads train grpo {copied}" in line
    assert "content of model.safetensors differs from its sha256" in caplog.text
    assert [path.name for path in folder.parent.iterdir()] == [f"{folder.name}.quarantined"]
    # the command that the message names mends it: this role's stage alone, with the same result
    assert run_cli("train", "grpo", copied)[0] == 0
    assert [name for name, time in markers(copied).items() if before[name] != time] == ["grpo/coo.json"]
    assert (folder / "MANIFEST.json").read_bytes() == weights
    assert run_cli("simulate", copied, "--stage", "grpo")[0] == 0


def test_a_damaged_score_file_is_one_line(copied: Path) -> None:
    file = copied / "scores" / "outcomes" / "grpo-cto.sampled.jsonl"
    file.write_text(file.read_text()[:-20])
    status, _, err = run_cli("evaluate", copied)
    assert status == 2
    assert f"{file} holds 9 plays of 10; evaluate with --again" in only_error(err)


def test_evaluating_a_finished_run_changes_no_score_and_keeps_its_time(copied: Path) -> None:
    before = read_summary(copied)
    status, out, _ = run_cli("evaluate", copied)
    assert status == 0
    assert "oracle_is_one" in out
    after = read_summary(copied)
    assert {**after, "wall_s": 0} == {**before, "wall_s": 0}
    assert after["wall_s"] >= before["wall_s"]


def forget(path: Path, stage: str) -> None:
    """Let the stage run again."""
    (path / "stages" / f"{stage}.json").unlink()


def test_a_verifier_under_which_gold_is_not_one_turns_its_gate_red(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = SHORT_FAMILIES["cost"]  # the demo's style of prompts

    def mean(scenario: Any, text: str) -> Any:
        verdict = family.verify(scenario, text)
        return replace(verdict, reward=0.999 * verdict.reward)

    monkeypatch.setitem(SHORT_FAMILIES, "cost", replace(family, verify=mean))
    forget(copied, "evaluate/baselines")
    assert "oracle_is_one" not in gates_now(copied)
    evaluate_baselines(copied)
    assert "cost 0.99" in gates_now(copied)["oracle_is_one"]


def flat_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is worth the same."""
    monkeypatch.setattr("training.rl.solo.play.episode_reward", lambda episode, config: {"total": 0.5})


def zeroed_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advantages are lost on the way to the loss."""
    assign = GroupCredit.assign

    def without(self: GroupCredit, roles: Any, groups: Any) -> Any:
        found = assign(self, roles, groups)
        return {role: [[0.0] * len(one) for one in of_role] for role, of_role in found.items()}

    monkeypatch.setattr(GroupCredit, "assign", without)


@pytest.mark.parametrize("plant", [flat_verifier, zeroed_advantages])
def test_grpo_without_advantages_turns_the_signal_red(
    plant: Callable[[pytest.MonkeyPatch], None], copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(copied, "grpo/cto")
    with monkeypatch.context() as planted:
        plant(planted)
        train_stage(copied, "grpo", "cto")
    red = gates_now(copied)
    assert "grpo/cto 0.00" in red["gradient_signal"]
    assert red["weights_changed"] == "unchanged: grpo/cto"
    forget(copied, "grpo/cto")
    train_stage(copied, "grpo", "cto")
    assert not {"gradient_signal", "weights_changed"} & set(gates_now(copied))


def test_joint_training_with_zeroed_advantages_turns_the_signal_red(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rows = CreditAssigner.make_rows

    def zeroed(self: CreditAssigner, groups: Any, advantages: Any) -> Any:
        made = make_rows(self, groups, advantages)
        return made | {"risk": [replace(row, advantage=0.0, token_advantages=None) for row in made["risk"]]}

    monkeypatch.setattr(CreditAssigner, "make_rows", zeroed)
    forget(copied, "marl")
    train_stage(copied, "marl")
    red = gates_now(copied)
    assert "marl/risk 0.00" in red["gradient_signal"]
    assert red["weights_changed"] == "unchanged: marl/risk"


def test_a_role_that_joint_training_leaves_frozen_turns_its_gate_red(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = PolicyUpdater.update

    def frozen(self: PolicyUpdater, rows: Any) -> Any:
        self.optimizers["coo"].step = lambda *_: None  # type: ignore[method-assign]
        return update(self, rows)

    monkeypatch.setattr(PolicyUpdater, "update", frozen)
    forget(copied, "marl")
    train_stage(copied, "marl")
    red = gates_now(copied)
    assert red["weights_changed"] == "unchanged: marl/coo"
    assert "gradient_signal" not in red


def test_a_role_that_grpo_leaves_frozen_turns_its_gate_red(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: None)
    forget(copied, "grpo/cost")
    train_stage(copied, "grpo", "cost")
    red = gates_now(copied)
    assert red["weights_changed"] == "unchanged: grpo/cost"
    assert "gradient_signal" not in red
