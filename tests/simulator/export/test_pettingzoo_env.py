"""The PettingZoo adapter: PettingZoo's own test passes, and an episode is worth what the graph's is."""

import asyncio
import json
import random
import warnings

import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from team_tables import CHAT, SAMPLING, SEATS, TEAM

from roles.errors import UserError
from roles.team import RECONCILER
from scenarios.base import Style
from scenarios.team import generate
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.scripted import ScriptedEngine
from simulator.export.pettingzoo_env import TeamEnv
from simulator.graph.runner import play_episodes
from simulator.reward import TeamRewardWeights, score_episode

AGENTS = (*SEATS, RECONCILER)


def test_pettingzoos_own_test_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(TeamEnv("train", difficulty=2), num_cycles=40)


def test_pettingzoos_own_test_finds_equal_seeds_equal() -> None:
    parallel_seed_test(lambda: TeamEnv("train", difficulty=2), num_cycles=12)


def play(env: TeamEnv, index: int) -> tuple[float, dict[str, object]]:
    """Experts of one habit at the table, each reading its own observations alone."""
    case = generate("train", 0, index, 1)
    experts = oracle_team([case], report_habit="easy", funding_habit="exact")
    observations, _ = env.reset(options={"index": index})
    heard: dict[str, str] = dict.fromkeys(env.agents, "")
    rewards: dict[str, float] = {}
    while env.agents:
        actions = {}
        for agent, text in observations.items():
            if text:
                heard[agent] += text + "\n"
                actions[agent] = experts[agent](heard[agent], random.Random(0))
                heard[agent] += actions[agent] + "\n"
        observations, rewards, ended, cut, infos = env.step(actions)
        assert set(observations) == set(rewards) == set(ended) == set(cut) == set(infos) == set(AGENTS)
        assert not any(cut.values())
    assert len(set(rewards.values())) == 1
    return rewards["cto"], infos["cto"]


@pytest.mark.parametrize("style", ["full", "short"])
def test_an_episode_is_worth_what_the_graph_plays(style: Style) -> None:
    env = TeamEnv("train", style=style)
    cases = [generate("train", 0, index, 1) for index in range(6)]
    engine = ScriptedEngine(CHAT, seeded=oracle_team(cases, report_habit="easy", funding_habit="exact"))
    episodes = asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, rounds=1))
    for index, (case, episode) in enumerate(zip(cases, episodes, strict=True)):
        reward, infos = play(env, index)
        verdict = score_episode(case, episode, TeamRewardWeights())
        assert reward == verdict.reward
        assert (infos["case"], infos["value"]) == (case.key, verdict.value)


def test_a_first_observation_holds_the_rules_and_all_facts() -> None:
    observations, infos = TeamEnv("train").reset(options={"index": 3})
    assert infos["cto"] == {"case": generate("train", 0, 3, 1).key}
    assert observations[RECONCILER] == ""
    for seat in SEATS:
        for part in (
            "You are ",
            "A plan over the budget",
            "Example of another case:",
            "Option A in full.",
        ):
            assert part in observations[seat]
        assert "Tools:" not in observations[seat]


def test_who_has_nothing_to_say_hears_and_changes_nothing() -> None:
    env = TeamEnv("train", style="short")
    case = generate("train", 0, 3, 1)
    env.reset(options={"index": 3})
    report = '{"offers": [], "needs": [], "veto": [], "note": ""}'
    observations, rewards, *_ = env.step({**dict.fromkeys(SEATS, report), RECONCILER: report})
    assert {agent for agent, text in observations.items() if text} == {RECONCILER}
    assert set(rewards.values()) == {0.0}
    decision = json.dumps({"option": case.options[0], "fund": [], "escalate": False})
    observations, *_ = env.step(dict.fromkeys(AGENTS, decision))
    assert {agent for agent, text in observations.items() if text} == set(SEATS)
    assert observations["cto"] == f"Decision {case.options[0]} without your part. Vote."
    env.step(dict.fromkeys(AGENTS, '{"vote": "accept"}'))
    with pytest.raises(ValueError, match="call reset"):
        env.step({})


def test_silence_and_garbage_are_policy_faults() -> None:
    env = TeamEnv("train")
    env.reset(options={"index": 0})
    env.step({})
    env.step({RECONCILER: "{" * 1000})
    _, rewards, *_ = env.step({"cto": "\x00"})
    assert set(rewards.values()) == {-0.2}


def test_resets_go_through_the_cases_and_a_seed_chooses_another_stream() -> None:
    env = TeamEnv("train")
    keys = [env.reset()[1]["cto"]["case"] for _ in range(3)]
    assert keys == ["team/train/0/0/1", "team/train/0/1/1", "team/train/0/2/1"]
    assert env.reset(seed=5)[1]["cto"]["case"] == "team/train/5/0/1"
    for index in range(30):
        for agent, text in env.reset(options={"index": index})[0].items():
            assert env.observation_space(agent).contains(text)


def test_the_test_split_is_sealed() -> None:
    with pytest.raises(UserError, match="sealed"):
        TeamEnv("test")
