"""`emads play`: roles alone on validation scenarios, in figures and in words."""

from pathlib import Path

import pytest
import torch
from command_line import fail
from tiny_models import make_untrained_run

from emads.cli import main
from emads.commands.play_roles import sum_up, tell_play
from scenarios.base import Verdict
from scenarios.registry import FAMILIES
from simulator.agents.solo import SoloEpisode
from simulator.records import EndReason, Trajectory, Turn
from training.runs.run_folder import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_untrained_run(tmp_path_factory.mktemp("play") / "run", "grpo.max_completion_tokens=8")


def episode(reward: float, failure: str | None, ended_by: EndReason = "answer") -> SoloEpisode:
    turn = Turn(
        context_ids=(1, 2),
        completion_ids=(3,) * 5,
        logprobs=(0.0,) * 5,
        finish_reason="stop",
        text="x",
        policy_version="cto@0",
    )
    return SoloEpisode(
        scenario=FAMILIES["cto"].generate(seed=0, difficulty=1, split="validation", index=0),
        trajectory=Trajectory(
            role="cto",
            session="0",
            turns=(turn, turn),
            num_tool_calls=0,
            num_valid_tool_calls=0,
            ended_by=ended_by,
            final_text="x",
        ),
        verdict=Verdict(
            reward=reward,
            feasible=reward > 0,
            exact=reward == 1,
            parts={},
            failure=failure,
            explanation="as it is",
        ),
    )


def test_a_row_counts_shares_tokens_and_each_kind_of_fault() -> None:
    episodes = [
        episode(1.0, None),
        episode(0.5, "suboptimal"),
        episode(0.0, "infeasible"),
        episode(0.0, "no_answer", ended_by="turns"),
        episode(0.0, "infeasible"),
    ]
    plays, reward, exact, feasible, gain, tokens, faults = sum_up(episodes, "+0.10")
    assert (plays, exact, feasible, gain, tokens) == ("5", "20%", "40%", "+0.10", "10")
    assert reward.startswith("0.30 [")
    assert faults == "infeasible 2, suboptimal 1, cut off by turns 1"


def decode(ids: list[int]) -> str:
    assert ids == [1, 2]
    return "user\n<tool_response>\ncost 4\x1b, worth 9\n</tool_response>\nassistant\n"


def test_a_play_in_words_shows_what_tools_answered_and_no_markup() -> None:
    brief, *rest = "\n".join(tell_play(episode(0.5, "suboptimal"), "sft", decode)).split("-> ")
    assert brief.startswith("== cto/validation/0/0/1, after sft\n")
    assert rest == [
        "x\n   cost 4\\x1b, worth 9\n",
        "x\n== 0.50: as it is\n",
    ]  # control characters spelled out


def test_stages_play_the_same_validation_scenarios_and_are_compared(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["play", str(run), "--role", "cost", "--stage", "base", "--stage", "base"]
    assert main([*arguments, "--count", "4", "--show", "2"]) == 0
    out = capsys.readouterr().out
    plays = out.partition("Validation scenarios")[0].split("== cost/")[1:]
    assert all(play.startswith("validation/") and "after base" in play and "-> " in play for play in plays)
    assert [play.strip() for play in plays[:2]] == [play.strip() for play in plays[2:]]  # the same two
    assert "+0.00 [+0.00, +0.00]" in out  # a stage against itself, with the same chance


def test_greedy_play_is_another(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for temperature in ("0", "1"):
        assert main(["play", str(run), "--stage", "base", "--role", "cto", "--count", "1", "--show", "1",
                     "--temperature", temperature]) == 0  # fmt: skip
        shown.append(capsys.readouterr().out.partition("-> ")[2].partition("\n==")[0])
    assert shown[0] != shown[1]


def test_it_plays_with_the_threads_of_the_runs_workers(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert main(["play", str(run), "--stage", "base", "--role", "cost", "--count", "1"]) == 0
    assert asked == [Run.open(run).config.threads_per_worker]


def test_bad_input_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--count 0 must be 1 or more" in fail(capsys, "play", run, "--count", "0")
    assert "--show -1 must be 0 or more" in fail(capsys, "play", run, "--show", "-1")
    assert "--temperature 3 must be between 0 and 2" in fail(capsys, "play", run, "--temperature", "3")
    assert "did you mean 'sft'" in fail(capsys, "play", run, "--stage", "sftt")
    assert "make them with `emads train sft" in fail(capsys, "play", run, "--stage", "sft")


def test_new_sectors_are_played_beside_the_test_split(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--suite new-sectors --stage base --role cto --count 3"
    assert main(["evaluate", str(run), *options.split()]) == 0
    told = capsys.readouterr().out
    assert "test-new-sectors" in told
    assert "difference" in told
    kept = run / "scores" / "new-sectors"
    assert {folder.name for folder in kept.iterdir()} == {"test", "test-new-sectors"}
