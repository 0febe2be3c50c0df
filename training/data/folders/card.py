"""Data cards (README.md): a header for `datasets.load_dataset`, then counts, statistics, baselines, commands.

Equal shards and an equal version of emads give equal bytes.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scenarios.base import SEALED
from simulator.export.atomic_files import write_atomic
from training.data.folders.index import DatasetIndex, OracleShard, TeacherIndex
from training.data.folders.near_duplicates import LEAST_SIMILARITY
from training.data.folders.rows import ALL, TEAM, check_families, count_roles, list_features
from training.data.folders.statistics import (
    BASELINES,
    NGRAM_SIZES,
    SAMPLE_PER_DIFFICULTY,
    TEXT_COLUMNS,
    RowStatistics,
    describe_lengths,
    describe_values,
    score_baselines,
    score_meetings,
)
from training.runs.progress import progress

CARD = "README.md"
TAGS = ["synthetic", "tool-use", "multi-agent", "verifiable-rewards", "decision-making"]
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LARGEST = "1M<n<10M"
SplitFiles = Mapping[str, Sequence[str]]  # split -> its Parquet files, as paths inside the folder
Groups = Mapping[tuple[str, str], Sequence[OracleShard]]  # (family, split) -> its shards in order
Found = Mapping[tuple[str, str], RowStatistics]

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
)


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
    infos, num_rows = [], 0
    for name, splits in configs.items():
        sizes = []
        for split, files in splits.items():
            parts = [pq.read_metadata(folder / file) for file in files]
            rows = sum(part.num_rows for part in parts)
            groups = (part.row_group(n) for part in parts for n in range(part.num_row_groups))
            num_bytes = sum(group.total_byte_size for group in groups)
            sizes.append({"name": split, "num_bytes": num_bytes, "num_examples": rows})
            num_rows += rows
        infos.append({"config_name": name, "features": list_features(), "splits": sizes})
    header = DatasetCardData(
        license=license_name,
        language=["en"],
        pretty_name=pretty_name,
        size_categories=[next((name for size, name in SIZES if num_rows < size), LARGEST)],
        task_categories=["text-generation"],
        tags=list(tags) or None,
        dataset_info=infos,
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


def write_card(folder: Path, index: DatasetIndex) -> None:
    """Write README.md of the oracle's rows."""
    groups = {
        place: list(shards)
        for place, shards in groupby(index.shards, key=lambda shard: (shard.family, str(shard.split)))
    }
    found: Found = {place: RowStatistics() for place in groups}
    num_rows = sum(shard.num_rows for shard in index.shards)
    with progress("data card", total=num_rows, unit="rows") as bar:
        for place, shards in groups.items():
            for shard in shards:
                for row in pq.read_table(folder / shard.path).to_pylist():
                    found[place].add(row)
                bar.advance(shard.num_rows)
    configs: dict[str, dict[str, list[str]]] = {}
    for (family, split), shards in groups.items():
        configs.setdefault(family, {})[_name_split(split)] = [shard.path for shard in shards]
    write_card_file(
        folder,
        configs,
        _write_text(groups, found),
        pretty_name="Company decision demonstrations",
        license_name="apache-2.0",
        tags=TAGS,
    )


def _name_split(split: str) -> str:
    """The split as `datasets` takes it: its names have no hyphen."""
    return split.replace("-", "_")


def write_teacher_card(folder: Path, index: TeacherIndex) -> None:
    """Write README.md of a folder of a teacher's rows."""
    configs: dict[str, dict[str, list[str]]] = {}
    for shard in index.shards:
        configs.setdefault(shard.family, {}).setdefault(_name_split(shard.split), []).append(shard.path)
    text = TEMPLATES.get_template("teacher_card.md.j2").render(shards=index.shards, count_roles=count_roles)
    write_card_file(folder, configs, text, pretty_name="Company decision demonstrations by a teacher model")


def _write_text(groups: Groups, found: Found) -> str:
    config, split = next(iter(groups), ("cto", "train"))
    levels = sorted({level for one in found.values() for level in one.keys})

    def lines(cells: Callable[[RowStatistics], Iterable[Sequence[object]]]) -> list[Sequence[object]]:
        """Lines of a table with the cells of each family and split, whose names begin them."""
        return [(*place, *line) for place, one in found.items() for line in cells(one)]

    return TEMPLATES.get_template("card.md.j2").render(
        families={family for family, _ in groups},
        config=config,
        split=_name_split(split),
        similarity=f"{LEAST_SIMILARITY:.0%}",
        sample=SAMPLE_PER_DIFFICULTY,
        version=importlib.metadata.version("emads"),
        counts=[
            (
                *place,
                shards[0].seed,
                sum(shard.num_scenarios for shard in shards),
                sum(shard.num_rows for shard in shards),
                sum(shard.stop - shard.start for shard in shards),
                sum(shard.num_exact_repeats for shard in shards),
                sum(shard.num_near_repeats for shard in shards),
            )
            for place, shards in groups.items()
        ],
        levels=levels,
        difficulties=lines(lambda one: [[len(one.keys.get(level, ())) for level in levels]]),
        lengths=lines(
            lambda one: (
                (column, describe_lengths(one.chars[column]), describe_lengths(one.pieces[column]))
                for column in TEXT_COLUMNS
            )
        ),
        answers=lines(
            lambda one: (
                (role, name, describe_values(values)) for (role, name), values in one.count_answers().items()
            )
        ),
        diversity=lines(
            lambda one: [
                (one.num_rows, len(one.briefs), *(f"{one.distinct_share(size):.4f}" for size in NGRAM_SIZES))
            ]
        ),
        baseline_names=list(BASELINES),
        baselines=lines(
            lambda one: (
                (
                    f"{low}-{high}",
                    len(rewards["oracle"]),
                    *(f"{fmean(rewards[name]):.3f}" for name in BASELINES),
                )
                for (low, high), rewards in score_baselines(one)
            )
        ),
        meetings=[
            (*place, f"{low}-{high}", len(worths), f"{fmean(worths):.3f}", worths.count(1.0))
            for place, one in found.items()
            if place[0] == TEAM
            for (low, high), worths in score_meetings(one)
        ],
        commands="\n".join(_list_commands(groups)),
        digests=[
            (*place, shards[0].generator[:16], _digest(shards)[:16]) for place, shards in groups.items()
        ],
    )


def _list_commands(groups: Groups) -> Iterator[str]:
    """One `emads generate` for the families that were asked for alike."""
    alike: dict[str, list[str]] = {}
    for shards in groups.values():
        first = shards[0]
        count = sum(s.stop - s.start - s.num_exact_repeats - s.num_near_repeats for s in shards)
        options = f"--count {count} --seed {first.seed} --split {first.split}"
        options += " --unseal" if first.split in SEALED else ""
        options += f" --difficulties {','.join(map(str, first.difficulties))}"
        if first.sector is not None:
            options += f" --sector {first.sector}"
        alike.setdefault(options, []).append(first.family)
    for options, families in alike.items():
        is_all = set(families) == set(check_families(()))
        chosen = " ".join(f"--family {family}" for family in ([ALL] if is_all else families))
        yield f"emads generate {chosen} {options} --out DATA"


def _digest(shards: Sequence[OracleShard]) -> str:
    return hashlib.sha256(json.dumps([shard.sha256 for shard in shards]).encode()).hexdigest()
