"""The data card of a data folder: README.md with counts, statistics, baselines and the commands that made it.

Equal shards and an equal version of emads give equal bytes.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq

from training.data.folders.baselines import BASELINES, SAMPLE_PER_DIFFICULTY, score_baselines, score_meetings
from training.data.folders.card_header import TAGS, write_card_file
from training.data.folders.index import DatasetIndex, OracleShard
from training.data.folders.near_duplicates import LEAST_SIMILARITY
from training.data.folders.row_statistics import NGRAM_SIZES, TEXT_COLUMNS, RowStatistics, describe_values
from training.data.folders.rows import ALL, TEAM, check_families
from training.runs.progress import progress

LICENSE = "apache-2.0"
Groups = Mapping[tuple[str, str], Sequence[OracleShard]]  # (family, split) -> its shards in order
Found = Mapping[tuple[str, str], RowStatistics]

_TEXT = """\
# Company decision demonstrations

Generated decision cases of the `emads` role families, each with an expert's play. One row is one role's play
of one scenario: `messages` is the whole chat with tool calls and their true observations, `tools` the tools'
signatures (like the arguments of calls JSON text in the files, values once `load_dataset` has read them),
`answer` the final answer as JSON text, `key` the scenario's coordinates.
{gold}{certified}
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

{rejected}emads {version}. The same commands give the same bytes:

```bash
{commands}
```

`generator` is the sha256 of what the family's generator writes for its first scenarios at these difficulties,
`data` that of the shards' own sha256 in order.

{digests}
## Licence

Apache-2.0, like the program that made it.
"""
_CERTIFIED = (
    "Every optimum was found again by a second, independent method while the data was made: 0 disagreements."
)
_NOT_CERTIFIED = "Not every optimum was checked by a second method: see the first table."
_GOLD = """\
Every answer of a role family is the exact optimum of its scenario and scored 1 by the family's verifier when
it was written.
"""
_TEAM_GOLD = """\
Rows of `team` are experts' meetings and no optima: no seat sees the others' facts. Every report states true
figures; what the funded plan is worth, as a share V of the optimum, stands under "Team meetings".
"""
_REJECTED = """\
These are the clean rows of another folder: {} problems kept rows out, see rejected.jsonl. The commands below
make all of them again.

"""


def write_card(folder: Path, index: DatasetIndex, *, num_rejected: int = 0) -> None:
    """Write README.md; `num_rejected` problems kept rows of another folder out of this one."""
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
        configs.setdefault(family, {})[split] = [shard.path for shard in shards]
    write_card_file(
        folder,
        configs,
        _write_text(groups, found, num_rejected),
        pretty_name="Company decision demonstrations",
        license_name=LICENSE,
        tags=TAGS,
    )


def _write_text(groups: Groups, found: Found, num_rejected: int) -> str:
    is_certified = all(shard.certified for shards in groups.values() for shard in shards)
    config, split = next(iter(groups), ("cto", "train"))
    return _TEXT.format(
        gold=_describe_gold({family for family, _ in groups}),
        certified=_CERTIFIED if is_certified else _NOT_CERTIFIED,
        config=config,
        split=split,
        similarity=LEAST_SIMILARITY,
        sample=SAMPLE_PER_DIFFICULTY,
        rejected=_REJECTED.format(num_rejected) if num_rejected else "",
        version=importlib.metadata.version("emads"),
        counts=_tabulate_counts(groups),
        difficulties=_tabulate_difficulties(found),
        lengths=_tabulate_lengths(found),
        answers=_tabulate_answers(found),
        diversity=_tabulate_diversity(found),
        baselines=_tabulate_baselines(found),
        meetings=_tabulate_meetings(found),
        commands="\n".join(_list_commands(groups)),
        digests=_table(
            ("family", "split", "generator", "data"),
            ((*place, shards[0].generator[:16], _digest(shards)[:16]) for place, shards in groups.items()),
        ),
    )


def _describe_gold(families: Set[str]) -> str:
    """State how good the answers are: optima of single roles, offers and plans of experts in a team."""
    return (_GOLD if families - {TEAM} else "") + (_TEAM_GOLD if TEAM in families else "")


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)


def _tabulate_counts(groups: Groups) -> str:
    rows = (
        (
            family,
            split,
            shards[0].seed,
            sum(shard.num_scenarios for shard in shards),
            sum(shard.num_rows for shard in shards),
            sum(shard.stop - shard.start for shard in shards),
            sum(shard.num_exact_repeats for shard in shards),
            sum(shard.num_near_repeats for shard in shards),
            "yes" if all(shard.certified for shard in shards) else "no",
        )
        for (family, split), shards in groups.items()
    )
    left_out = ("exact repeats left out", "near repeats left out")
    return _table(("family", "split", "seed", "scenarios", "rows", "drawn", *left_out, "certified"), rows)


def _tabulate_difficulties(found: Found) -> str:
    levels = sorted({level for one in found.values() for level in one.keys})
    rows = ((*place, *(len(one.keys.get(level, ())) for level in levels)) for place, one in found.items())
    return _table(("family", "split", *map(str, levels)), rows)


def _tabulate_lengths(found: Found) -> str:
    rows = (
        (*place, column, one.chars[column], one.pieces[column])
        for place, one in found.items()
        for column in TEXT_COLUMNS
    )
    return _table(("family", "split", "column", "characters", "pieces"), rows)


def _tabulate_answers(found: Found) -> str:
    rows = (
        (*place, role, name, describe_values(values))
        for place, one in found.items()
        for (role, name), values in one.count_answers().items()
    )
    return _table(("family", "split", "role", "field", "values"), rows)


def _tabulate_diversity(found: Found) -> str:
    rows = (
        (*place, one.num_rows, len(one.briefs), *(f"{one.distinct_share(size):.4f}" for size in NGRAM_SIZES))
        for place, one in found.items()
    )
    titles = ("family", "split", "rows", "distinct briefs", *(f"distinct-{size}" for size in NGRAM_SIZES))
    return _table(titles, rows)


def _tabulate_baselines(found: Found) -> str:
    rows = (
        (
            *place,
            f"{scores.band[0]}-{scores.band[1]}",
            scores.num_scenarios,
            *(f"{scores.means[name]:.3f}" for name in BASELINES),
        )
        for place, one in found.items()
        for scores in score_baselines(place[0], one)
    )
    return _table(("family", "split", "difficulty", "scenarios", *BASELINES), rows)


def _tabulate_meetings(found: Found) -> str:
    rows = [
        (*place, f"{one.band[0]}-{one.band[1]}", len(one.values), f"{fmean(one.values):.3f}", one.num_exact)
        for place, of_place in found.items()
        if place[0] == TEAM
        for one in score_meetings(of_place)
    ]
    titles = ("family", "split", "difficulty", "scenarios", "mean V", "optima")
    return f"## Team meetings\n\n{_table(titles, rows)}\n" if rows else ""


def _list_commands(groups: Groups) -> Iterator[str]:
    """One `emads generate` for the families that were asked for alike."""
    alike: dict[str, list[str]] = {}
    for shards in groups.values():
        first = shards[0]
        count = sum(s.stop - s.start - s.num_exact_repeats - s.num_near_repeats for s in shards)
        options = f"--count {count} --seed {first.seed} --split {first.split}"
        options += " --unseal" if first.split == "test" else ""
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
