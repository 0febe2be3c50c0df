"""Sealed governed episodes: what a team earns in them, and how two stages of a run are compared."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_chat

from emads.commands.stages import demo_tasks, governed_tasks
from evaluation.scoring.outcomes import StagePlays, read_stage
from evaluation.summary.run_summary import build_summary
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.team import PlanGame, PlayableCase
from simulator.agents.scripted_policies import oracle_team, remember_cases
from simulator.engines.scripted import ScriptedEngine, SeededPolicy
from training.config.loading import load_config
from training.runs.run_folder import Run
from training.stages import evaluation
from training.stages.from_config import test_cases as list_cases

SETTINGS = (
    "marl.protocol=full",
    "marl.credit.scheme=shared",
    "marl.max_completion_tokens=400",
    "evaluation.num_team_scenarios=8",
)


def mumble(transcript: str, rng: random.Random) -> str:
    return "let us see"


def play_stages(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, StagePlays]:
    """Governed scores of experts after joint training, and of a ReconcileGPT without a decision before it."""
    config = load_config(None, SETTINGS)
    known: list[PlayableCase] = [*list_cases(config)]
    experts = oracle_team(known, report_habit="measured", funding_habit="exact")
    teams: dict[str, Mapping[str, SeededPolicy]] = {"marl": experts, "grpo": {**experts, RECONCILER: mumble}}

    @contextmanager
    def serve(run: Run, models: Any, stage: str, *, end_id: int) -> Iterator[ScriptedEngine]:
        yield ScriptedEngine(tiny_chat(), seeded=teams[stage])

    def choose_game(config: Any) -> Any:
        return remember_cases(known, partial(PlanGame, style="short"))

    monkeypatch.setattr(evaluation, "serve", serve)
    monkeypatch.setattr(evaluation, "choose_game", choose_game)
    monkeypatch.setattr(evaluation, "load_team", lambda run, stage: (dict.fromkeys(TEAM_ROLES), None))
    monkeypatch.setattr(evaluation, "make_chat", lambda tokenizer, config: tiny_chat())
    run = Run.create(path, config)
    for task in governed_tasks(run):
        task.call(*task.args)
    plays = [read_stage(run.path, f"{stage}_governed", "team") for stage in teams]
    return {one.stage: one for one in plays if one is not None}


def test_experts_earn_what_their_plans_brought_and_silence_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = play_stages(tmp_path / "run", monkeypatch)
    experts, silent = scores["marl_governed"], scores["grpo_governed"]
    assert len(experts.sampled) == len(experts.greedy) == 8
    assert sum(experts.column("value")) / 8 > 0.5
    assert set(silent.column("value")) == {0.0}
    assert set(silent.column("escalation")) == {1.0}  # not reached execution as written
    assert max(silent.column("reward")) < min(experts.column("reward"))
    assert silent.greedy == silent.sampled  # nothing in these players is left to chance


def test_a_summary_compares_governed_episodes_with_governed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = play_stages(tmp_path / "run", monkeypatch)
    summary = build_summary(scores.values(), seed=0, wall_s=0.0, versions={}, weights_changed={}, signal={})
    paired = summary["team"]["paired"]
    gain = paired["marl_governed-grpo_governed"]
    after, before = scores["marl_governed"], scores["grpo_governed"]
    assert gain["mean"] == pytest.approx(sum(after.column("reward")) / 8 - sum(before.column("reward")) / 8)
    assert "marl_governed-grpo_governed_greedy" in paired


def test_only_runs_that_train_on_governed_episodes_are_scored_in_them(tmp_path: Path) -> None:
    governed = Run.create(tmp_path / "full", load_config(None, SETTINGS))
    names = {task.name: task.after for task in demo_tasks(governed)}
    assert names["evaluate/marl_governed/team"] == ("marl",)
    assert set(names["evaluate/grpo_governed/team"]) == {f"grpo/{role}" for role in TEAM_ROLES}
    short = Run.create(tmp_path / "short", load_config(None, ()))
    assert not [task.name for task in demo_tasks(short) if "governed" in task.name]
