"""Episodes on disk: exact round trips, and damaged rows refused by number."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from team_tables import CHAT, SAMPLING, TEAM, draw_scenarios, oracle_engine

from roles.errors import UserError
from simulator.export.episode_files import (
    episode_from_json,
    episode_to_dict,
    episode_to_json,
    read_episodes,
    write_episodes,
)
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
    write_episodes(path, episodes)
    assert list(read_episodes(path)) == episodes
    assert path.read_text().count("\n") == 4
    assert [entry.name for entry in path.parent.iterdir()] == ["step_1.jsonl"]


def test_dict_form_is_plain_json() -> None:
    episode = play_some(1)[0]
    value = episode_to_dict(episode)
    assert value["decision"] == episode.decision
    assert value["trajectories"]["cto"]["turns"][0]["context_ids"] == list(
        episode.trajectories["cto"].turns[0].context_ids
    )
    assert episode_from_json(json.dumps(value)) == episode


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    broken = with_logprob(play_some(1)[0], value)
    with pytest.raises(ValueError, match="JSON"):
        episode_to_json(broken)
    with pytest.raises(ValueError, match="not JSON"):
        episode_from_json(json.dumps({**episode_to_dict(play_some(1)[0]), "decision": value}))


def change(**changed: Any) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), **changed})


def change_turn(**changed: Any) -> Callable[[str], str]:
    def damage(line: str) -> str:
        value = json.loads(line)
        value["trajectories"]["cto"]["turns"][0].update(changed)
        return json.dumps(value)

    return damage


DAMAGES: dict[str, Callable[[str], str]] = {
    "empty": lambda line: "",
    "half": lambda line: line[: len(line) // 2],
    "two values": lambda line: line + line,
    "not an object": lambda line: f"[{line}]",
    "missing key": lambda line: line.replace('"decision":', '"decided":'),
    "unknown key": change(reward=1.0),
    "unknown key inside": change_turn(reward=1.0),
    "duplicate key": lambda line: line[:-1] + ',"decision":""}',
    "text for a number": change(index_in_group="0"),
    "true for a number": change(index_in_group=True),
    "fraction for an id": change_turn(completion_ids=[1.5]),
    "finish reason": change_turn(finish_reason="eos"),
    "a logprob too few": change_turn(logprobs=[]),
    "NaN": change_turn(logprobs=[float("nan")]),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_rows_are_named(kind: str, tmp_path: Path) -> None:
    first, second = (episode_to_json(episode) for episode in play_some(2))
    path = tmp_path / "e.jsonl"
    path.write_text(f"{first}\n{DAMAGES[kind](second)}\n")
    rows = read_episodes(path)
    next(rows)
    with pytest.raises(UserError, match=r"e\.jsonl, row 2: ."):
        next(rows)


def test_a_missing_file_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no episodes file"):
        next(read_episodes(tmp_path / "none.jsonl"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    good = play_some(1)
    write_episodes(path, good)
    with pytest.raises(ValueError, match="JSON"):
        write_episodes(path, [good[0], with_logprob(good[0], float("nan"))])
    assert list(read_episodes(path)) == good
