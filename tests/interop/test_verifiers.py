"""verifiers: vf-validate on both packages, and vf-eval plays whole episodes: harness, MCP tools, seats."""

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from played_cases import GARBAGE, expected, expert_steps, name_case, write_imported
from scripted_endpoint import serve_script

from roles.team import RECONCILER
from scenarios.base import Step
from serving.environments.plays import KINDS, open_kinds, start_play
from serving.environments.seat_tasks import draw_case, find_best_team, score_table
from simulator.export.pettingzoo_env import TeamEnv

pytest.importorskip("verifiers", reason="make interop")

from verifiers.v1.cli.eval.main import main as vf_eval
from verifiers.v1.cli.validate import main as vf_validate

Record = Callable[[str, object], None]
GENERATED = [name for name in KINDS if name != "programs"]  # that one needs the sandbox


def row(record_property: Record, what: str) -> None:
    record_property("row", f"verifiers | {version('verifiers')} | {what}")


def validate(tmp_path: Path, *options: str) -> dict[str, Any]:
    """The summary that vf-validate writes."""
    where = ["--runtime.type", "subprocess", "-o", str(tmp_path), "--run.name", "run", "--no-rich"]
    vf_validate([*options, *where])
    return dict(json.loads((tmp_path / "run" / "summary.json").read_text()))


def test_vf_validate_accepts_every_family(tmp_path: Path, record_property: Record) -> None:
    row(record_property, f"vf-validate emads-roles, {len(GENERATED) + 1} families")
    folder = write_imported(tmp_path / "imported")
    families = [*GENERATED, *(set(open_kinds(folder)) - set(KINDS))]
    count = 2 * len(families)
    options = ["--taskset.family", ",".join(families), "--taskset.count", str(count)]
    options += ["--taskset.difficulties", "[1]", "--taskset.folders", json.dumps([str(folder)])]
    summary = validate(tmp_path, "emads-roles", *options)
    assert summary["checks"]["gold"]["valid"] == summary["checks"]["noop"]["valid"] == count, summary


def test_vf_validate_accepts_the_team(tmp_path: Path, record_property: Record) -> None:
    """A table is scored across its seats, so the check of an untouched task has nothing to score."""
    row(record_property, "vf-validate emads-team (gold)")
    summary = validate(tmp_path, "emads-team", "--taskset.count", "4")
    assert summary["checks"]["gold"]["valid"] == summary["checks"]["noop"]["unchecked"] == 4, summary


def evaluate(tmp_path: Path, url: str, *options: str) -> list[dict[str, Any]]:
    """The traces of a run of vf-eval on the scripted endpoint.

    One rollout at a time: each starts a process, and its harness gives the tool server 60 s to answer.
    """
    where = ["--client.base-url", url, "--client.api-key-var", "PATH", "--model", "scripted"]
    where += ["--max-concurrent", "1"]
    vf_eval([*options, *where, "--no-push", "--no-rich", "-o", str(tmp_path), "--run.name", "run"])
    episodes = map(json.loads, (tmp_path / "run" / "traces.jsonl").read_text().splitlines())
    return [trace for episode in episodes for trace in episode["traces"]]


def rewards_of(trace: Mapping[str, Any]) -> dict[str, float]:
    return {name: reward["score"] for name, reward in trace["rewards"].items()}


def test_vf_eval_pays_what_the_core_pays(tmp_path: Path, record_property: Record) -> None:
    """Expert and garbage through the harness, the MCP tools and the task's reward."""
    row(record_property, "vf-eval: experts and garbage, tools over MCP")
    families = ("cto", "team_risk", "lookup")
    scripts: dict[str, tuple[Step, ...]] = {}
    rewards = {}
    for family in families:
        for index, difficulty in ((0, 1), (1, 2)):
            name = name_case(family, index, difficulty)
            steps = GARBAGE if index else expert_steps(name)
            scenario = start_play(name).scenario
            scripts[scenario.brief], rewards[scenario.key] = steps, expected(name, steps).reward
    with serve_script(scripts) as url:
        seat = ["--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"]
        taskset = ["--env.taskset.family", ",".join(families), "--env.taskset.count", "6"]
        traces = evaluate(tmp_path, url, "emads-roles", *taskset, *seat)
    found = {trace["task"]["data"]["name"]: rewards_of(trace)["role_reward"] for trace in traces}
    assert found == rewards
    assert max(rewards.values()) > 1 > min(rewards.values()) == 0


def test_vf_eval_plays_the_team(tmp_path: Path, record_property: Record) -> None:
    """Five seats, three phases; every trace gets the reward that the table gives for these texts."""
    row(record_property, "vf-eval emads-team: five seats")
    case = draw_case("train", 0, 0, 1)
    reports, decision = find_best_team(case)
    accept = '{"vote": "accept"}'
    table = TeamEnv("train")
    observations, _ = table.reset(options={"index": 0})
    scripts: dict[str, tuple[Step, ...]] = {
        observations[seat]: (Step(text=text), Step(text=accept)) for seat, text in reports.items()
    }
    observations, *_ = table.step(reports)
    scripts[observations[RECONCILER]] = (Step(text=decision),)
    observations, *_ = table.step({RECONCILER: decision})
    _, rewards, *_ = table.step(dict.fromkeys(reports, accept))
    with serve_script(scripts) as url:
        traces = evaluate(tmp_path, url, "emads-team", "--env.taskset.count", "1")
    assert {trace["agent"]["name"] for trace in traces} == {*reports, RECONCILER}
    for trace in traces:
        assert rewards_of(trace) == {"team_reward": pytest.approx(rewards["cto"])}
    assert 0 < rewards["cto"] <= score_table(case, reports, decision).reward  # the right votes pay most
