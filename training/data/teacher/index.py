"""teacher.json and the data card of a folder that a teacher wrote: its shards, and how much was rejected."""

from pathlib import Path

from training.data.folders.card_header import write_card_file
from training.data.folders.index import FolderIndex, Shard
from training.data.folders.rows import count_roles

_TEXT = """\
# Company decision demonstrations by a teacher model

Each row is one role's play of one generated scenario as a teacher model wrote it: `messages` is the whole
chat with tool calls and their true observations, `tools` the tools' signatures (JSON text in the files,
values once `load_dataset` has read them), `answer` the final answer as JSON text. Every row passed four
checks: its tools exist and took the calls, the verifier gave the answer the least reward or more, figures
named like a tool's were given by a tool or the brief, and the tools said the same when asked again. Rows of
an author `paraphrase:MODEL` are the oracle's plays after a brief in the model's words that states the same
facts. What was rejected, and why, is in `FAMILY/SPLIT-NUMBER.rejected.jsonl`. Splits share no scenario.

| shard | author | seed | difficulties | least reward | scenarios | plays | rows | rejected | unfinished |
|---|---|---|---|---|---|---|---|---|---|
"""


class TeacherShard(Shard):
    """One Parquet file of a teacher's rows.

    Example: TeacherShard(path="cto/train-00000.parquet", family="cto", split="train", author="teacher:qwen",
                          seed=0, difficulties=(1, 2), min_reward=1.0, num_scenarios=1000, num_rows=812,
                          rejected={"answer": 170, "chain": 18}, num_unfinished=0, cost=1.42,
                          prompt_tokens=4000000, completion_tokens=310000, sha256="5c...")
    """

    author: str
    seed: int
    difficulties: tuple[int, ...]
    min_reward: float  # of its rows' answers
    num_scenarios: int  # asked for
    rejected: dict[str, int]  # by reason
    num_unfinished: int  # not played to their end yet: a failure, a limit
    cost: float  # in the currency of the prices, all runs together
    prompt_tokens: int  # as far as the endpoint said
    completion_tokens: int


class TeacherIndex(FolderIndex[TeacherShard]):
    """Content of teacher.json."""

    FILE = "teacher.json"
    FORMAT = "emads-teacher/2"
    REMEDY = "delete it to have it made again from the journals"


def write_teacher_card(folder: Path, index: TeacherIndex) -> None:
    """Write README.md of a folder of a teacher's rows."""
    configs: dict[str, dict[str, list[str]]] = {}
    for shard in index.shards:
        configs.setdefault(shard.family, {}).setdefault(shard.split, []).append(shard.path)
    text = _TEXT + "".join(_describe(shard) for shard in index.shards)
    write_card_file(folder, configs, text, pretty_name="Company decision demonstrations by a teacher model")


def _describe(shard: TeacherShard) -> str:
    rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(shard.rejected.items())) or "0"
    cells = (
        shard.path,
        " ".join(shard.author.replace("|", " ").split()),
        shard.seed,
        ", ".join(str(difficulty) for difficulty in shard.difficulties),
        f"{shard.min_reward:g}",
        shard.num_scenarios,
        shard.num_scenarios * count_roles(shard.family),
        shard.num_rows,
        rejected,
        shard.num_unfinished,
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"
