"""Links of README and docs lead to files and headings; paths of docs that code and configs name exist."""

import re
import subprocess
from pathlib import Path

import pytest
from doc_pages import FENCE, PAGES, README, ROOT

ANCHOR = re.compile(r"[^\w\- ]")
FOLDERS = "roles|scenarios|simulator|evaluation|training|serving|emads|tests|benchmarks|configs|examples|docs"
SOURCE_FILE = re.compile(
    rf"(?<![\w/.-])(?:{FOLDERS})/[\w/.-]+\.(?:py|yaml|md|json|ipynb)\b|`((?:{FOLDERS})/[\w/.-]+)`"
)
GENERATED = ROOT / "docs" / "reference"


def find_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {
        ANCHOR.sub("", heading.replace("`", "").strip().lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", FENCE.sub("", page.read_text())):
        if target.startswith("https://"):
            continue
        linked = (page.parent / target).resolve() if target else page
        if linked.is_relative_to(GENERATED):
            continue  # mkdocs checks links to generated pages
        assert linked.exists(), target
        assert not anchor or anchor in find_anchors(linked), f"{target}#{anchor}"


def test_a_wrong_link_would_be_found() -> None:
    assert "data-flow" not in find_anchors(README)
    assert "what-the-demo-shows" in find_anchors(README)


def test_pages_that_code_names_exist() -> None:
    listed = subprocess.run(
        ["git", "grep", "-hoE", r"docs/[a-z0-9/-]+\.md", "--", "*.py", "*.yaml", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert listed
    missing = sorted({path for path in listed if not (ROOT / path).exists()})
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_source_files_exist(page: Path) -> None:
    named = {found[0].strip("`") for found in SOURCE_FILE.finditer(page.read_text())}
    named -= {"roles/legal.py", "scenarios/legal.py", "tests/scenarios/test_legal.py", "roles/ROLE/"}
    named -= {"roles/vendor.py", "scenarios/vendor.py"}  # files that the reader writes
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_programs_exist(page: Path) -> None:
    modules = re.findall(r"python -m ([\w.]+)", page.read_text())
    ours = {module.rstrip(".") for module in modules if (ROOT / module.split(".")[0]).is_dir()}
    for module in ours:
        path = module.replace(".", "/")
        assert any((ROOT / f"{path}{end}").exists() for end in (".py", "/__main__.py")), module


def test_a_dead_path_would_be_found() -> None:
    found = [one[0] for one in SOURCE_FILE.finditer("see `training/rl` and training/gone.py, not site/x.py")]
    assert found == ["`training/rl`", "training/gone.py"]


def test_readme_stays_short() -> None:
    assert len(README.read_text().encode()) <= 8_192
