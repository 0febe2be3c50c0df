"""GRPO through TRL: columns are the sampled ids, rewards are the verifier's, two steps train."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from grpo_cases import CONFIG, ROLE, draw
from sandboxes import run_or_be_refused
from tiny_models import RecordingEngine, same_weights, small_model, tiny_chat, tiny_tokenizer, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import UserError
from scenarios.base import Scenario, Verdict
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import SoloEpisode
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.hf_chat import HFChat
from simulator.records import Trajectory
from training.config.grpo_config import GrpoConfig
from training.roles import grpo
from training.roles.grpo import estimate_advantages, run_grpo, verified_reward
from training.roles.rollouts import Rollouts, episode_reward

PROGRAM = "```python\nprint(6 * 7)\n```"
ANSWER_AFTER_CODE = '{"order": [], "makespan": 42}'
Engines = list[Any]
Log = list[tuple[int, Mapping[str, float]]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Rollouts speak like the expert half of the time, else they answer at random; engines are collected."""
    engines: Engines = []
    expert = oracle_solo(draw(8))

    def speak(transcript: str, rng: random.Random) -> str:
        if rng.random() < 0.6:
            return expert(transcript)
        scenario = next(one for one in draw(8) if one.brief in transcript)
        return FAMILIES[ROLE].baselines["random"](scenario, rng)

    def make(*, end_id: int, seed: int) -> ScriptedModelEngine:
        engine = ScriptedModelEngine({ROLE: speak}, chat=tiny_chat(), end_id=end_id, seed=seed)
        engines.append(engine)
        return engine

    monkeypatch.setattr("training.roles.rollouts.TransformersEngine", make)
    return engines


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Engines:
    engines: Engines = []

    def make(**options: Any) -> RecordingEngine:
        engine = RecordingEngine(**options)
        engines.append(engine)
        return engine

    monkeypatch.setattr("training.roles.rollouts.TransformersEngine", make)
    return engines


def make_rollouts(config: GrpoConfig = CONFIG) -> Rollouts:
    return Rollouts(draw(8), role=ROLE, chat=tiny_chat(), config=config, seed=0)


def fake_trainer(model: Any, step: int = 0) -> Any:
    """What a rollout function reads of its trainer."""
    return SimpleNamespace(find_actor=lambda: model, state=SimpleNamespace(global_step=step))


@pytest.mark.parametrize("engines", ["scripted", "real"])
def test_columns_are_exactly_the_sampled_ids(engines: str, request: pytest.FixtureRequest) -> None:
    """Against the engine's own record: prompt, own tokens and observations, mask on own ones only."""
    made: Engines = request.getfixturevalue(engines)
    rollouts = make_rollouts()
    columns = rollouts(
        ["0", "0", "0", "3", "3", "3"] if engines == "real" else [*"000000333333"],
        fake_trainer(small_model()),
    )
    sessions: dict[str, list[tuple[CompletionRequest, Completion]]] = {}
    for call in made[0].calls:
        sessions.setdefault(call[0].session, []).append(call)
    assert len(sessions) == len(rollouts.episodes)
    for place, episode in enumerate(rollouts.episodes):
        calls = sessions[episode.trajectory.session]
        prompt, completion, logprobs, mask = (
            columns[name][place] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        )
        first, (last, answer) = calls[0][0], calls[-1]
        assert tuple(prompt) == first.prompt_ids
        assert tuple(prompt + completion) == last.prompt_ids + answer.token_ids
        own: dict[int, float] = {}
        for asked, spoken in calls:
            start = len(asked.prompt_ids) - len(prompt)
            own.update(zip(range(start, start + len(spoken.token_ids)), spoken.logprobs, strict=True))
        assert mask == [int(i in own) for i in range(len(completion))]
        assert logprobs == [own.get(i, 0.0) for i in range(len(completion))]
    half = len(rollouts.episodes) // 2
    assert [e.scenario.index for e in rollouts.episodes] == [0] * half + [3] * half
    if engines == "scripted":
        assert any(0 in mask for mask in columns["env_mask"])  # observations stand between own words


