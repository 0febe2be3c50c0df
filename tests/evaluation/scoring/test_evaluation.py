"""Evaluation that is killed, repeated and compared: the same numbers to the byte, from real processes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import evaluation_child
import pytest
from scored_outcomes import TINY, outcome, team_outcome
from tiny_models import make_tiny_base

from emads.cli import main
from evaluation.scoring.outcomes import OutcomeFile, RoleOutcome, StagePlays, TeamOutcome, complete_files
from evaluation.scoring.sealed_plays import play_stage, team_player
from evaluation.summary.gates import read_gate_file
from evaluation.summary.run_summary import build_details, failures, offers_by_seat, read_summary
from roles.errors import UserError
from scenarios.team import PlanGame
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import PlainChat
from simulator.engines.scripted import ScriptedEngine
from simulator.reward import TeamRewardWeights
from training.config.loading import load_config
from training.runs.run_folder import Run

ROOT = Path(__file__).parent.parent.parent.parent


def start_child(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "support" / "models" / "evaluation_child.py"), str(folder)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


def kill_after(folder: Path, name: str, lines: int) -> None:
    """Run the child and kill -9 it once the file has that many lines."""
    child = start_child(folder)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and child.poll() is None:
        path = folder / name
        if path.is_file() and path.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.002)
    assert child.poll() is None, "the child ended before it could be killed"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


@pytest.mark.process
def test_killed_half_way_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    calm, hard = tmp_path / "calm", tmp_path / "hard"
    evaluation_child.main(calm)
    kill_after(hard, "untrained-cto.greedy.jsonl", evaluation_child.BLOCK)
    half = contents(hard)
    assert half["untrained-cto.greedy.jsonl"] != contents(calm)["untrained-cto.greedy.jsonl"]
    with (hard / "untrained-cto.greedy.jsonl").open("ab") as file:
        file.write(b'{"key": "cto/te')  # a line that a kill cut short
    evaluation_child.main(hard)
    assert contents(hard) == contents(calm)
    assert len(contents(calm)["untrained-cto.sampled.jsonl"].splitlines()) == evaluation_child.NUM


@pytest.mark.parametrize("block_size", [4, 7])
def test_blocks_do_not_change_what_is_sampled(block_size: int, tmp_path: Path) -> None:
    chat, cases = PlainChat(), evaluation_child.team_cases()
    engine = ScriptedEngine(chat, seeded=oracle_team(cases))

    def play(size: int) -> StagePlays:
        player = team_player(
            engine=engine,
            chat=chat,
            weights=TeamRewardWeights(),
            max_completion_tokens=2000,
            make_game=partial(PlanGame, style="short"),
        )
        return play_stage("team", "sft", cases, player, folder=tmp_path / str(size), block_size=size)

    assert len(set(play(100).column("reward"))) > 3
    assert play(block_size) == play(100)


def test_sampled_and_greedy_plays_of_a_scenario_share_a_block(tmp_path: Path) -> None:
    made: list[tuple[int, int, float, str]] = []
    barriers: dict[asyncio.AbstractEventLoop, asyncio.Barrier] = {}  # by block

    async def play(part: Sequence[Any], heat: float, first: int, stream: str) -> list[TeamOutcome]:
        made.append((first, len(part), heat, stream))
        barrier = barriers.setdefault(asyncio.get_running_loop(), asyncio.Barrier(2))
        await asyncio.wait_for(barrier.wait(), 60)  # until the other way of play has begun, too
        return [replace(team_outcome({}), key=one.key, reward=heat) for one in part]

    cases = evaluation_child.role_cases()[:10]
    plays = play_stage(
        "team",
        "sft",
        cases,
        play,
        folder=tmp_path,
        temperature=0.5,
        block_size=8,
        num_tries=3,
        num_tried=5,
    )
    judged = [
        (first, size, heat, "evaluate/sft") for first, size in ((0, 4), (4, 4), (8, 2)) for heat in (0.5, 0.0)
    ]
    tries = [
        (first, size, 0.5, f"evaluate/sft/repeat-{number}")
        for first, size in ((0, 4), (4, 1))
        for number in (1, 2)
    ]
    assert made == judged + tries
    assert (plays.column("reward"), plays.column("reward", "greedy")) == ([0.5] * 10, [0.0] * 10)
    assert [len(one) for one in plays.repeats] == [5, 5]


def test_only_missing_blocks_are_played(tmp_path: Path) -> None:
    """Blocks that one of two files lacks are played for both: plays are always made together."""
    files = [OutcomeFile(tmp_path / name, RoleOutcome) for name in ("x.jsonl", "y.jsonl")]
    keys = [outcome(n).key for n in range(10)]
    asked: list[tuple[int, int]] = []

    def play(start: int, end: int) -> list[list[RoleOutcome]]:
        asked.append((start, end))
        block = [outcome(n) for n in range(start, end)]
        return [block, [replace(one, reward=0.0) for one in block]]

    def complete(wanted: list[str]) -> list[list[RoleOutcome]]:
        asked.clear()
        return complete_files(files, wanted, play, block_size=4)

    whole = complete(keys)
    assert whole == [[outcome(n) for n in range(10)], [replace(outcome(n), reward=0.0) for n in range(10)]]
    assert asked == [(0, 4), (4, 8), (8, 10)]
    stored = [file.path.read_bytes() for file in files]
    lines = stored[1].splitlines(keepends=True)
    files[1].path.write_bytes(b"".join(lines[:7]))  # the second block is not whole
    assert (complete(keys), asked) == (whole, [(4, 8), (8, 10)])
    assert [file.path.read_bytes() for file in files] == stored
    assert (complete(keys), asked) == (whole, [])
    with pytest.raises(UserError, match=r"not of cto/test/0/99/1.*--again"):
        complete([*keys[:3], "cto/test/0/99/1", *keys[4:]])
    files[1].path.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(UserError, match=r"y.jsonl:2 is no outcome"):
        files[1].read()


def test_scores_and_details_follow_from_outcomes_by_hand() -> None:
    outcomes = [outcome(number) for number in range(10)]
    plays = StagePlays(owner="cto", stage="sft", sampled=outcomes)
    assert plays.column("reward") == [number / 10 for number in range(10)]
    details = build_details([plays])["cto"]["sft"]["sampled"]
    assert details["difficulty"]["1"]["mean"] == pytest.approx((0 + 0.2 + 0.4 + 0.6 + 0.8) / 5)
    assert details["difficulty"]["2"]["n"] == 5
    assert details["sector"]["retail"]["mean"] == pytest.approx((0 + 0.4 + 0.8) / 3)
    assert details["process"]["failed_calls"] == 0.5
    assert details["process"]["well_formed"] == 0.9
    assert details["failures"] == {"suboptimal": 8, "not_json": 1}
    assert build_details([replace(plays, stage="heuristic")]) == {}  # no model played it
    assert failures([replace(outcome(3), truncated=True)]) == {"cut off by a limit": 1}


def test_offers_are_counted_seat_by_seat() -> None:
    outcomes = [
        team_outcome({"cto": 2, "risk": 1}, funded=("cto", "risk")),
        team_outcome({"cto": 1, "risk": 0}, false_claims={"cto": 0, "risk": 3}, funded=("cto",)),
        team_outcome({"cto": 3}),  # Risk's report could not be read
    ]
    table = offers_by_seat(outcomes)
    assert table["cto"] == {"read": 1.0, "offers": 2.0, "false_claims": 0.0, "funded": pytest.approx(2 / 3)}
    assert table["risk"] == {
        "read": pytest.approx(2 / 3),
        "offers": pytest.approx(1 / 3),
        "false_claims": 1.0,
        "funded": pytest.approx(1 / 3),
    }


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of one config that have a base model and nothing else."""
    paths = []
    for seed in (0, 1):
        path = tmp_path_factory.mktemp("evaluated") / f"seed-{seed}"
        run = Run.create(path, load_config(None, (*TINY, f"seed={seed}")))
        make_tiny_base(run.path)
        assert main(["evaluate", str(path)]) == 0
        paths.append(path)
    return paths


