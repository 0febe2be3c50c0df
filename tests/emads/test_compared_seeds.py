"""Runs that are compared as seeds of one config: what they may differ in, and what not."""

from pathlib import Path

import pytest
from scored_outcomes import role_plays, store_plays

from emads.commands.evaluate import compare_runs
from evaluation.summary.comparison import read_seed_comparison
from evaluation.summary.run_summary import build_summary, write_summary
from roles.errors import UserError
from training.config.loading import load_config
from training.runs.run_folder import Run


def scored_run(path: Path, seed: int, reward: float, *settings: str) -> Run:
    run = Run.create(path, load_config(None, (f"seed={seed}", f"data.seed={seed}", *settings)))
    rewards = (reward, reward)
    plays = role_plays("cost", "sft", rewards, rewards)
    store_plays(path, plays)
    summary = build_summary([plays], seed=seed, wall_s=1.0, versions={}, weights_changed={}, signal={})
    write_summary(path, summary)
    return run


def test_seeds_may_have_been_trained_by_another_number_of_workers(tmp_path: Path) -> None:
    runs = [
        scored_run(tmp_path / "a", 0, 0.25),
        scored_run(tmp_path / "b", 1, 0.75, "num_workers=1"),
    ]
    compare_runs(runs)
    stage = read_seed_comparison(tmp_path / "a")["owners"]["cost"]["stages"]["sft"]
    assert stage["per_seed"] == [0.25, 0.75]
    assert stage["mean"] == 0.5


@pytest.mark.parametrize("setting", ["sft.max_steps=7", "data.difficulties=[3]"])
def test_what_makes_other_weights_or_cases_is_no_seed_of_the_same_config(
    setting: str, tmp_path: Path
) -> None:
    runs = [scored_run(tmp_path / "a", 0, 0.25), scored_run(tmp_path / "b", 1, 0.75, setting)]
    with pytest.raises(UserError, match="another config"):
        compare_runs(runs)
