"""The shipped configs for one to sixteen devices fit, by the sizes of real modules on the meta device."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fast_loop import slow_except

from roles.errors import UserError
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.planning import distributed_dry_run
from training.planning.distributed_dry_run import GIB, build_on_meta, pass_through, rank_memory
from training.planning.memory import estimate_memory
from training.planning.shapes import SHAPES, Shape
from training.planning.table import show_plan
from training.planning.workload import JOINT, list_phases

CONFIGS = Path(__file__).parent.parent.parent.parent / "configs" / "marl"
RANKS = {"1xa100": 1, "4xa100": 4, "8xa100": 8, "2node": 16}


def test_every_config_has_its_ranks() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(RANKS)


@pytest.mark.parametrize("name", slow_except(RANKS, "2node"))
def test_a_rank_has_room(name: str) -> None:
    """With room for an engine's cache on an A100 of 80 GB, by formula and by the modules' own counts."""
    memory = rank_memory(load_config(CONFIGS / f"{name}.yaml"), RANKS[name])
    assert 5 < memory.total / GIB < 60


@pytest.mark.parametrize("name", slow_except(RANKS, "2node"))
def test_the_plan_shows_what_the_dry_run_counts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    config, ranks = load_config(CONFIGS / f"{name}.yaml"), RANKS[name]
    show_plan(config, "a100", ranks, None, None)
    (joint,) = [phase for phase in list_phases(config) if phase.name == JOINT]
    planned = estimate_memory(SHAPES[config.model.preset], config, [joint], ranks)
    assert planned.total - planned.cache == pytest.approx(rank_memory(config, ranks).total)


@pytest.mark.slow
def test_other_modules_than_planned_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(SHAPES["qwen2.5-1.5b"], layers=27)
    monkeypatch.setitem(SHAPES, "qwen2.5-1.5b", wrong)
    monkeypatch.setattr(distributed_dry_run, "build_on_meta", partial(build_as, SHAPES["qwen2.5-3b"]))
    with pytest.raises(ValueError, match="trained weights counted"):
        rank_memory(load_config(CONFIGS / "1xa100.yaml"), 1)


def build_as(shape: Shape, config: RunConfig, _: Shape) -> Any:
    return build_on_meta(config, shape)


def test_a_micro_batch_goes_through_on_the_meta_device() -> None:
    config = load_config(CONFIGS / "1xa100.yaml")
    model = build_on_meta(config, SHAPES["qwen2.5-1.5b"])
    assert all(parameter.is_meta for parameter in model.parameters())
    assert pass_through(model, config) == (2 * 256,)


def test_a_preset_without_a_shape_is_refused() -> None:
    with pytest.raises(UserError, match="tiny"):
        rank_memory(RunConfig(), 1)
