"""Counts what a user has to know: commands, options and configuration keys; and product lines by package.

python -m benchmarks.interface_size
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from emads.cli import app
from training.config.rl_config import RLConfig
from training.config.run_config import RunConfig

ROOT = Path(__file__).parents[1]
PACKAGES = ("roles", "scenarios", "simulator", "evaluation", "training", "serving", "emads")


def list_commands(command: Any, words: tuple[str, ...] = ("emads",)) -> Iterator[tuple[str, int]]:
    """Yield every command that does something, with its number of options."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from list_commands(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words), sum(one.param_type_name == "option" for one in command.params)


def list_keys(model: BaseModel, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of a config that hold a value."""
    for name, value in model:
        if isinstance(value, BaseModel):
            yield from list_keys(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def main() -> None:
    """Print the counts."""
    commands = dict(list_commands(typer.main.get_command(app)))
    for name, count in commands.items():
        print(f"{name:<24}{count:>4}")
    lines = {
        name: sum(len(path.read_text().splitlines()) for path in (ROOT / name).rglob("*.py"))
        for name in PACKAGES
    }
    paths = set(list_keys(RunConfig()))
    shared = set(list_keys(RLConfig()))  # that the section `rl` sets for both stages
    keys = {
        path for path in paths if path.partition(".")[2] not in shared or path.partition(".")[0] != "marl"
    }
    print(f"commands {len(commands)}, options {sum(commands.values())}")
    print(f"keys {len(keys)}, those of `rl` counted once; {len(paths)} paths")
    print(f"lines {sum(lines.values())}: {', '.join(f'{name} {count}' for name, count in lines.items())}")


if __name__ == "__main__":
    main()
