"""Alarms on policies built to set them off, on a healthy one and on a flat one: real rollouts and scorers."""

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tiny_models import DIFFICULTIES, small_model, tiny_chat

from reliability.joint.scripted_models import ScriptedModelEngine
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import SoloEpisode
from training.config.rl_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.rl.solo.alarms import NAMES, WINDOW, Alarms
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer

ROLE = "cost"
NUM_BATCHES, PROMPTS, GROUP = 4 * WINDOW, 8, 2
CONFIG = GrpoConfig().changed(group_size=GROUP, max_completion_tokens=640)
SCENARIOS = [
    role_scenario(ROLE, "train", 0, index, DIFFICULTIES, "full") for index in range(NUM_BATCHES * PROMPTS)
]
Policy = Callable[[float, Scenario, random.Random], str | None]  # progress 0 to 1; None: as the expert


def watch(
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    *,
    drift: float = 0.0,
    pay: Callable[[SoloEpisode], float] | None = None,
) -> tuple[dict[str, str], list[dict[str, float]]]:
    """A stage of rollouts of a policy that changes: the alarms that stand at its end, and all metrics.

    `drift` moves the model's weights from batch to batch; `pay` is what the training reward is instead.
    """
    expert = oracle_solo(SCENARIOS)
    now = {"progress": 0.0}
    by_brief = {scenario.brief: scenario for scenario in SCENARIOS}

    def speak(transcript: str, rng: random.Random) -> str:
        scenario = next(one for brief, one in by_brief.items() if brief in transcript)
        said = policy(now["progress"], scenario, rng)
        return expert(transcript) if said is None else said

    monkeypatch.setattr("training.rl.solo.algorithm.ALARM_EVERY", 1)
    if pay is not None:
        monkeypatch.setattr(
            "training.rl.solo.play.episode_reward", lambda episode, config: {"total": pay(episode)}
        )
    model: Any = small_model()
    chat = tiny_chat()
    learner = make_solo_learner(
        {ROLE: model},
        CONFIG,
        player=SoloPlayer(config=CONFIG, chat=chat),
        chat=chat,
        seed=0,
        engine=ScriptedModelEngine({ROLE: speak}, chat=chat, end_id=chat.end_id),
    )
    alarms = learner.monitor.alarms  # type: ignore[attr-defined]
    seen = []
    generator = torch.Generator().manual_seed(0)
    for batch in range(NUM_BATCHES):
        now["progress"] = batch / (NUM_BATCHES - 1)
        scored = learner.scorer.score(learner.play(SCENARIOS[batch * PROMPTS : (batch + 1) * PROMPTS]))
        seen.append(learner.monitor.measure(scored, {}, {}))
        learner.updater.num_steps += 1
        for parameter in model.parameters():
            parameter.data += drift * torch.randn(parameter.shape, generator=generator)
    assert seen[-1] | alarms.metrics() == seen[-1]
    return alarms.standing, seen


def guess(scenario: Scenario, rng: random.Random) -> str:
    return FAMILIES[ROLE].baselines["random"](scenario, rng)


def learn(progress: float, scenario: Scenario, rng: random.Random) -> str | None:
    """Right more and more often, and less and less varied for it."""
    return None if rng.random() < 0.3 + 0.65 * progress else guess(scenario, rng)


def stay(progress: float, scenario: Scenario, rng: random.Random) -> str | None:
    return None if rng.random() < 0.5 else guess(scenario, rng)


def repeat_one_answer(progress: float, scenario: Scenario, rng: random.Random) -> str | None:
    """From a third on ever more often the same words, whatever the case."""
    if rng.random() < 2 * (progress - 0.3):
        return json.dumps(FAMILIES[ROLE].solve(SCENARIOS[0]))
    return stay(progress, scenario, rng)


def overstate(progress: float, scenario: Scenario, rng: random.Random) -> str | None:
    """Ever more often nothing bought, hard limit or not, with a worth made up."""
    if rng.random() < progress:
        return json.dumps({"part": [], "cost": 0, "worth": 10 + rng.randrange(60)})
    return None if rng.random() < 0.8 else guess(scenario, rng)


def pay_for_cheapness(episode: SoloEpisode) -> float:
    """A broken reward: how little the answer says it costs, whatever the part is worth."""
    try:
        cost = json.loads(episode.trajectory.final_text.partition("{")[2].join(["{", ""]))["cost"]
    except (ValueError, KeyError):
        return 0.0
    return max(0.0, 1 - float(cost) / 20)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [learn, stay])
