"""GRPO on the RL loop: rows are the sampled ids, rewards are the verifier's, two steps train."""

import math
import random
import statistics
from collections.abc import Mapping
from typing import Any

import pytest
from grpo_cases import CONFIG, ROLE, draw, make_solo, train
from sandboxes import run_or_be_refused
from tiny_models import same_weights, small_model, tiny_chat, tiny_tokenizer, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine
from roles.errors import UserError
from scenarios.base import Verdict
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import SoloEpisode
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.hf_chat import HFChat
from simulator.records import Trajectory
from training.config.rl_config import GrpoConfig
from training.rl.credit import ESTIMATORS, compare_most_different
from training.rl.records import RewardParts, ScoredSoloGroup
from training.rl.solo.algorithm import GroupCredit, make_solo_learner
from training.rl.solo.play import SoloPlayer, episode_reward

PROGRAM = "```python\nprint(6 * 7)\n```"
ANSWER_AFTER_CODE = '{"order": [], "makespan": 42}'
Engines = list[Any]


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

    monkeypatch.setattr("training.rl.loop.TransformersEngine", make)
    return engines


@pytest.mark.parametrize("engines", ["scripted", "real"])
def test_rows_are_exactly_the_sampled_ids(engines: str, request: pytest.FixtureRequest) -> None:
    """Against the engine's own record: prompt, own tokens and observations, mask on own ones only."""
    made: Engines = request.getfixturevalue(engines)
    learner = make_solo(CONFIG if engines == "scripted" else CONFIG.changed(max_completion_tokens=40))
    cases = draw(4)
    scored = learner.scorer.score(learner.play([cases[0], cases[3]]))
    rows = learner.credit.make_rows(scored, learner.credit.assign((ROLE,), scored))[ROLE]
    sessions: dict[str, list[tuple[CompletionRequest, Completion]]] = {}
    for call in made[0].calls:
        sessions.setdefault(call[0].session, []).append(call)
    episodes = [episode for group in scored for episode in group.played]
    assert len(sessions) == len(episodes) == len(rows) == 8
    for row, episode in zip(rows, episodes, strict=True):
        calls = sessions[episode.trajectory.session]
        last, answer = calls[-1]
        assert row.token_ids == last.prompt_ids + answer.token_ids
        own: dict[int, float] = {}
        for asked, spoken in calls:
            start = len(asked.prompt_ids)
            own.update(zip(range(start, start + len(spoken.token_ids)), spoken.logprobs, strict=True))
        assert row.loss_mask == tuple(int(i in own) for i in range(len(row.token_ids)))
        assert row.sampling_logprobs == tuple(own.get(i, 0.0) for i in range(len(row.token_ids)))
    assert [episode.scenario.index for episode in episodes] == [0] * 4 + [3] * 4
    if engines == "scripted":
        assert any(0 in row.loss_mask[row.num_prompt :] for row in rows)  # observations between own words


def test_rewards_are_the_verifiers(scripted: Engines) -> None:
    learner = make_solo()
    scored = learner.scorer.score(learner.play(draw(4)))
    family = FAMILIES[ROLE]
    for group in scored:
        for episode, total in zip(group.played, group.totals, strict=True):
            verdict = family.verify(episode.scenario, episode.trajectory.final_text)
            assert episode.verdict == verdict
            assert total == pytest.approx(verdict.reward + 0.1)
    assert len({total for group in scored for total in group.totals}) > 2


def test_metrics_are_those_of_the_episodes(scripted: Engines) -> None:
    learner = make_solo(CONFIG)
    groups = learner.play(draw(4))
    metrics, scored = learner.learn(groups), learner.scorer.score(groups)
    episodes = [episode for group in scored for episode in group.played]
    totals = [total for group in scored for total in group.totals]
    assert metrics["groups_with_signal"] == statistics.fmean(len(set(one.totals)) > 1 for one in scored) > 0
    assert metrics["verified"] == pytest.approx(statistics.fmean(e.verdict.reward for e in episodes))
    assert metrics["exact"] == statistics.fmean(e.verdict.exact for e in episodes)
    assert metrics["turns"] == statistics.fmean(len(e.trajectory.turns) for e in episodes)
    assert metrics["reward/total"] == pytest.approx(statistics.fmean(totals))
    parts = {name: value for name, value in metrics.items() if name.startswith("reward/")}
    assert set(parts) == {"reward/correctness", "reward/format", "reward/step", "reward/total"}
    assert parts["reward/format"] == pytest.approx(0.1)


