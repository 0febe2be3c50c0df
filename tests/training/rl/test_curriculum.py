"""Curriculum and validation during training: measured success decides, and the best weights are kept."""

import json
import math
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import DIFFICULTIES, same_weights, small_model, tiny_chat, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import UserError
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from training.config.loading import load_config
from training.config.rl_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.rl.solo.algorithm import Curriculum, make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.runs.resume import BestKeeper, StageCheckpoints, trained_tensors
from training.runs.run_folder import Run
from training.stages.rl import train_steps

ROLE = "cost"


def test_a_level_is_passed_on_measured_success_only() -> None:
    """Three levels, mean of four groups: by hand."""
    curriculum = Curriculum((5, 1, 3), promote_at=0.7, window=4, replay=0.0)
    assert curriculum.difficulty == 1
    curriculum.take([(1, 1.0), (1, 1.0), (1, 0.5)])  # three groups are no window yet
    assert curriculum.difficulty == 1
    curriculum.take([(3, 1.0), (1, 0.2)])  # mean of the level's four: 0.675; another level's do not count
    assert curriculum.difficulty == 1
    assert curriculum.metrics() == {"curriculum/difficulty": 1.0, "curriculum/success": pytest.approx(0.675)}
    curriculum.take([(1, 0.6), (1, 1.5)])  # the last four: 0.5, 0.2, 0.6, 1.5 = 0.7
    assert curriculum.difficulty == 3
    assert curriculum.metrics()["curriculum/success"] == 0.0  # measured afresh
    curriculum.take([(1, 1.0)] * 8)
    assert curriculum.difficulty == 3
    curriculum.take([(3, 0.9)] * 4)
    assert curriculum.difficulty == 5
    curriculum.take([(5, 1.0)] * 9)
    assert curriculum.difficulty == 5  # the last level


def test_a_share_goes_back_to_levels_that_were_passed() -> None:
    curriculum = Curriculum((1, 2, 3), promote_at=0.5, window=1, replay=0.25)
    assert [curriculum.choose(i) for i in range(8)] == [1] * 8  # nothing was passed yet
    curriculum.take([(1, 1.0)])
    curriculum.take([(2, 1.0)])
    chosen = [curriculum.choose(i) for i in range(80)]
    assert [chosen.count(d) for d in (1, 2, 3)] == [10, 10, 60]
    resumed = Curriculum((1, 2, 3), promote_at=0.5, window=1, replay=0.25)
    resumed.load_state(json.loads(json.dumps(curriculum.state())))
    assert [resumed.choose(i) for i in range(80)] == chosen


def test_the_best_weights_come_back_and_patience_ends() -> None:
    model = torch.nn.Linear(1, 1, bias=False)

    def at(value: float) -> None:
        model.weight.data.fill_(value)

    keeper = BestKeeper(partial(trained_tensors, model), patience=2)
    for step, score, stops in ((0, 0.2, False), (10, 0.6, False), (20, 0.6, False), (30, math.nan, True)):
        at(step)
        keeper.offer(step, score)
        assert keeper.should_stop is stops
    resumed = BestKeeper(partial(trained_tensors, model), patience=2)
    resumed.load_state(keeper.state())
    assert resumed.should_stop
    at(99)
    assert resumed.restore() == 10
    assert model.weight.item() == 10
    patient = BestKeeper(partial(trained_tensors, model), patience=0)
    for step in range(50):
        patient.offer(step, -step)
    assert not patient.should_stop


def draw(count: int, split: Any = "train") -> list[Scenario]:
    return [role_scenario(ROLE, split, 0, index, DIFFICULTIES, "full") for index in range(count)]