def test_no_alarm_on_a_healthy_and_on_a_flat_policy(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    standing, seen = watch(monkeypatch, policy, drift=0.0005)
    assert standing == {}
    assert all(row[f"alarm/{name}"] == 0 for row in seen for name in NAMES)
    assert all(0 < row["audit"] <= 1 and 0 <= row["kl_to_start"] < 0.05 for row in seen)
    first, last = (sum(row["verified"] for row in rows) for rows in (seen[:WINDOW], seen[-WINDOW:]))
    assert (last - first) / WINDOW > 0.2 if policy is learn else abs(last - first) / WINDOW < 0.2


@pytest.mark.slow
def test_the_same_answer_to_every_case_is_a_collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, seen = watch(monkeypatch, repeat_one_answer)
    assert set(standing) == {"mode_collapse"}
    assert "different answers to different cases fell" in standing["mode_collapse"]
    assert seen[-1]["answer_variety"] < 0.5 * seen[0]["answer_variety"]
    assert [row["alarm/mode_collapse"] for row in seen] == sorted(row["alarm/mode_collapse"] for row in seen)


@pytest.mark.slow
def test_weights_that_run_away_are_told_by_their_kl(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, seen = watch(monkeypatch, stay, drift=0.05)
    assert set(standing) == {"kl_runaway"}
    assert seen[0]["kl_to_start"] == pytest.approx(0, abs=1e-5)
    assert seen[-1]["kl_to_start"] > 0.5


@pytest.mark.slow
def test_a_reward_that_rises_while_the_audit_falls_is_hacked(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, seen = watch(monkeypatch, overstate, pay=pay_for_cheapness)
    assert set(standing) == {"reward_hacking"}
    assert seen[-1]["reward/total"] > seen[0]["reward/total"] + 0.2
    assert seen[-1]["audit"] < seen[0]["audit"] - 0.2


@pytest.mark.slow
def test_the_same_decline_under_an_honest_reward_is_no_hack(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, seen = watch(monkeypatch, overstate)
    assert "reward_hacking" not in standing
    assert seen[-1]["audit"] < seen[0]["audit"] - 0.2


def feed(alarms: Alarms, count: int, **changes: Any) -> dict[str, str]:
    row: dict[str, Any] = {"reward": [0.5, 0.7], "surprise": 0.2, "variety": 0.9, "verified": 0.6, "kl": 0.01}
    found: dict[str, str] = {}
    for _ in range(count):
        found |= alarms.take(**(row | changes))
    return found


def test_lost_variety_of_sampling_is_a_collapse_only_where_nothing_was_gained() -> None:
    for verified, expected in ((0.6, {"mode_collapse"}), (0.67, {"mode_collapse"}), (0.69, set())):
        alarms = Alarms()
        feed(alarms, WINDOW)
        assert (
            set(feed(alarms, WINDOW, surprise=0.019, verified=verified)) == expected
        )  # a fifth of 0.4 is 0.08


def test_kl_that_triples_from_window_to_window_runs_away() -> None:
    alarms = Alarms()
    for kl in (0.01, 0.035, 0.06):
        assert feed(alarms, WINDOW, kl=kl) == {}  # 0.06: less than 3 times 0.035
    alarms = Alarms()
    for kl in (0.01, 0.035):
        assert feed(alarms, WINDOW, kl=kl) == {}
    assert set(feed(alarms, WINDOW, kl=0.12)) == {"kl_runaway"}
    assert set(feed(Alarms(), WINDOW, kl=math.nan)) == {"kl_runaway"}


def test_alarms_go_on_after_a_resume() -> None:
    alarms, resumed = Alarms(), Alarms()
    feed(alarms, WINDOW)
    resumed.load_state(json.loads(json.dumps(alarms.state())))
    changed: Sequence[dict[str, str]] = [feed(one, WINDOW, variety=0.3) for one in (alarms, resumed)]
    assert changed[0] == changed[1]
    assert set(changed[0]) == {"mode_collapse"}
    assert feed(resumed, WINDOW, variety=0.3) == {}  # it stands, and is told once
    assert resumed.metrics() == {"alarm/mode_collapse": 1, "alarm/kl_runaway": 0, "alarm/reward_hacking": 0}
