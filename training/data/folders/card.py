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

_TEXT = """\
# Company decision demonstrations

Generated decision cases of the `emads` role families, each with an expert's play. One row is one role's play
of one scenario: `messages` is the whole chat with tool calls and their true observations, `tools` the tools'
signatures (like the arguments of calls JSON text in the files, values once `load_dataset` has read them),
`answer` the final answer as JSON text, `key` the scenario's coordinates.
{gold}Every optimum was found again by a second, independent method while the data was made: 0 disagreements.
Rows are a pure function of family, split, seed, index and difficulty; no split or seed draws from another's
stream. The cases are synthetic: no person, company or real event is described. All text is English.

```python
from datasets import load_dataset

rows = load_dataset("PATH", "{config}", split="{split}")
```

## Counts

{counts}
Left out are scenarios that repeat an earlier one of their family and split. *Exact*: the same facts. *Near*:
at least {similarity:.0%} of the facts in common, found by MinHash and then compared in full. Drawing goes on
until the count is reached.

## Scenarios by difficulty

{difficulties}
## Lengths

Least / mean / greatest. Pieces are words, numbers and single marks.

{lengths}
## Answers

The most common values of every field, or least / mean / greatest of numbers.

{answers}
## Diversity

Distinct-n is the share of different n-grams of pieces in all briefs.

{diversity}
## Baselines

Mean reward on the first {sample} scenarios of each difficulty (fewer where there are fewer). `constant` and
`greedy` are the family's own; `majority` gives every field its most common value in this data. In `team` the
score is the team reward R with the default weights, and `greedy` takes the first specialist's pick that
nobody vetoes.

{baselines}
{meetings}## Made with

emads {version}. The same commands give the same bytes:

```bash
{commands}
```

`generator` is the sha256 of what the family's generator writes for its first scenarios at these difficulties,
`data` that of the shards' own sha256 in order.

{digests}
## Licence

Apache-2.0, like the program that made it.
"""
_GOLD = """\
Every answer of a role family is the exact optimum of its scenario and scored 1 by the family's verifier when
it was written.
"""
_TEAM_GOLD = """\
Rows of `team` are experts' meetings and no optima: no seat sees the others' facts. Every report states true
figures; what the funded plan is worth, as a share V of the optimum, stands under "Team meetings".
"""
_TEACHER_TEXT = """\
# Company decision demonstrations by a teacher model

Each row is one role's play of one generated scenario as a teacher model wrote it: `messages` is the whole
chat with tool calls and their true observations, `tools` the tools' signatures (JSON text in the files,
values once `load_dataset` has read them), `answer` the final answer as JSON text. Every row passed four
checks: its tools exist and took the calls, the verifier gave the answer the least reward or more, figures
named like a tool's were given by a tool or the brief, and the tools said the same when asked again. Rows of
an author `paraphrase:MODEL` are the oracle's plays after a brief in the model's words that states the same
facts. What was rejected, and why, is in `FAMILY/SPLIT-NUMBER.rejected.jsonl`. Splits share no scenario.

"""


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
    titles = ("shard", "author", "seed", "difficulties", "least reward", "scenarios", "plays", "rows")
    rows = (
        (
            shard.path,
            " ".join(shard.author.split()),
            shard.seed,
            ", ".join(map(str, shard.difficulties)),
            f"{shard.min_reward:g}",
            shard.num_scenarios,
            shard.num_scenarios * count_roles(shard.family),
            shard.num_rows,
            ", ".join(f"{reason} {count}" for reason, count in sorted(shard.rejected.items())) or "0",
            shard.num_unfinished,
        )
        for shard in index.shards
    )
    text = _TEACHER_TEXT + _table((*titles, "rejected", "unfinished"), rows)
    write_card_file(folder, configs, text, pretty_name="Company decision demonstrations by a teacher model")


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)


def _write_text(groups: Groups, found: Found) -> str:
    config, split = next(iter(groups), ("cto", "train"))
    families = {family for family, _ in groups}

    def table(titles: Sequence[str], cells: Callable[[RowStatistics], Iterable[Sequence[object]]]) -> str:
        """A table with the cells of each family and split, whose names begin its lines."""
        lines = [(*place, *line) for place, one in found.items() for line in cells(one)]
        return _table(("family", "split", *titles), lines)

    levels = sorted({level for one in found.values() for level in one.keys})
    meetings = [
        (*place, f"{low}-{high}", len(values), f"{fmean(values):.3f}", sum(value == 1 for value in values))
        for place, one in found.items()
        if place[0] == TEAM
        for (low, high), values in score_meetings(one)
    ]
    worth = _table(("family", "split", "difficulty", "scenarios", "mean V", "optima"), meetings)
    return _TEXT.format(
        gold=(_GOLD if families - {TEAM} else "") + (_TEAM_GOLD if TEAM in families else ""),
        config=config,
        split=_name_split(split),
        similarity=LEAST_SIMILARITY,
        sample=SAMPLE_PER_DIFFICULTY,
        version=importlib.metadata.version("emads"),
        counts=_tabulate_counts(groups),
        difficulties=table(
            [str(level) for level in levels],
            lambda one: [[len(one.keys.get(level, ())) for level in levels]],
        ),
        lengths=table(
            ("column", "characters", "pieces"),
            lambda one: (
                (column, describe_lengths(one.chars[column]), describe_lengths(one.pieces[column]))
                for column in TEXT_COLUMNS
            ),
        ),
        answers=table(
            ("role", "field", "values"),
            lambda one: (
                (role, name, describe_values(values)) for (role, name), values in one.count_answers().items()
            ),
        ),
        diversity=table(
            ("rows", "distinct briefs", *(f"distinct-{size}" for size in NGRAM_SIZES)),
            lambda one: [
                (one.num_rows, len(one.briefs), *(f"{one.distinct_share(size):.4f}" for size in NGRAM_SIZES))
            ],
        ),
        baselines=table(
            ("difficulty", "scenarios", *BASELINES),
            lambda one: (
                (
                    f"{low}-{high}",
                    len(rewards["oracle"]),
                    *(f"{fmean(rewards[name]):.3f}" for name in BASELINES),
                )
                for (low, high), rewards in score_baselines(one)
            ),
        ),
        meetings=f"## Team meetings\n\n{worth}\n" if meetings else "",
        commands="\n".join(_list_commands(groups)),
        digests=_table(
            ("family", "split", "generator", "data"),
            ((*place, shards[0].generator[:16], _digest(shards)[:16]) for place, shards in groups.items()),
        ),
    )


def _tabulate_counts(groups: Groups) -> str:
    rows = (
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
    )
    left_out = ("exact repeats left out", "near repeats left out")
    return _table(("family", "split", "seed", "scenarios", "rows", "drawn", *left_out), rows)


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
