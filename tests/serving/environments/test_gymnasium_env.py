"""The Gymnasium environment: Gymnasium's own checker passes, and episodes are worth what the core pays."""

import warnings

import pytest
from gymnasium.utils.env_checker import check_env
from played_cases import PLAYED, list_plays

from serving.environments.gymnasium_env import PlayEnv
from simulator.tool_calls import format_tool_call


@pytest.mark.parametrize("family", PLAYED)
def test_gymnasiums_own_checker_passes(family: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(PlayEnv(family, difficulty=2), skip_render_check=True)


def test_rewards_are_those_of_the_core() -> None:
    for name, steps, reward in list_plays():
        env = PlayEnv(name.family, difficulty=name.difficulty)
        _, info = env.reset(seed=name.seed, options={"index": name.index})
        assert info["scenario"] == f"{name.family}/train/0/{name.index}/{name.difficulty}"
        for step in steps[:-1]:
            assert step.call is not None
            told, earned, ended, cut, _ = env.step(format_tool_call(step.text, step.call))
            assert told
            assert (earned, ended, cut) == (0.0, False, False)
        _, earned, ended, _, info = env.step(steps[-1].text)
        assert (earned, ended) == (reward, True)
        assert env.step("a second answer")[1] == reward


def test_a_broken_call_is_an_observation_and_sixteen_of_them_end_the_episode() -> None:
    env = PlayEnv("cto")
    env.reset(seed=0)
    for turn in range(16):
        told, earned, ended, _, info = env.step("<tool_call>{")
        assert told.startswith("error: close every")
        assert ended == (turn == 15)
    assert (earned, info["failure"]) == (0.0, "no_answer")


def test_resets_go_through_the_scenarios_and_a_seed_begins_its_stream() -> None:
    env = PlayEnv("team_reconcile")
    keys = [env.reset(seed=3 if not place else None)[1]["scenario"] for place in range(3)]
    assert keys == [f"team_reconcile/train/3/{index}/1" for index in range(3)]
    assert env.reset(seed=3)[1]["scenario"] == keys[0]