STORED = (
    "scores/outcomes/untrained-team.sampled.jsonl",
    "scores/outcomes/heuristic-cto.sampled.jsonl",
)


def test_evaluating_again_gives_the_same_bytes(
    untrained: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (untrained[0] / name).read_bytes() for name in STORED}
    summary = read_summary(untrained[0])
    numbers = summary["roles"], summary["details"]
    marks = {path: path.stat().st_mtime_ns for path in untrained[0].glob("scores/**/*.jsonl")}
    assert main(["evaluate", str(untrained[0])]) == 0
    assert {path: path.stat().st_mtime_ns for path in marks} == marks  # nothing was played again
    assert main(["evaluate", str(untrained[0]), "--again"]) == 0
    assert all(path.stat().st_mtime_ns > mark for path, mark in marks.items())  # all was
    assert {name: (untrained[0] / name).read_bytes() for name in STORED} == before
    summary = read_summary(untrained[0])
    assert (summary["roles"], summary["details"]) == numbers
    assert "Reward by difficulty" in capsys.readouterr().out


def test_several_runs_are_compared_as_seeds(
    untrained: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(untrained[0]), str(untrained[1])]) == 0
    comparison = json.loads((untrained[0] / "seed_comparison.json").read_text())
    assert (comparison["seeds"], comparison["same_scenarios"]) == ([0, 1], True)
    row = comparison["owners"]["team"]["stages"]["random"]
    assert row["n"] == 16
    assert row["per_seed"][0] == row["per_seed"][1]  # the same cases, the same blind picks
    assert [one["seed"] for one in read_summary(untrained[0])["seeds"]] == [0, 1]
    assert "Seeds 0, 1 together" in capsys.readouterr().out


