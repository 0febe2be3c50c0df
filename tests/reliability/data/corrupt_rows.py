"""R14: rows of a data folder corrupted in every known way; each must be named, and no other row be lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from training.data.folders.datasets import generate_folder
from training.data.folders.rows import build_rows, encode_shard, load_messages, store_messages
from training.data.folders.validation import validate_folder

Row = dict[str, Any]


def change_json(column: str, change: Callable[[Any], object]) -> Callable[[Row], None]:
    """Apply `change` to the value of a chat or JSON column."""

    def apply(row: Row) -> None:
        if column == "messages":
            chat = load_messages(row[column])
            change(chat)
            row[column] = store_messages(chat)
            return
        value = json.loads(row[column])
        change(value)
        row[column] = json.dumps(value)

    return apply


# how a cto row is corrupt, and a part of the reason that must be given
CORRUPTIONS: dict[str, tuple[Callable[[Row], object], str]] = {
    "no key": (lambda row: row.update(key=None), "key is missing"),
    "unknown family": (lambda row: row.update(family="ctoo"), "unknown family 'ctoo'"),
    "unknown split": (lambda row: row.update(split="tset"), "unknown split 'tset'"),
    "negative index": (lambda row: row.update(index=-1), "must be >= 0"),
    "difficulty 11": (lambda row: row.update(difficulty=11), "difficulty must be 1 to 10"),
    "other index": (lambda row: row.update(index=row["index"] + 10**6), "contradicts the coordinates"),
    "other role": (lambda row: row.update(role="cost"), "has no role 'cost'"),
    "brief of another case": (lambda row: row.update(brief=row["brief"] + " "), "brief differs"),
    "cut messages": (lambda row: row.update(messages=row["messages"][:-1]), "messages differs"),
    "false observation": (
        change_json("messages", lambda chat: chat[3].update(content="latency 10 availability 99 cost 10")),
        "messages differs",
    ),
    "tool that does not exist": (
        change_json("messages", lambda chat: chat[2]["tool_calls"][0]["function"].update(name="guess")),
        "messages differs",
    ),
    "no tools": (lambda row: row.update(tools=[]), "tools differs"),
    "wrong answer": (
        change_json("answer", lambda answer: answer.update(cost=answer["cost"] + 1)),
        "answer differs",
    ),
    "NaN answer": (lambda row: row.update(answer='{"cost": NaN}'), "answer differs"),
    "row of another family": (
        lambda row: row.update(build_rows("risk", "train", 0, 3, 2)[0]),
        "not belong in",
    ),
    "row of another split": (lambda row: row.update(build_rows("cto", "test", 0, 3, 2)[0]), "not belong in"),
    "row of another seed": (lambda row: row.update(build_rows("cto", "train", 9, 3, 2)[0]), "not among"),
    "other author": (lambda row: row.update(author="nobody"), "author differs"),
    "empty brief": (lambda row: row.update(brief=""), "brief differs"),
    "no role": (lambda row: row.update(role=None), "role is missing"),
}


def try_corrupt_rows(folder: Path, count: int) -> list[str]:
    """Corrupt `count` rows, every second one of a folder, kinds in turn; what went wrong, a line each.

    Every corrupt row must be named with file, row and its reason, and all others count as clean.
    """
    generate_folder(("cto",), 2 * count, folder / "data")
    expected: dict[tuple[str, int], str] = {}
    number = num_clean = 0
    for path in sorted((folder / "data" / "cto").glob("*.parquet")):
        rows: list[Row] = pq.read_table(path).to_pylist()
        for place, row in enumerate(rows):
            number += 1
            if number % 2:
                num_clean += 1
                continue
            corrupt, reason = list(CORRUPTIONS.values())[number // 2 % len(CORRUPTIONS)]
            corrupt(row)
            expected[f"cto/{path.name}", place] = reason
        path.write_bytes(encode_shard(rows))
    report = validate_folder(folder / "data")
    named = {(problem.file, problem.row): problem.reason for problem in report.problems}
    problems = [
        f"{file} row {row}: {named.get((file, row))} instead of {reason}"
        for (file, row), reason in expected.items()
        if reason not in named.get((file, row), "")
    ]
    problems += [f"{place} is clean and was rejected" for place in named.keys() - expected.keys()]
    if report.num_clean != num_clean:
        problems.append(f"{report.num_clean} rows were counted as clean, {num_clean} are")
    return problems


def corrupt_rows(runs: PreparedRuns, count: int) -> Trials:
    """Yield one trial for all rows."""

    def call() -> str:
        return "; ".join(try_corrupt_rows(runs.fresh("corrupt-rows"), count))[:1000]

    yield Trial(f"{count}", f"{count} rows", call)
