"""Schedules for GPUs, without one: configs load, models on the meta device have the known counts."""

from pathlib import Path

import pytest
import yaml

from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.planning.dry_run import dry_run
from training.planning.shapes import SHAPES

ROOT = Path(__file__).parent.parent.parent.parent
KNOWN = {"qwen2.5-3b": 3_085_938_688, "qwen2.5-7b": 7_615_616_512}  # parameters, as their model cards count
LARGE = [("qwen2.5-3b-a100", 1), ("qwen2.5-7b-fsdp", 8)]


@pytest.mark.parametrize(("name", "ranks"), LARGE)
def test_large_schedules_are_counted_on_the_meta_device(name: str, ranks: int) -> None:
    config = load_config(ROOT / "configs" / "schedules" / f"{name}.yaml")
    preset = config.model.preset
    found = dry_run(config, ROOT / "configs" / "models" / preset, ranks=ranks)
    assert found.total == KNOWN[preset]
    shape = SHAPES[preset]
    assert found.total == pytest.approx(shape.num_parameters, rel=1e-3)
    assert found.trained == shape.lora_parameters(config.model.lora_rank)
    assert found.frozen_bytes == 2 * found.total  # bfloat16
    share = ranks if config.marl.memory.sharding == "fsdp2" else 1
    assert found.trained_bytes == found.trained * 16 / share
    assert found.frozen_bytes + found.trained_bytes < 60e9  # of the 80 GB of an A100, activations come on top
    print(found.describe())


def test_full_weights_are_shared_by_the_ranks() -> None:
    """Full weights of the 7B: 16 bytes per parameter; over 8 ranks 2 bytes of each, 15.2 GB."""
    values = {"model": {"preset": "qwen2.5-7b"}, "marl": {"memory": {"sharding": "fsdp2"}}}
    config = RunConfig.model_validate(values)
    alone, eight = (dry_run(config, ROOT / "configs/models/qwen2.5-7b", ranks=ranks) for ranks in (1, 8))
    assert alone.trained == alone.total == KNOWN["qwen2.5-7b"]
    assert alone.frozen_bytes == 0
    assert alone.trained_bytes == KNOWN["qwen2.5-7b"] * 16
    assert eight.trained_bytes == KNOWN["qwen2.5-7b"] * 2


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("schedules/*.yaml")), ids=lambda path: path.stem
)
def test_every_schedule_loads(path: Path) -> None:
    assert load_config(path).name == yaml.safe_load(path.read_text())["name"]
