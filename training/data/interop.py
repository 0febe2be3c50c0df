"""Our scenarios and rewards inside other trainers: folders and rewards for TRL's own commands.

- `write_trl_folder` turns demonstrations or cases into a folder that `trl sft` and `trl grpo` open as it is;
- reward functions by import path: `training.data.interop.verified_reward`, or one part of the verdict alone;

Roles that use their tools in TRL are in `serving.environments.trl_env`. Nothing here trains. Truth stays
behind the verifier: rows carry coordinates, which make the case again.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Json, List, Value
from transformers import PreTrainedTokenizerBase

from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios.base import SEALED, Scenario, Split, Style, Verdict
from scenarios.registry import FAMILIES, families
from training.data.demonstrations import difficulty_of
from training.data.folders.rows import build_rows, load_messages, load_tools

COORDINATES = ("family", "split", "seed", "index", "difficulty", "style")
_MESSAGE = {"role": Value("string"), "content": Value("string")}


def write_trl_folder(
    out: Path,
    role: str,
    *,
    count: int,
    difficulties: Sequence[int],
    seed: int = 0,
    direct: bool = False,
    style: Style = "full",
) -> dict[str, Path]:
    """Write `sft/` (messages, tools) and `grpo/` (prompt, coordinates) with a train and a test split each.

    direct: no tools; the answer follows the brief at once. style: of the prompts, "short" as for the tiny
    preset. Test cases are of the validation split: the sealed split stays sealed.

    Returns: the two folders, by name.

    Raises:
        UserError: unknown role.
    """
    if role not in ROLES:
        raise unknown("role", role, list(ROLES))
    folders = {name: out / name for name in ("sft", "grpo")}
    splits: dict[str, tuple[Split, int]] = {
        "train": ("train", count),
        "test": ("validation", max(1, count // 8)),
    }
    for name, (split, number) in splits.items():
        rows = [
            build_rows(role, split, seed, index, difficulty_of(index, difficulties), style)[0]
            for index in range(number)
        ]
        for folder, table in (("sft", _sft_table(rows, direct)), ("grpo", _grpo_table(rows, style))):
            folders[folder].mkdir(parents=True, exist_ok=True)
            table.to_parquet(folders[folder] / f"{name}.parquet")
    return folders


def _sft_table(rows: Sequence[dict[str, Any]], direct: bool) -> Dataset:
    made = []
    for row in rows:
        messages = load_messages(row["messages"])
        if direct:
            messages = [*messages[:2], {"role": "assistant", "content": row["answer"]}]
        made.append({"messages": messages, "tools": [] if direct else load_tools(row["tools"])})
    if direct:
        plain = [{"prompt": row["messages"][:2], "completion": row["messages"][2:]} for row in made]
        return Dataset.from_list(plain, features=Features(prompt=List(_MESSAGE), completion=List(_MESSAGE)))
    return Dataset.from_list(made, features=Features(messages=List(Json()), tools=List(Json())))


def _grpo_table(rows: Sequence[dict[str, Any]], style: Style) -> Dataset:
    made = [
        {name: row[name] for name in COORDINATES if name in row}
        | {"style": style, "prompt": load_messages(row["messages"])[:2]}
        for row in rows
    ]
    texts = ("family", "split", "style")
    kinds = {name: Value("string" if name in texts else "int64") for name in COORDINATES}
    return Dataset.from_list(made, features=Features(**kinds, prompt=List(_MESSAGE)))


@lru_cache(maxsize=4096)
def find_scenario(
    family: str, split: Split, seed: int, index: int, difficulty: int, style: Style = "full"
) -> Scenario:
    """The case with these coordinates, made again.

    Raises:
        UserError: unknown family; the test split, which is sealed.
    """
    if split in SEALED:
        raise UserError(f"the {split} split is sealed: train on train, tune on validation")
    if family not in FAMILIES:
        raise unknown("family", family, list(FAMILIES))
    return families(style)[family].generate(split, seed, index, difficulty)


def verified_reward(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The verifier's graded reward, 0 to 1. For TRL: `reward_funcs:
    [training.data.interop.verified_reward]`."""
    return [verdict.reward for verdict in _judge(completions, columns)]


def exact_reward(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 where the choice is the exact optimum."""
    return [float(verdict.exact) for verdict in _judge(completions, columns)]


def feasible_reward(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 where every hard constraint holds."""
    return [float(verdict.feasible) for verdict in _judge(completions, columns)]


def _judge(completions: Sequence[Any], columns: dict[str, Any]) -> Iterator[Verdict]:
    """One verdict per completion; the dataset's coordinate columns say which case it is of."""
    if missing := [name for name in COORDINATES if name not in columns]:
        raise ValueError(f"the dataset lacks the columns {missing}; write it with training.data.interop")
    for place, completion in enumerate(completions):
        *coordinates, style = (columns[name][place] for name in COORDINATES)
        scenario = find_scenario(*coordinates, style)
        text = completion if isinstance(completion, str) else str(completion[-1].get("content") or "")
        yield families(style)[scenario.family].verify(scenario, text)


def prepare_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Tell TRL how this project's chat templates write tool calls, so that it can read sampled ones."""
    anchor = "<|im_start|>assistant\n" if "<|im_start|>" in str(tokenizer.chat_template) else "<|assistant|>"
    end = str(tokenizer.eos_token).replace("|", r"\|")
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": anchor,
        "fields": {
            "tool_calls": {
                "open": "<tool_call>",
                "close_pattern": r"</tool_call>\s*",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close_pattern": rf"{end}\s*", "content": "text"},
        },
    }
    return tokenizer