def test_later_steps_sample_afresh_and_know_their_weights(real: Engines) -> None:
    _, log = train(CONFIG.changed(max_completion_tokens=8), scenarios=draw(2) * 2)
    first, second = ([completion.token_ids for _, completion in engine.calls] for engine in real)
    assert first != second
    assert [engine.calls[0][1].policy_version for engine in real] == [f"{ROLE}@0", f"{ROLE}@1"]
    for row in log:  # the embedded engine computes as the learner does
        assert row["mismatch_max"] < 1e-4
        assert row["effective_share"] == pytest.approx(1.0, abs=1e-4)


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
        "training.rl.loop.TransformersEngine",
        lambda *, end_id, seed: ScriptedModelEngine({ROLE: speak}, chat=chat, end_id=end_id, seed=seed),
    )

    def act() -> None:
        config = CONFIG.changed(agent=kind, max_completion_tokens=90)
        learner = make_solo(config, chat=chat)
        (one, *_) = learner.play(draw(1))[0].episodes
        token_ids, loss_mask = one.trajectory.token_ids, one.trajectory.loss_mask
        start = loss_mask.index(1)
        prompt = chat.decode(token_ids[:start])
        assert (" Tools " in prompt) == offers_tools
        assert ("```python block" in prompt) == mentions_code
        assert (len(one.trajectory.turns), one.trajectory.num_valid_tool_calls) == (num_turns, num_calls)
        completion, mask = token_ids[start:], loss_mask[start:]
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

    monkeypatch.setattr("training.rl.solo.play.find_sandbox", refuse)
    with pytest.raises(UserError, match="sandbox"):
        make_solo(CONFIG.changed(agent="code"))
    make_solo(CONFIG.changed(agent="react"))


def test_failed_calls_cut_a_trajectory_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One good call, then a bad one each turn: the limit counts the bad ones only."""

    def speak(transcript: str, rng: random.Random) -> str:
        return expert(transcript) if transcript.count("<|assistant|>") == 1 else "<tool_call>no</tool_call>"

    expert = oracle_solo(draw(8))
    monkeypatch.setattr(
        "training.rl.loop.TransformersEngine",
        lambda *, end_id, seed: ScriptedModelEngine(
            {ROLE: speak}, chat=tiny_chat(), end_id=end_id, seed=seed
        ),
    )
    for limit, num_turns in ((1, 2), (2, 3), (9, 4)):
        learner = make_solo(CONFIG.changed(max_failed_calls=limit, max_turns=4, group_size=2))
        for played in learner.play(draw(1))[0].episodes:
            assert len(played.trajectory.turns) == num_turns
            assert (played.trajectory.num_valid_tool_calls, played.trajectory.num_tool_calls) == (
                1,
                num_turns,
            )
            assert played.trajectory.truncated
            assert played.verdict.failure == "no_answer"


def test_two_steps_train_on_groups_of_the_same_scenario(scripted: Engines) -> None:
    model, log = train()
    assert not same_weights(weights_of(model), weights_of(small_model()))
    for metrics in log:
        assert metrics["grad_norm"] > 0
        assert 0 < metrics["groups_with_signal"] <= 1
    again = train()
    assert same_weights(weights_of(model), weights_of(again[0]))
    assert again[1] == log


def test_loss_credit_and_optimizer_options_reach_the_update(scripted: Engines) -> None:
    plain = weights_of(train()[0])
    changes: list[dict[str, Any]] = [
        {"loss__kind": "dr_grpo"},
        {"adam_epsilon": 1e-2},
        {"credit__estimator": "grpo"},
        {"credit__estimator": "gae"},
        {"trained_per_group": 2},
        {"updates_per_batch": 2, "loss__clip_high": 0.3},
    ]
    for change in changes:
        assert not same_weights(plain, weights_of(train(CONFIG.changed(**change))[0])), change


def test_the_engine_plays_the_weights_in_training(scripted: Engines) -> None:
    model, _ = train()
    assert [engine.models[ROLE][0] is model for engine in scripted] == [True, True]


def test_one_update_covers_all_roles_that_share_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards by what was said: every role has rows in the loss, and each case is played by its own role."""
    roles = ("cto", "coo", "risk", "cost", "reconcile")
    monkeypatch.setattr("training.rl.solo.play.episode_reward", pay_by_text)
    config = CONFIG.changed(max_steps=1, max_turns=1, max_completion_tokens=6, prompts_per_step=5)
    model = small_model()
    player = SoloPlayer(config=config, chat=tiny_chat())
    learner = make_solo_learner(dict.fromkeys(roles, model), config, player=player, chat=tiny_chat(), seed=0)
    updated: list[Mapping[str, int]] = []
    update = learner.updater.update

    def note(rows: Any) -> Any:
        updated.append({role: sum(row.has_signal for row in of_role) for role, of_role in rows.items()})
        return update(rows)

    monkeypatch.setattr(learner.updater, "update", note)
    metrics = learner.step([draw(1, role)[0] for role in roles])
    assert set(updated[0]) == set(roles)
    assert all(count > 0 for count in updated[0].values())
    assert all(f"verified/{role}" in metrics for role in roles)
    assert len(learner.updater.first_roles()) == 1  # one optimizer