def train(
    folder: Path, *, skill: float, **changes: Any
) -> tuple[int, Any, list[tuple[int, Mapping[str, float]]], list[set[int]]]:
    """Best step, model, log and difficulties played, of a policy that is right with probability `skill`."""
    hard = [FAMILIES[ROLE].generate("train", 0, index, d) for index in range(8) for d in DIFFICULTIES]
    known = [*hard, *draw(4, "validation")]
    expert = oracle_solo(known)
    played: list[set[int]] = []  # by batch

    def speak(transcript: str, rng: random.Random) -> str:
        found = [one for one in known if one.brief in transcript]
        scenario = max(found, key=lambda one: len(one.brief))  # an easier brief may begin a harder one
        return (
            expert(transcript) if rng.random() < skill else FAMILIES[ROLE].baselines["random"](scenario, rng)
        )

    config = GrpoConfig(
        max_steps=3, prompts_per_step=2, group_size=2, learning_rate=1e-3, max_completion_tokens=640
    ).changed(**changes)
    chat = tiny_chat()
    learner = make_solo_learner(
        {ROLE: small_model()},
        config,
        player=SoloPlayer(config=config, chat=chat),
        chat=chat,
        seed=0,
        difficulties=DIFFICULTIES,
        engine=ScriptedModelEngine({ROLE: speak}, chat=chat, end_id=chat.end_id),
    )
    monitor: Any = learner.monitor

    def choose(step: int) -> list[Scenario]:
        chosen: list[Scenario] = monitor.choose(draw(8)[2 * step : 2 * step + 2], 2 * step)
        played.append({scenario.difficulty for scenario in chosen})
        return chosen

    run = Run.create(folder / "run", load_config(None, ["name=test"]))
    best = train_steps(
        run,
        f"grpo/{ROLE}",
        learner,
        choose,
        StageCheckpoints(run, f"grpo/{ROLE}", every_steps=100),
        validation=draw(4, "validation"),
        validates_start=True,
        units=5,
        show=lambda metrics: {},
    )
    log: list[tuple[int, Mapping[str, float]]] = [
        (row.step, row.metrics) for row in run.read_metrics(f"grpo/{ROLE}")
    ]
    return best.restore(), learner.models[ROLE], log, played


@pytest.mark.parametrize(("skill", "reached"), [(1.0, 2), (0.0, 1)])
def test_training_goes_to_harder_scenarios_when_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skill: float, reached: int
) -> None:
    shorter = partial(Curriculum, window=4, replay=0.0, promote_at=0.9)
    monkeypatch.setattr("training.rl.solo.algorithm.Curriculum", shorter)
    _, _, log, played = train(
        tmp_path,
        skill=skill,
        curriculum=True,
    )
    levels = [row["curriculum/difficulty"] for _, row in log]  # two groups a step, four to pass
    assert levels == [1, 1, reached]
    assert played == [{1}, {1}, {reached}]


def test_validation_comes_before_training_and_the_best_step_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that cannot improve: the weights of step 0 stay the best, and patience ends the stage."""
    rested: list[Any] = []
    monkeypatch.setattr("training.rl.loop.release_engine_memory", rested.append)
    step, model, log, _ = train(tmp_path, skill=1.0, guards__validate_every=1, guards__patience=2)
    validated = [(step, row["validation_reward"]) for step, row in log if "validation_reward" in row]
    assert validated == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert step == 0
    assert len(rested) == 3 + 2  # an engine beside the learner gives its memory back after every play
    assert same_weights(weights_of(model), weights_of(small_model()))
    plain, _, log, _ = train(tmp_path / "plain", skill=0.5)
    assert plain == 3
    assert not any("validation_reward" in row for _, row in log)


@pytest.mark.slow
def test_measuring_for_alarms_changes_nothing_that_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("training.rl.solo.algorithm.SoloMonitor._watch", lambda self, groups, metrics: {})
        first = train(tmp_path / "unwatched", skill=0.5)
    monkeypatch.setattr("training.rl.solo.algorithm.ALARM_EVERY", 1)
    second = train(tmp_path / "watched", skill=0.5)
    assert same_weights(weights_of(first[1]), weights_of(second[1]))
    assert not same_weights(weights_of(first[1]), weights_of(small_model()))
    assert not any("kl_to_start" in row for _, row in first[2])
    assert all(row["alarm/kl_runaway"] == 0 and "kl_to_start" in row for _, row in second[2])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("grpo.guards.patience=3", "needs validations"),
        ("sft.patience=3", "needs validations"),
        ("grpo={curriculum: true, max_staleness: 1, loss: {importance: token}}", "leave max_staleness at 0"),
        ("grpo={trained_per_group: 2, credit: {estimator: gae}}", "compares no group"),
        ("sft.micro_batch_size=5", "must divide"),
    ],
)
def test_options_that_do_not_fit_are_refused(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, [setting])
