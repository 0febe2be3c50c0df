"""docs/write-a-family.md: the program on the page is a whole family, and the command checks it as it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from emads.cli import main
from scenarios.conformance import check
from scenarios.loading import load_family

PAGE = (Path(__file__).parent.parent.parent / "docs" / "write-a-family.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MOST_LINES = 60


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The page's family, as a file."""
    path = tmp_path / "vendor.py"
    path.write_text(BLOCKS[0])
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
    assert main(["conformance", f"{program}:FAMILY", "--count", "20"]) == 2
    said = capsys.readouterr()
    assert "gold: vendor/train/0/0/1: the oracle's answer gets" in said.out
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reference", "reason"),
    [
        ("FAMILY = 3", "x.py", "unknown family in .*x.py: 'FAMILY'"),
        ("from scenarios.cto import FAMILY as MINE", "x.py:MIEN", "did you mean 'MINE'"),
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


def test_the_environment_on_the_page_says_what_it_says() -> None:
    names: dict[str, Any] = {}
    exec(BLOCKS[1], names)
    assert f'# "{names["observation"]}"' in BLOCKS[1]
    assert names["verdict"].reward == names["parts"]["correctness"]
    assert names["reward"] == names["parts"]["total"]
    assert len(BLOCKS) == 2
