"""Every Python block of README and docs runs, and every example of the public functions."""

import doctest
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import PAGES, ROOT, read_blocks

import emads.api
import emads.team

BLOCKS = {str(page.relative_to(ROOT)): read_blocks(page, "python") for page in PAGES}
RUN = {name: [block for block in blocks if block.reason is None] for name, blocks in BLOCKS.items()}


@pytest.mark.parametrize("page", [name for name, blocks in RUN.items() if blocks])
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in RUN[page]:
        exec(compile(block.text, page, "exec"), names)


def test_blocks_that_do_not_run_say_why() -> None:
    reasons = {(name, block.reason) for name, blocks in BLOCKS.items() for block in blocks if block.reason}
    assert reasons == {
        ("docs/how-to/use-other-trainers.md", "needs the package openenv and a running server"),
        ("docs/how-to/export.md", "needs an exported team with adapters"),
        ("docs/how-to/serve.md", "needs a running server"),
        (
            "docs/how-to/add-a-role.md",
            "a file of the reader; tests/end_to_end/test_new_role.py writes and runs it",
        ),
    }


@pytest.mark.parametrize("module", [emads.api, emads.team], ids=lambda module: module.__name__)
def test_examples_of_the_public_functions_run(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed
