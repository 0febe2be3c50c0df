"""The YAML header of a data card, by which `datasets.load_dataset` finds files, splits and column types."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData

from simulator.export.atomic_files import write_atomic
from training.data.folders.columns import list_features

CARD = "README.md"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LARGEST = "1M<n<10M"
TAGS = ["synthetic", "tool-use", "multi-agent", "verifiable-rewards", "decision-making"]
SplitFiles = Mapping[str, Sequence[str]]  # split -> its Parquet files, as paths inside the folder


def write_card_file(
    folder: Path,
    configs: Mapping[str, SplitFiles],
    text: str,
    *,
    pretty_name: str,
    license_name: str | None = None,
    tags: Sequence[str] = (),
) -> None:
    """Write README.md: a header for these configurations (one per family or task set), then the text."""
    sizes = {
        name: {split: _measure_files(folder, files) for split, files in splits.items()}
        for name, splits in configs.items()
    }
    num_rows = sum(rows for splits in sizes.values() for rows, _ in splits.values())
    header = DatasetCardData(
        license=license_name,
        language=["en"],
        pretty_name=pretty_name,
        size_categories=[next((name for size, name in SIZES if num_rows < size), LARGEST)],
        task_categories=["text-generation"],
        tags=list(tags) or None,
        dataset_info=[
            {
                "config_name": name,
                "features": list_features(),
                "splits": [
                    {"name": split, "num_bytes": num_bytes, "num_examples": rows}
                    for split, (rows, num_bytes) in splits.items()
                ],
            }
            for name, splits in sizes.items()
        ],
        configs=[
            {
                "config_name": name,
                "data_files": [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in splits],
            }
            for name, splits in configs.items()
        ],
    )
    card = DatasetCard(f"---\n{header.to_yaml()}\n---\n\n{text}")
    write_atomic(folder / CARD, str(card).encode())


def _measure_files(folder: Path, files: Sequence[str]) -> tuple[int, int]:
    """Rows and uncompressed bytes of Parquet files."""
    num_rows = num_bytes = 0
    for file in files:
        parquet = pq.read_metadata(folder / file)
        num_rows += parquet.num_rows
        num_bytes += sum(parquet.row_group(n).total_byte_size for n in range(parquet.num_row_groups))
    return num_rows, num_bytes
