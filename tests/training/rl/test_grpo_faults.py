"""Rewards that fail: by kind, logged, the whole group left out, and the rest of the step exactly right."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpo_cases
import pytest
import torch
from grpo_cases import ROLE, draw
from planned_faults import parse_fault, plan_faults
from tiny_models import same_weights, small_model, tiny_chat, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import InfrastructureError
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from simulator.engines.base import Completion, CompletionRequest
from training.config.rl_config import GrpoConfig
from training.rl.records import RewardParts
from training.rl.solo.play import FaultWindow, score_all
from training.runs.run_errors import FaultyRunError

CONFIG = GrpoConfig(
    max_steps=1, prompts_per_step=2, group_size=4, learning_rate=1e-3, max_turns=4, max_completion_tokens=60
)


def fail(error: Exception) -> float:
    raise error


SPOILT: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (lambda: {"total": math.nan}, "reward part total is nan"),
    "inf": (lambda: {"total": 0.5, "format": -math.inf}, "reward part format is -inf"),
    "huge": (lambda: {"total": 1e308}, "reward part total is 1e+308"),
    "none": (lambda: {"total": None}, "reward part total is None"),
    "wrong shape": (lambda: [0.5, 0.5], "is not reward parts with a total"),
    "exception": (lambda: fail(ZeroDivisionError("division by zero")), "ZeroDivisionError: division"),
}


@pytest.mark.parametrize("place", [0, 3, 4, 7, 11])
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_one_spoilt_reward_takes_its_group_and_nothing_else(kind: str, place: int) -> None:
    make, reason = SPOILT[kind]

    def score(number: int) -> Any:
        return make() if number == place else {"total": number / 10}

    scored = score_all(range(12), score)
    assert [number for number, one in enumerate(scored) if one.parts is None] == [place]
    assert scored[place].fault == "reward"
    assert reason in scored[place].reason
    assert [one.parts for n, one in enumerate(scored) if n != place] == [
        {"total": number / 10} for number in range(12) if number != place
    ]


def test_what_an_engine_lost_is_told_from_a_broken_reward() -> None:
    items: list[Any] = [1, InfrastructureError("worker lost"), KeyError("x")]
    scored = score_all(items, lambda item: {"total": float(item)})
    assert [one.fault for one in scored] == ["", "infrastructure", "reward"]
    assert scored[1].reason == "worker lost"


def test_a_few_faults_pass_and_too_many_stop_the_run() -> None:
    good = RewardParts(parts={"total": 0.0})
    bad = RewardParts(parts=None, fault="infrastructure", reason="worker lost")
    window = FaultWindow()
    for _ in range(5):
        window.take([*[good] * 38, bad, bad], num_usable=32)  # 10 of 200: 5 %
    resumed = FaultWindow()
    resumed.load_state(window.state())
    for one in (window, resumed):
        with pytest.raises(FaultyRunError, match=r"11 of the last 200 episodes.*worker lost"):
            one.take([*[bad] * 3, *[good] * 37], num_usable=36)  # 40 samples and 2 faults leave the window
    assert FaultyRunError.status not in (0, 1, 2, 3, 4, 5, 6)


def test_batches_without_any_group_stop_the_run() -> None:
    bad = RewardParts(parts=None, fault="reward", reason="reward part total is nan")
    window = FaultWindow()
    for _ in range(2):
        window.take([bad], num_usable=0)
    with pytest.raises(FaultyRunError, match="total is nan"):
        window.take([bad], num_usable=0)


@pytest.fixture(autouse=True)
def no_planned_faults() -> Iterator[None]:
    """Faults that a test plans end with it."""
    yield
    plan_faults([])


def make_engine() -> ScriptedModelEngine:
    """Speaks like the expert half of the time, else answers at random."""
    expert = oracle_solo(draw(8))

    def speak(transcript: str, rng: random.Random) -> str:
        if rng.random() < 0.6:
            return expert(transcript)
        scenario = next(one for one in draw(8) if one.brief in transcript)
        return FAMILIES[ROLE].baselines["random"](scenario, rng)

    return ScriptedModelEngine({ROLE: speak}, chat=tiny_chat(), end_id=tiny_chat().end_id)


def train(
    scenarios: Sequence[Scenario], planned: Sequence[str] = (), **changes: Any
) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """The weights after all steps, and the metrics of each."""
    plan_faults([parse_fault(text) for text in planned])
    config = CONFIG.changed(**changes)
    references = {ROLE: small_model()} if config.needs_reference else None
    model, log = grpo_cases.train(config, scenarios=scenarios, engine=make_engine(), references=references)
    return weights_of(model), log


@pytest.mark.parametrize(
    ("kind", "loss"),
    [(kind, "grpo") for kind in ("nan", "inf", "huge", "none", "raise")]
    + [("nan", "dr_grpo"), ("nan", "dapo")],
)
def test_the_rest_of_the_step_is_as_if_the_group_had_not_been_played(kind: str, loss: str) -> None:
    """The second group of two is spoilt: the step equals one on the first group alone, KL term included."""
    options: dict[str, Any] = {"loss__kind": loss, "loss__kl_coefficient": 0.1, "max_steps": 2}
    first = draw(1)
    alone, _ = train(first * 2, prompts_per_step=1, **options)
    spoilt, log = train(first * 4, [f"{kind}@reward:6", f"{kind}@reward:14"], **options)
    assert all(torch.allclose(spoilt[name], value, atol=1e-7) for name, value in alone.items())
    assert not same_weights(alone, weights_of(small_model()))
    assert [(row["faults/reward"], row["groups_left_out"]) for row in log] == [(1.0, 0.5)] * 2
    assert all(torch.isfinite(value).all() for value in spoilt.values())


def test_level_groups_are_not_pulled_back_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step moves the policy away; in the second all rewards are equal, so that KL has no say."""
    rewards = iter([1.0, 0.0, 0.75, 0.25, 0.3, 0.3, 0.3, 0.3, *[0.3] * 8])
    monkeypatch.setattr(
        "training.rl.solo.play.episode_reward", lambda episode, config: {"total": next(rewards)}
    )
    _, log = train(draw(4), loss__kl_coefficient=0.5, max_steps=2)
    assert [row["grad_norm"] > 0 for row in log] == [True, False]


