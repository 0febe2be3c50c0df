"""YAML blocks of README and docs are read by the loaders that a user's files meet."""

from pathlib import Path

import pytest
import yaml
from doc_pages import PAGES, ROOT, Block, read_blocks

from emads.commands.ablate import read_plan
from evaluation.summary.gates import read_gate_file
from scenarios.written.written_case import read_case
from training.config.loading import load_config
from training.config.run_config import RunConfig

BLOCKS = [block for page in PAGES for block in read_blocks(page, "yaml") if block.reason is None]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.text.splitlines()[0]}")
def test_yaml_blocks_are_accepted(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(block.text)
    keys = set(yaml.safe_load(block.text))
    if "seats" in keys:
        assert read_case(path).title
    elif "grid" in keys:
        assert read_plan(path)
    elif "gates" in keys:
        assert read_gate_file(path)
    else:
        assert load_config(path, ()) != RunConfig()


def test_there_is_a_block_of_each_kind() -> None:
    assert {"seats:", "grid:", "gates:", "model:"} <= {
        line.split(" ")[0] for b in BLOCKS for line in b.text.splitlines()
    }
    assert ROOT.exists()