def test_rewards_are_the_verifiers(scripted: Engines) -> None:
    rollouts = make_rollouts()
    columns = rollouts([str(i // 4) for i in range(16)], fake_trainer(small_model()))
    family = FAMILIES[ROLE]
    for episode, total in zip(rollouts.episodes, columns["verified_reward"], strict=True):
        verdict = family.verify(episode.scenario, episode.trajectory.final_text)
        assert episode.verdict == verdict
        assert total == pytest.approx(verdict.reward + 0.1)
    assert verified_reward([], columns["verified_reward"]) == columns["verified_reward"]
    assert len(set(columns["verified_reward"])) > 2


def test_rollout_metrics_are_those_of_the_episodes(scripted: Engines) -> None:
    rollouts = make_rollouts()
    columns = rollouts([str(i // 4) for i in range(16)], fake_trainer(small_model()))
    metrics, totals = rollouts.metrics, columns["verified_reward"]
    groups = [totals[i : i + 4] for i in range(0, 16, 4)]
    assert metrics["groups_with_signal"] == statistics.fmean(len(set(group)) > 1 for group in groups) > 0
    assert metrics["verified"] == pytest.approx(statistics.fmean(e.verdict.reward for e in rollouts.episodes))
    assert metrics["exact"] == statistics.fmean(e.verdict.exact for e in rollouts.episodes)
    assert metrics["turns"] == statistics.fmean(len(e.trajectory.turns) for e in rollouts.episodes)
    assert metrics["reward/total"] == pytest.approx(statistics.fmean(totals))
    parts = {name: value for name, value in metrics.items() if name.startswith("reward/")}
    assert set(parts) == {"reward/correctness", "reward/format", "reward/step", "reward/total"}
    assert parts["reward/format"] == pytest.approx(0.1)


def test_later_calls_sample_afresh_and_know_their_weights(real: Engines) -> None:
    rollouts = make_rollouts(CONFIG.changed(max_completion_tokens=8))
    model = small_model()
    first, second = (rollouts(["0", "1"], fake_trainer(model, step)) for step in (0, 1))
    assert first["prompt_ids"] == second["prompt_ids"]
    assert first["completion_ids"] != second["completion_ids"]
    assert {completion.policy_version for _, completion in real[1].calls} == {f"{ROLE}@1"}


def episode(reward: float, num_turns: int, *, exact: bool) -> SoloEpisode:
    scenario = draw(1)[0]
    verdict = Verdict(
        reward=reward,
        parts={},
        exact=exact,
        feasible=True,
        explanation="",
        failure=None if exact else "suboptimal",
    )
    trajectory = Trajectory(
        role=ROLE,
        session="s",
        turns=(None,) * num_turns,  # type: ignore[arg-type]
        num_tool_calls=num_turns - 1,
        num_valid_tool_calls=num_turns - 1,
        ended_by="answer",
        final_text="",
    )
    return SoloEpisode(scenario=scenario, trajectory=trajectory, verdict=verdict)


@pytest.mark.parametrize(
    ("preset", "num_turns", "total"),
    [
        ("rlvr", 2, 1.0 + 0.1 - 2 * 0.02),
        ("rlvr", 3, 1.0 + 0.1 - 3 * 0.02),
        (
            "default",
            7,
            1.0 + 0.3 * (1 - 7 / 8) + 0.2,
        ),  # the case takes up to six calls: 7 steps of at most 8
        ("default", 8, 1.0 + 0.2 - 0.1),  # one step more than needed
    ],
)
def test_the_reward_preset_of_the_config_is_used(preset: str, num_turns: int, total: float) -> None:
    config = CONFIG.changed(**{"reward": preset, "reward_weights": {}})
    assert draw(1)[0].optimal_tool_calls == 6
    assert episode_reward(episode(1.0, num_turns, exact=True), config)["total"] == pytest.approx(total)


def test_the_reward_weights_of_the_config_are_used() -> None:
    config = CONFIG.changed(reward_weights={"step": 0.05, "correctness": 2.0})
    parts = episode_reward(episode(0.5, 3, exact=True), config)
    assert parts == pytest.approx({"correctness": 1.0, "format": 0.1, "step": -0.15, "total": 0.95})
    assert episode_reward(episode(1.0, 3, exact=True), GrpoConfig())["step"] == 0  # the demo charges no steps
    with pytest.raises(UserError, match=r"steps.*did you mean 'step'"):
        GrpoConfig(reward_weights={"steps": 0.1})


@pytest.mark.parametrize(
    ("kind", "offers_tools", "mentions_code", "num_turns", "num_calls"),
    [("chat", False, False, 1, 0), ("react", True, False, 1, 0), ("code", True, True, 2, 1)],
)
def test_the_kind_of_agent_of_the_config_plays_and_is_trained_on(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    offers_tools: bool,
    mentions_code: bool,
    num_turns: int,
    num_calls: int,
) -> None:
    """A program is the policy's own text, what it printed is masked; only a code agent's is run."""

    def speak(transcript: str, rng: random.Random) -> str:
        return ANSWER_AFTER_CODE if "42" in transcript.split("<|tool|>")[-1] else PROGRAM

    chat = HFChat(tiny_tokenizer())
    monkeypatch.setattr(
        "training.roles.rollouts.TransformersEngine",
        lambda *, end_id, seed: ScriptedModelEngine({ROLE: speak}, chat=chat, end_id=end_id, seed=seed),
    )

    def act() -> None:
        config = CONFIG.changed(agent=kind, max_completion_tokens=90)
        rollouts = Rollouts(draw(8), role=ROLE, chat=chat, config=config, seed=0)
        columns = rollouts(["0"] * 4, fake_trainer(small_model()))
        prompt = chat.decode(tuple(columns["prompt_ids"][0]))
        assert (" Tools " in prompt) == offers_tools
        assert ("```python block" in prompt) == mentions_code
        (one, *_) = rollouts.episodes
        assert (len(one.trajectory.turns), one.trajectory.num_valid_tool_calls) == (num_turns, num_calls)
        completion, mask = columns["completion_ids"][0], columns["env_mask"][0]
        own, given = (
            chat.decode(tuple(token for token, is_own in zip(completion, mask, strict=True) if is_own == one))
            for one in (1, 0)
        )
        assert PROGRAM in own
        assert ("42" in given) == (kind == "code")

    if kind == "code":
        run_or_be_refused(act)
    else:
        act()


def test_code_agents_are_refused_before_training_where_no_sandbox_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> str:
        raise UserError("programs run only in a sandbox")

    monkeypatch.setattr("training.roles.rollouts.find_sandbox", refuse)
    with pytest.raises(UserError, match="sandbox"):
        make_rollouts(CONFIG.changed(agent="code"))
    make_rollouts(CONFIG.changed(agent="react"))


def test_failed_calls_cut_a_trajectory_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One good call, then a bad one each turn: the limit counts the bad ones only."""

    def speak(transcript: str, rng: random.Random) -> str:
        return expert(transcript) if transcript.count("<|assistant|>") == 1 else "<tool_call>no</tool_call>"

    expert = oracle_solo(draw(8))
    monkeypatch.setattr(
        "training.roles.rollouts.TransformersEngine",
        lambda *, end_id, seed: ScriptedModelEngine(
            {ROLE: speak}, chat=tiny_chat(), end_id=end_id, seed=seed
        ),
    )
    for limit, num_turns in ((1, 2), (2, 3), (9, 4)):
        rollouts = make_rollouts(CONFIG.changed(max_failed_calls=limit, max_turns=4))
        rollouts(["0", "0"], fake_trainer(small_model()))
        for played in rollouts.episodes:
            assert len(played.trajectory.turns) == num_turns
            assert (played.trajectory.num_valid_tool_calls, played.trajectory.num_tool_calls) == (
                1,
                num_turns,
            )
            assert played.trajectory.truncated
            assert played.verdict.failure == "no_answer"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_verifier_stops_the_stage_by_name(value: float) -> None:
    with pytest.raises(ValueError, match=f"returned the reward {value!r}"):
        verified_reward([], [0.5, value, 0.2])


def train(
    folder: Path, *, config: GrpoConfig = CONFIG, seed: int = 0, scenarios: Sequence[Scenario] = ()
) -> tuple[Any, Log, list[list[str]]]:
    """The model after run_grpo, what was logged, and the prompts of every rollout call."""
    model, log, asked = small_model(), Log(), []

    class Noted(Rollouts):
        def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
            asked.append(list(prompts))
            return super().__call__(prompts, trainer)

    run_grpo(
        model,
        tiny_tokenizer(),
        scenarios or draw(4),
        config,
        role=ROLE,
        chat=tiny_chat(),
        output_dir=folder,
        seed=seed,
        on_step=lambda step, metrics: log.append((step, metrics)),
        make_rollouts=Noted,
    )
    return model, log, asked


def test_two_steps_train_on_groups_of_the_same_scenario(scripted: Engines, tmp_path: Path) -> None:
    model, log, asked = train(tmp_path)
    assert not same_weights(weights_of(model), weights_of(small_model()))
    assert [step for step, _ in log] == [1, 2]
    for _, metrics in log:
        assert metrics["grad_norm"] > 0
        assert 0 < metrics["groups_with_signal"] <= 1
        assert metrics["reward"] == pytest.approx(metrics["reward/total"], abs=1e-4)  # TRL's mean is ours
        assert metrics["frac_reward_zero_std"] == 1 - metrics["groups_with_signal"]
    assert [len(prompts) for prompts in asked] == [8, 8]
    for prompts in asked:
        assert [len(set(prompts[i : i + 4])) for i in (0, 4)] == [1, 1]
    assert sorted({prompt for prompts in asked for prompt in prompts}) == ["0", "1", "2", "3"]
    again = train(tmp_path)
    assert same_weights(weights_of(model), weights_of(again[0]))
    assert again[1][1][1]["reward"] == log[1][1]["reward"]


def test_loss_and_optimizer_options_reach_the_trainer(scripted: Engines, tmp_path: Path) -> None:
    plain = weights_of(train(tmp_path, config=CONFIG)[0])
    changes: list[dict[str, Any]] = [
        {"loss__kind": "dr_grpo"},
        {"adam_epsilon": 1e-2},
        {"estimator": "grpo"},
    ]
    for change in changes:
        assert not same_weights(plain, weights_of(train(tmp_path, config=CONFIG.changed(**change))[0])), (
            change
        )


def test_the_engine_plays_the_weights_in_training(scripted: Engines, tmp_path: Path) -> None:
    model = train(tmp_path)[0]
    assert [engine.models[ROLE][0] is model for engine in scripted] == [True, True]
    versions = [engine.calls[0][1].policy_version for engine in scripted]
    assert versions == [f"{ROLE}@0", f"{ROLE}@1"]


def test_equal_rewards_train_nothing(real: Engines, tmp_path: Path) -> None:
    """Random weights say nothing valid: every group is level."""
    model, log, _ = train(tmp_path, config=CONFIG.changed(max_completion_tokens=6))
    assert same_weights(weights_of(model), weights_of(small_model()))
    assert [metrics["groups_with_signal"] for _, metrics in log] == [0.0, 0.0]
    assert [metrics["grad_norm"] for _, metrics in log] == [0.0, 0.0]


def test_no_steps_leave_the_model_as_it_is(scripted: Engines, tmp_path: Path) -> None:
    model, log, asked = train(tmp_path, config=CONFIG.changed(max_steps=0))
    assert same_weights(weights_of(model), weights_of(small_model()))
    assert (log, asked) == ([], [])


def test_a_group_that_was_left_out_has_no_advantage_and_no_part_in_the_others() -> None:
    rewards = torch.tensor([1.0, 0.0, float("nan"), float("nan"), 0.8, 0.6])
    assert estimate_advantages(rewards, 2, "rloo").tolist() == pytest.approx([1.0, -1.0, 0, 0, 0.2, -0.2])
    assert estimate_advantages(rewards[2:4], 2, "reinforce_pp").tolist() == [0, 0]


def test_advantages_of_a_part_of_the_group_weigh_as_much_as_those_of_all() -> None:
    """0 and 1 of [.5, 0, 1, .6] are .5 from their mean; two of four speak, so each counts twice."""
    found = estimate_advantages(torch.tensor([0.5, 0.0, 1.0, 0.6]), 4, "dr_grpo", 2)
    assert found.tolist() == pytest.approx([0, -1.0, 1.0, 0])
    lost = torch.tensor([0.5, math.nan, 1.0, 0.6])
    assert estimate_advantages(lost, 4, "dr_grpo", 2).tolist() == [0, 0, 0, 0]


def test_a_part_of_a_group_is_two_rows_or_more() -> None:
    for count in (1, 9):
        with pytest.raises(ValueError, match="2 to 8 "):
            GrpoConfig(group_size=8, trained_per_group=count)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("dr_grpo", [0.5, -0.5, 0.25, -0.25, 0.0, 0.0, 0.0, 0.0]),
        # sample deviation of the first group: sqrt((0.25 + 0.25 + 0.0625 + 0.0625) / 3) = 0.4564
        ("grpo", [1.0953, -1.0953, 0.5476, -0.5476, 0.0, 0.0, 0.0, 0.0]),
        ("rloo", [0.6667, -0.6667, 0.3333, -0.3333, 0.0, 0.0, 0.0, 0.0]),  # 4 / 3 of the first
        # root mean square of the first group: sqrt((0.25 + 0.25 + 0.0625 + 0.0625) / 4) = 0.3953
        ("reinforce_pp", [1.2646, -1.2646, 0.6323, -0.6323, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_advantages_by_hand(
    scripted: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimator: str, expected: list[float]
) -> None:
    """Rewards 1, 0, 0.75, 0.25 (mean 0.5) and four times 0.3: what tokens are weighed with."""
    rewards = iter([1.0, 0.0, 0.75, 0.25, 0.3, 0.3, 0.3, 0.3])
    monkeypatch.setattr(
        "training.roles.rollouts.episode_reward", lambda episode, config: {"total": next(rewards)}
    )
    seen: list[tuple[list[int], float]] = []
    compute_loss = grpo.ResumableGrpoTrainer._compute_loss

    def note(self: Any, model: Any, inputs: Any) -> Any:
        for ids, advantage in zip(
            inputs["completion_ids"].tolist(), inputs["advantages"].tolist(), strict=True
        ):
            seen.append((ids, advantage))
        return compute_loss(self, model, inputs)

    monkeypatch.setattr(grpo.ResumableGrpoTrainer, "_compute_loss", note)
    changes = {"max_steps": 1, "estimator": estimator}
    _, log, _ = train(tmp_path, config=CONFIG.changed(**changes), scenarios=draw(2))
    assert sorted(advantage for _, advantage in seen) == pytest.approx(sorted(expected), abs=1e-3)
    assert log[0][1]["reward/total"] == pytest.approx(0.4)
    assert log[0][1]["groups_with_signal"] == 0.5
