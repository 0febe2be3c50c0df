"""Configuration keys that pages name exist; the generated reference lists every key, verb and option."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_pages import PAGES, ROOT
from pydantic import BaseModel

import emads
from emads.cli import app
from training.config.run_config import RunConfig

SECTIONS = "|".join(name for name, value in RunConfig().__iter__() if isinstance(value, BaseModel))
KEY = re.compile(rf"(?<![\w./-])((?:{SECTIONS})(?:\.[a-z_0-9]+)+)(?![\w/(-])")
# Fields of summary.json and files whose paths begin like a section.
NOT_KEYS = {"evaluation.stats", "data.rows", "review.md", "review.example.com"}


def list_keys(model: BaseModel, path: str = "") -> Iterator[str]:
    for name, value in model.__iter__():
        full = f"{path}{name}"
        yield full
        if isinstance(value, BaseModel):
            yield from list_keys(value, f"{full}.")


KEYS = set(list_keys(RunConfig()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_keys_exist(page: Path) -> None:
    named = set(KEY.findall(page.read_text())) - NOT_KEYS
    free = {key for key in named if key.startswith("engine.vllm.")}  # vLLM's own arguments
    assert sorted(named - KEYS - free) == []


def test_an_old_key_would_be_found() -> None:
    assert KEY.findall("set `marl.micro_batch_tokens` to 1") == ["marl.micro_batch_tokens"]
    assert "marl.micro_batch_tokens" not in KEYS


def load_generator() -> Any:
    spec = importlib.util.spec_from_file_location(
        "generate_reference", ROOT / "docs" / "generate_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_lists_every_key_with_a_meaning() -> None:
    page = load_generator().render_configuration()
    leaves = {key for key in KEYS if not any(other.startswith(f"{key}.") for other in KEYS)}
    for key in leaves:
        row = re.search(rf"^\| `{re.escape(key)}` \| (.+) \| (.*) \| (.+) \|$", page, re.MULTILINE)
        assert row is not None, key
        assert len(row[3].split()) >= 3, key


def test_the_reference_lists_every_verb_and_option() -> None:
    page = load_generator().render_commands()
    for verb in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"## emads {verb}" in page
    assert "| `--set` |" in page


def test_the_reference_lists_the_public_python_names() -> None:
    assert {*load_generator().PYTHON_NAMES, "__version__"} == set(emads.__all__)
