"""Sealed evaluation with and without greedy play, and in blocks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from exported_teams import make_random_run

from evaluation.scoring import sealed_plays
from evaluation.scoring.outcomes import OutcomeFile, complete_files, read_plays
from roles.errors import UserError
from training.config.loading import load_config
from training.stages.evaluation import evaluate_role, evaluate_team


@pytest.mark.parametrize(("greedy", "num_greedy"), [(True, 2), (False, 0)])
def test_greedy_plays_can_be_left_out(tmp_path: Path, greedy: bool, num_greedy: int) -> None:
    sizes = ("evaluation.num_role_scenarios=2", "evaluation.num_team_scenarios=2", "evaluation.num_tries=1")
    run = make_random_run(tmp_path / "run", *sizes, f"evaluation.greedy={str(greedy).lower()}")
    evaluate_role(run.path, "marl", "cost")
    evaluate_team(run.path, "marl")
    found = read_plays(run.path)
    assert [(len(one.sampled), len(one.greedy)) for one in found] == [(2, num_greedy)] * 2
    outcomes = [file.name for file in (run.path / "scores" / "outcomes").rglob("*.greedy.jsonl")]
    assert len(outcomes) == (2 if greedy else 0)


def test_blocks_are_as_large_as_the_config_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: dict[str, list[int]] = {}
    complete = complete_files

    def note(files: Sequence[OutcomeFile[Any]], keys: Any, play: Any, **options: Any) -> Any:
        def play_block(start: int, end: int) -> Any:
            played.setdefault(files[0].path.stem, []).append(end - start)
            return play(start, end)

        return complete(files, keys, play_block, **options)

    monkeypatch.setattr("evaluation.scoring.sealed_plays.complete_files", note)
    sizes = ("evaluation.num_role_scenarios=3", "evaluation.num_team_scenarios=3", "evaluation.num_tries=1")
    blocks = ("rollouts.block_size=2", "evaluation.greedy=false")
    run = make_random_run(tmp_path / "run", *sizes, *blocks)
    evaluate_role(run.path, "marl", "cost")
    evaluate_team(run.path, "marl")
    assert sorted(played.values()) == [[2, 1], [2, 1]]


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_plays_are_sampled_at_the_temperature_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    used: list[float] = []
    for player, place in (("play_solos", None), ("play_episodes", 4)):
        play = getattr(sealed_plays, player)

        def note(*given: Any, play: Any = play, place: int | None = place, **options: Any) -> Any:
            used.append((options["sampling"] if place is None else given[place]).temperature)
            return play(*given, **options)

        monkeypatch.setattr(sealed_plays, player, note)
    sizes = ("evaluation.num_role_scenarios=1", "evaluation.num_team_scenarios=1", "evaluation.num_tries=1")
    chosen = (f"evaluation.temperature={temperature}", "evaluation.greedy=false")
    run = make_random_run(tmp_path / "run", *sizes, *chosen)
    evaluate_role(run.path, "marl", "cost")
    evaluate_team(run.path, "marl")
    assert used == [temperature] * 2


@pytest.mark.parametrize("again", ["evaluation.greedy=true", "evaluation.num_tries=2"])
def test_greedy_plays_are_not_made_twice(again: str) -> None:
    base = ["evaluation.temperature=0", "evaluation.greedy=false", "evaluation.num_tries=1"]
    with pytest.raises(UserError, match="at temperature 0 all plays of a scenario are alike"):
        load_config(None, [*base, again])
