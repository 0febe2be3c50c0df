"""Command lines of README and docs: verbs, options and named files exist, and the cheap ones run."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_pages import PAGES, README, ROOT, read_emads_commands, read_shell_lines

from emads.cli import app, main
from emads.cli.train import LABEL_STAGES, TASKS
from emads.seats import STAGES
from training.config.loading import load_config

COMMANDS = sorted(
    {(str(page.relative_to(ROOT)), line) for page in PAGES for line in read_emads_commands(page)}
)
LINES = sorted({line for page in PAGES for line in read_shell_lines(page) if not line.startswith("emads ")})
MAKE_TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# Programs of others, and what a shell does by itself.
OTHERS = (
    *(
        "source ",
        "export ",
        "mypy",
        "pre-commit ",
        "pytest ",
        "ruff ",
        "inspect ",
        "trl ",
        "vf-eval ",
        "vf-validate ",
    ),
    *("accelerate launch ", "python3 -m venv ", "git ", "pip ", "cp ", "sed ", "PYTHONPATH="),
)
WRITTEN_BY_READER = (
    "roles/legal.py",
    "scenarios/legal.py",
    "tests/scenarios/test_legal.py",
    "my_family.py",
    "vendor.py",
    "qwen.yaml",
    "questions.jsonl",
    "gsm8k/train.jsonl",
)


def is_called_itself(group: Any, arguments: list[str]) -> bool:
    """Whether these arguments call a group as a command: `emads bench --seat ...`."""
    return group.invoke_without_command and arguments[:1] != [] and arguments[0].startswith("-")


def parse(command: str) -> tuple[str, dict[str, Any]]:
    """Return the verb and what the command line would hand to it; nothing is called."""
    verb: Any = typer.main.get_command(app)
    words, arguments = [], shlex.split(command, comments=True)[1:]
    while hasattr(verb, "commands") and not is_called_itself(verb, arguments):
        name, verb, arguments = verb.resolve_command(verb.make_context("emads", list(arguments)), arguments)
        words.append(name)
    return " ".join(words), verb.make_context("emads", arguments).params


def list_verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield [*words, name]
        yield from list_verbs(inner, (*words, name))


STAGE_NAMES = [["train", stage] for stage in (*STAGES, TASKS, *LABEL_STAGES)]
VERBS = [*list_verbs(typer.main.get_command(app)), *STAGE_NAMES]


def find_paths(values: Any) -> Iterator[str]:
    if isinstance(values, list | tuple):
        for value in values:
            yield from find_paths(value)
    elif isinstance(values, str | Path) and re.fullmatch(r"[\w./-]+\.(yaml|yml|md|py|jsonl)", str(values)):
        yield str(values)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_are_accepted_by_the_command_line(page: str, command: str) -> None:
    if command.split()[1:] in VERBS:  # running text may name a verb alone
        return
    _, given = parse(command.replace("[OPTIONS]", ""))
    if given.get("overrides") and given.get("stage") not in LABEL_STAGES:
        load_config(given.get("config") and ROOT / given["config"], given["overrides"])
    for path in find_paths(list(given.values())):
        is_output = path.startswith(("runs/", "out/"))
        assert is_output or path in WRITTEN_BY_READER or (ROOT / path).exists(), path


@pytest.mark.parametrize(
    "command",
    ["emads trian sft", "emads train sft runs/x --rolle cto", "emads validate", "emads demo --seeds three"],
)
def test_a_wrong_command_would_be_found(command: str) -> None:
    with pytest.raises(Exception, match=r"trian|rolle|folder|FOLDER|valid integer"):
        parse(command)


def is_cheap(command: str) -> bool:
    """Whether a command needs no trained run, no files of the reader and no minutes."""
    if "..." in command or command.endswith("--help"):
        return False
    if "--print-config" in command:
        return True
    if command.startswith("emads simulate "):
        waits = any(part in command for part in ("--reviewer web", "--reviewer terminal", "=human"))
        return "--team scripted" in command and not waits
    return command.startswith("emads plan ") and re.search(r"--device (a|h)\d00", command) is not None


CHEAP = sorted({line for _, line in COMMANDS if is_cheap(line)})


@pytest.mark.parametrize("command", CHEAP)
def test_cheap_commands_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("examples", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command, comments=True)[1:]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out
    if "--html" in arguments:
        assert list(tmp_path.glob(f"{arguments[arguments.index('--html') + 1]}/*.html"))


def test_the_first_command_of_the_readme_is_among_the_cheap_ones() -> None:
    first = next(line for line in read_shell_lines(README) if line.startswith("emads "))
    assert first in CHEAP


@pytest.mark.parametrize("line", LINES)
def test_other_lines_name_what_exists(line: str) -> None:
    words = shlex.split(line, comments=True)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    libraries = {re.split(r"\W", one)[0] for needed in extras.values() for one in needed}
    for extra in re.findall(r"'(?:emads|\.)\[(\w+)\]'", line):
        assert extra in extras
    for path in find_paths([word.partition("@")[0] for word in words]):
        is_new = path.startswith("runs/") or path in WRITTEN_BY_READER
        assert is_new or "=" in path or (ROOT / path).exists(), path
    if words[0] == "make":
        assert set(words[1:]) <= MAKE_TARGETS
    elif "-m" in words and not line.startswith("python3 -m venv"):
        module = words[words.index("-m") + 1].replace(".", "/")
        is_own = any((ROOT / f"{module}{end}").exists() for end in (".py", "/__init__.py"))
        assert is_own or module.split("/")[0] in libraries, module
    elif words[0] != "python":
        assert line.startswith(OTHERS), line


def test_installed_program_shows_every_verb() -> None:
    assert importlib.util.find_spec("emads") is not None
    shown = subprocess.run(
        [sys.executable, "-m", "emads.cli", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for verb in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert verb in shown