GATES = """
gates:
  - name: blind
    metric: team.random.mean
    at_most: 1
  - metric: team.untrained.mean
    at_least: 0.99
  - metric: details.cto.untrained.sampled.process.n
    above: 11
    below: 12
  - metric: team.marrl.mean
    above: 0
"""


def test_gates_of_a_file_give_a_status_of_their_own(
    untrained: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gates.yaml").write_text(GATES)
    assert main(["evaluate", str(untrained[1]), "--gate", str(tmp_path / "gates.yaml")]) == 3
    assert (
        "RED: team.untrained.mean, details.cto.untrained.sampled.process.n, team.marrl.mean"
        in capsys.readouterr().out
    )
    (tmp_path / "gates.yaml").write_text(GATES.split("  - metric: team.untrained")[0])
    assert main(["evaluate", str(untrained[1]), "--gate", str(tmp_path / "gates.yaml")]) == 0


def test_the_shipped_gates_are_valid() -> None:
    assert len(read_gate_file(ROOT / "examples" / "gates" / "team.yaml")) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gates:\n  - metric: team.marl.mean\n    at_leest: 1\n", r"gates.yaml:3: .*at_leest.*at_least"),
        ("gates:\n  - metric: team.marl.mean\n", r"gates.yaml:2: .*no threshold.*at_least"),
        ("gates:\n  - metric: team.marl.mean\n    above: high\n", r"gates.yaml:3: .*above"),
        ("gates:\n  - metric: team\n    above: 1\n", r"gates.yaml:2: gates.0.metric"),
        ("gates: []\n", r"gates.yaml:1: gates"),
        ("gate: 1\n", r"gates.yaml:1: unknown key 'gate'; did you mean 'gates'"),
        ("- 1\n", r"must be a mapping"),
        ("gates: [\n", r"malformed YAML"),
    ],
)
def test_a_mistake_in_a_gate_file_is_named_with_its_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run.create(tmp_path, load_config(None))
    (tmp_path / "gates.yaml").write_text(text)
    assert main(["evaluate", str(tmp_path), "--gate", str(tmp_path / "gates.yaml")]) == 2
    assert re.search(message, capsys.readouterr().err)
