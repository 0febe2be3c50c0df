"""Episodes on disk: exact round trips."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from episode_rows import read_episodes
from team_tables import CHAT, SAMPLING, TEAM, draw_scenarios, oracle_engine

from simulator.export.episode_files import episode_to_json, write_lines
from simulator.graph.runner import play_episodes
from simulator.records import Episode


def play_some(count: int = 3) -> list[Episode]:
    scenarios = draw_scenarios(count)
    return asyncio.run(play_episodes(scenarios, TEAM, oracle_engine(scenarios), CHAT, SAMPLING, rounds=2))


def with_logprob(episode: Episode, value: float) -> Episode:
    """The episode with another logprob on the CTO's first sampled id."""
    cto = episode.trajectories["cto"]
    turn = replace(cto.turns[0], logprobs=(value, *cto.turns[0].logprobs[1:]))
    played = replace(cto, turns=(turn, *cto.turns[1:]))
    return replace(episode, trajectories={**episode.trajectories, "cto": played})


def test_round_trip_is_exact(tmp_path: Path) -> None:
    episodes = [with_logprob(episode, -0.1 - 1e-17) for episode in play_some()]
    episodes.append(replace(episodes[0], trajectories={}, error="gpu lost"))
    path = tmp_path / "episodes" / "step_1.jsonl"
    write_lines(path, map(episode_to_json, episodes))
    assert read_episodes(path) == episodes
    assert path.read_text().count("\n") == 4
    assert [entry.name for entry in path.parent.iterdir()] == ["step_1.jsonl"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    broken = with_logprob(play_some(1)[0], value)
    with pytest.raises(ValueError, match="JSON"):
        episode_to_json(broken)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    good = play_some(1)
    write_lines(path, map(episode_to_json, good))
    with pytest.raises(ValueError, match="JSON"):
        write_lines(path, map(episode_to_json, [good[0], with_logprob(good[0], float("nan"))]))
    assert read_episodes(path) == good
