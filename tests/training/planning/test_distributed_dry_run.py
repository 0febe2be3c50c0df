"""The shipped configs for one to sixteen devices fit, by the sizes of real modules on the meta device."""

from pathlib import Path

import pytest

from roles.errors import UserError
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.planning.distributed_dry_run import build_on_meta, pass_through, rank_memory
from training.planning.shapes import SHAPES

CONFIGS = Path(__file__).parent.parent.parent.parent / "configs" / "marl"
RANKS = {"1xa100": 1, "4xa100": 4, "8xa100": 8, "2node": 16}


def test_every_config_has_its_ranks() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(RANKS)


@pytest.mark.parametrize("name", RANKS)
def test_a_rank_has_room(name: str) -> None:
    memory = rank_memory(load_config(CONFIGS / f"{name}.yaml"), RANKS[name])
    assert 5 < sum(memory.values()) < 72  # of 80 GB, with room for an engine's cache
    assert all(size >= 0 for size in memory.values())


def test_sharding_divides_what_is_trained() -> None:
    config = load_config(CONFIGS / "2node.yaml")
    one, sixteen = rank_memory(config, 1), rank_memory(config, 16)
    for part in ("trained weights", "gradients", "optimizer"):
        assert one[part] == pytest.approx(16 * sixteen[part])
    parameters = SHAPES["qwen2.5-0.5b"].num_parameters
    assert one["trained weights"] == pytest.approx(5 * 4 * parameters / 2**30, rel=0.01)


def test_a_micro_batch_goes_through_on_the_meta_device() -> None:
    config = load_config(CONFIGS / "1xa100.yaml")
    model = build_on_meta(config, SHAPES["qwen2.5-1.5b"])
    assert all(parameter.is_meta for parameter in model.parameters())
    assert pass_through(model, config) == (2 * 256,)


def test_a_preset_without_a_shape_is_refused() -> None:
    with pytest.raises(UserError, match="tiny"):
        rank_memory(RunConfig(), 1)