def test_a_batch_without_rewards_moves_nothing() -> None:
    """Not even by momentum: the second of two steps loses all its groups."""
    one_step, _ = train(draw(4), max_steps=1)
    planned = [f"nan@reward:{9 + 4 * group}" for group in range(2)]
    two_steps, log = train(draw(4), planned, max_steps=2)
    assert log[1]["groups_left_out"] == 1.0
    assert "verified" not in log[1]
    assert same_weights(one_step, two_steps)


def test_a_reward_that_is_never_a_number_stops_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.rl.solo.play.episode_reward", lambda episode, config: {"total": math.nan})
    with pytest.raises(FaultyRunError, match="kind reward: reward part total is nan"):
        train(draw(8), max_steps=4)


def test_a_lost_engine_stops_training_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail_always(self: Any, request: CompletionRequest) -> Completion:
        raise InfrastructureError("worker lost")

    monkeypatch.setattr(ScriptedModelEngine, "complete", fail_always)
    with pytest.raises(FaultyRunError, match="kind infrastructure: worker lost"):
        train(draw(8), max_steps=4)


def test_one_lost_episode_takes_its_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = ScriptedModelEngine.complete

    async def fail_once(self: ScriptedModelEngine, request: CompletionRequest) -> Completion:
        if request.session.startswith("grpo/0/1/"):
            raise InfrastructureError("worker lost")
        return await complete(self, request)

    monkeypatch.setattr(ScriptedModelEngine, "complete", fail_once)
    _, log = train(draw(2))
    assert (log[0]["faults/infrastructure"], log[0]["groups_left_out"]) == (1.0, 0.5)
    assert 0 < log[0]["verified"] <= 1
