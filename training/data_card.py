"""The data card: README.md of a data folder, whose header tells `load_dataset` which files are which."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from training.dataset_index import DatasetIndex, Shard
from training.storage import write_atomic

_TEXT = """
# Company decision demonstrations

Each row is one role's expert play of one generated scenario: `messages` is the whole chat with tool calls and
their true observations, `answer` the final answer, `tools` the tools' signatures (all three are JSON text).
Every answer is the exact optimum of its scenario and scored 1 by the family's verifier when it was written.
Rows are a pure function of family, split, seed, index and difficulty; splits share no scenario.

| family | split | seed | difficulties | scenarios | rows | distinct briefs |
|---|---|---|---|---|---|---|
"""


def write_card(folder: Path, index: DatasetIndex) -> None:
    """Write README.md: equal shards give an equal card."""
    groups = [list(shards) for _, shards in groupby(index.shards, key=lambda s: (s.family, s.split))]
    header = yaml.safe_dump({"configs": _list_configs(groups)}, sort_keys=False)
    rows = "".join(_count(folder, shards) for shards in groups)
    write_atomic(folder / "README.md", f"---\n{header}---\n{_TEXT}{rows}".encode())


def _list_configs(groups: Sequence[Sequence[Shard]]) -> list[dict[str, object]]:
    files: dict[str, list[dict[str, str]]] = {}
    for shards in groups:
        first = shards[0]
        pattern = {"split": str(first.split), "path": f"{first.family}/{first.split}-*.parquet"}
        files.setdefault(first.family, []).append(pattern)
    return [{"config_name": family, "data_files": patterns} for family, patterns in files.items()]


def _count(folder: Path, shards: Sequence[Shard]) -> str:
    briefs: set[str] = set()
    for shard in shards:
        briefs.update(pq.read_table(folder / shard.path, columns=["brief"])["brief"].to_pylist())
    first = shards[0]
    num_scenarios, num_rows = (sum(shard.num_scenarios for shard in shards), sum(s.num_rows for s in shards))
    difficulties = ", ".join(str(difficulty) for difficulty in first.difficulties)
    cells = (first.family, first.split, first.seed, difficulties, num_scenarios, num_rows, len(briefs))
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"