def pay_by_text(episode: SoloEpisode, config: GrpoConfig) -> dict[str, float]:
    return {"total": sum(episode.trajectory.token_ids) % 7 / 7}


def test_equal_rewards_train_nothing(real: Engines) -> None:
    """Random weights say nothing valid: every group is level."""
    model, log = train(CONFIG.changed(max_completion_tokens=6))
    assert same_weights(weights_of(model), weights_of(small_model()))
    assert [metrics["groups_with_signal"] for metrics in log] == [0.0, 0.0]
    assert [metrics["grad_norm"] for metrics in log] == [0.0, 0.0]


def scored(*groups: list[float]) -> list[ScoredSoloGroup]:
    """Groups of episodes with these rewards; NaN is a fault."""
    played = episode(1.0, 2, exact=True)
    return [
        ScoredSoloGroup(
            scenario=played.scenario,
            episodes=(played,) * len(rewards),
            rewards=tuple(RewardParts(parts=None if math.isnan(one) else {"total": one}) for one in rewards),
        )
        for rewards in groups
    ]


def assign(estimator: str, *groups: list[float], count: int = 0) -> list[list[float]]:
    credit = GroupCredit(estimator=compare_most_different(ESTIMATORS[estimator], count))
    return credit.assign((ROLE,), scored(*groups))[ROLE]


def test_a_group_that_was_left_out_has_no_advantage_and_no_part_in_the_others() -> None:
    first, second = assign("rloo", [1.0, 0.0], [math.nan, 0.5], [0.8, 0.6])
    assert first == pytest.approx([1.0, -1.0])
    assert second == pytest.approx([0.2, -0.2])
    assert assign("reinforce_pp", [math.nan, 0.5]) == []


def test_advantages_of_a_part_of_the_group_weigh_as_much_as_those_of_all() -> None:
    """0 and 1 of [.5, 0, 1, .6] are .5 from their mean; two of four speak, so each counts twice."""
    assert assign("dr_grpo", [0.5, 0.0, 1.0, 0.6], count=2) == [pytest.approx([0, -1.0, 1.0, 0])]


def test_a_part_of_a_group_is_two_rows_or_more() -> None:
    for count in (1, 9):
        with pytest.raises(ValueError, match="2 to 8 "):
            GrpoConfig(group_size=8, trained_per_group=count)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("dr_grpo", [0.5, -0.5, 0.25, -0.25]),
        # sample deviation of the group: sqrt((0.25 + 0.25 + 0.0625 + 0.0625) / 3) = 0.4564
        ("grpo", [1.0953, -1.0953, 0.5476, -0.5476]),
        ("rloo", [0.6667, -0.6667, 0.3333, -0.3333]),  # 4 / 3 of the first
        # root mean square of the group: sqrt((0.25 + 0.25 + 0.0625 + 0.0625) / 4) = 0.3953
        ("reinforce_pp", [1.2646, -1.2646, 0.6323, -0.6323]),
    ],
)
def test_advantages_by_hand(estimator: str, expected: list[float]) -> None:
    """Rewards 1, 0, 0.75, 0.25 (mean 0.5) and four times 0.3."""
    found = assign(estimator, [1.0, 0.0, 0.75, 0.25], [0.3] * 4)
    assert found == [pytest.approx(expected, abs=1e-3), [0.0] * 4]
