"""docs/how-to/write-a-family.md: the program on the page is a whole family that passes conformance."""

import re
from pathlib import Path
from typing import Any

import pytest

from emads.cli import main
from scenarios.conformance import check, load_family

DOCS = Path(__file__).parents[2] / "docs"
MOST_LINES = 60


def find_python_blocks(page: str) -> list[str]:
    """The fenced Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


PAGE = (DOCS / "how-to" / "write-a-family.md").read_text()
[FAMILY_BLOCK] = find_python_blocks(PAGE)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The page's family, as a file."""
    path = tmp_path / "vendor.py"
    path.write_text(FAMILY_BLOCK)
    return path


def test_the_family_on_the_page_is_short_and_conforms(program: Path) -> None:
    assert len(program.read_text().splitlines()) <= MOST_LINES
    family = load_family(f"{program}:FAMILY")
    assert family.name == "vendor"
    assert check(family) == []


def test_the_command_says_that_it_conforms(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", str(program)]) == 0
    said = capsys.readouterr().out.strip()
    assert said == "vendor conforms (50 scenarios)"
    assert f"`{said}`" in PAGE


def test_the_command_lists_broken_promises(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = program.read_text().replace("(9 * parts[", "(8 * parts[")
    assert source != program.read_text()
    program.write_text(source)
    assert main(["conformance", f"{program}:FAMILY"]) == 2
    said = capsys.readouterr()
    assert "gold: vendor/train/0/0/1: the oracle's answer gets" in said.out
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reference", "reason"),
    [
        ("FAMILY = 3", "x.py", "unknown family in .*x.py: 'FAMILY'"),
        ("from scenarios.reconcile import FAMILY as MINE", "x.py:MIEN", "did you mean 'MINE'"),
        ("1 / 0", "x.py", "x.py cannot be run: ZeroDivisionError"),
        ("def f(:", "x.py", "x.py cannot be run: SyntaxError"),
        ("", "y.py:FAMILY", "no Python file .*y.py"),
        ("", "x.txt", "no Python file .*x.txt"),
    ],
)
def test_files_without_a_family_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reference: str, reason: str
) -> None:
    (tmp_path / "x.py").write_text(text)
    assert main(["conformance", f"{tmp_path}/{reference}"]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"error: .*{reason}.*\n", error)


def test_a_file_may_import_its_neighbours(program: Path) -> None:
    (program.parent / "neighbour.py").write_text("from vendor import FAMILY as THEIRS")
    assert load_family(f"{program.parent}/neighbour.py:THEIRS").name == "vendor"


def test_the_functions_on_the_page_say_what_they_say() -> None:
    page = (DOCS / "how-to" / "use-other-trainers.md").read_text()
    [block] = [block for block in find_python_blocks(page) if "role_reward(" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    assert f'# "{names["observation"]}"' in block
    assert names["verdict"].reward == names["parts"]["correctness"]
    assert names["parts"]["total"] > names["verdict"].reward
