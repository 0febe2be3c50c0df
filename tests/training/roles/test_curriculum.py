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
from tiny_models import DIFFICULTIES, same_weights, small_model, tiny_chat, tiny_tokenizer, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import UserError
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from training.config.grpo_config import GrpoConfig
from training.config.loading import load_config
from training.data.demonstrations import role_scenario
from training.roles.curriculum import Curriculum
from training.roles.grpo import GrpoOutcome, run_grpo
from training.roles.rollouts import Rollouts
from training.roles.validation import BestKeeper

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

    keeper = BestKeeper(model, patience=2)
    for step, score, stops in ((0, 0.2, False), (10, 0.6, False), (20, 0.6, False), (30, math.nan, True)):
        at(step)
        keeper.offer(step, score)
        assert keeper.should_stop is stops
    resumed = BestKeeper(model, patience=2)
    resumed.load_state(keeper.state())
    assert resumed.should_stop
    at(99)
    assert resumed.restore() == 10
    assert model.weight.item() == 10
    patient = BestKeeper(model, patience=0)
    for step in range(50):
        patient.offer(step, -step)
    assert not patient.should_stop


def draw(count: int, split: Any = "train") -> list[Scenario]:
    return [role_scenario(ROLE, split, 0, index, DIFFICULTIES, "full") for index in range(count)]


def train(
    folder: Path, *, skill: float, **changes: Any
) -> tuple[GrpoOutcome, Any, list[tuple[int, Mapping[str, float]]], list[set[int]]]:
    """Outcome, model, log and difficulties played, of a policy that is right with probability `skill`."""
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

    class Noted(Rollouts):
        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
            columns = super().__call__(prompts, trainer)
            played.append({episode.scenario.difficulty for episode in self.episodes})
            return columns

    engine = ScriptedModelEngine({ROLE: speak}, chat=tiny_chat(), end_id=tiny_chat().end_id)
    config = GrpoConfig(
        max_steps=3, prompts_per_step=2, group_size=2, learning_rate=1e-3, max_completion_tokens=640
    ).changed(**changes)
    model, log = small_model(), []
    outcome = run_grpo(
        model,
        tiny_tokenizer(),
        draw(8),
        config,
        role=ROLE,
        chat=tiny_chat(),
        output_dir=folder,
        seed=0,
        on_step=lambda step, metrics: log.append((step, metrics)),
        validation=draw(4, "validation"),
        make_rollouts=partial(Noted, engine=engine),
    )
    return outcome, model, log, played


@pytest.mark.parametrize(("skill", "reached"), [(1.0, 2), (0.0, 1)])
def test_training_goes_to_harder_scenarios_when_it_succeeds(
    tmp_path: Path, skill: float, reached: int
) -> None:
    _, _, log, played = train(
        tmp_path,
        skill=skill,
        curriculum=True,
        promote_window=4,
        promote_at=0.9,
        curriculum_replay=0.0,
    )
    levels = [row["curriculum/difficulty"] for _, row in log]  # two groups a step, four to pass
    assert levels == [1, 1, reached]
    assert played == [{1}, {1}, {reached}]


def test_validation_comes_before_training_and_the_best_step_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that cannot improve: the weights of step 0 stay the best, and patience ends the stage."""
    rested: list[Any] = []
    monkeypatch.setattr("training.roles.rollouts.rest_engine", rested.append)
    outcome, model, log, _ = train(tmp_path, skill=1.0, guards__validate_every=1, guards__patience=2)
    validated = [(step, row["validation/verified"]) for step, row in log if "validation/verified" in row]
    assert validated == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert outcome.step == 0
    assert len(rested) == 3 + 2  # an engine beside the learner gives its memory back after every play
    assert same_weights(weights_of(model), weights_of(small_model()))
    plain, _, log, _ = train(tmp_path, skill=0.5)
    assert plain.step == 3
    assert not any("validation/verified" in row for _, row in log)


@pytest.mark.slow
def test_measuring_for_alarms_changes_nothing_that_is_learnt(tmp_path: Path) -> None:
    first, second = (train(tmp_path, skill=0.5, guards__alarm_every=every) for every in (0, 1))
    assert same_weights(weights_of(first[1]), weights_of(second[1]))
    assert not same_weights(weights_of(first[1]), weights_of(small_model()))
    assert not any("alarm/kl_runaway" in row for _, row in first[2])
    assert all(row["alarm/kl_runaway"] == 0 and "kl_to_start" in row for _, row in second[2])


@pytest.mark.slow
def test_micro_batches_leave_the_step_as_it_is(tmp_path: Path) -> None:
    whole, cut = (train(tmp_path, skill=0.5, memory__micro_batch_size=size)[1] for size in (0, 2))
    pairs = zip(weights_of(whole).values(), weights_of(cut).values(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    assert not same_weights(weights_of(whole), weights_of(small_model()))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("grpo.guards.patience=3", "needs validations"),
        ("sft.patience=3", "needs validations"),
        ("grpo.memory.micro_batch_size=5", "must divide"),
        ("sft.micro_batch_size=5", "must divide"),
    ],
)
def test_options_that_do_not_fit_are_refused(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, [setting])
