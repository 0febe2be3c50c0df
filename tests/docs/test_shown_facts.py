"""The difficulty table, the meeting, the cases and the graph that pages show are those of the code."""

import json
import re

from doc_pages import README, ROOT, read_blocks

import emads
from scenarios.company import case, domain, parts, setting
from scenarios.tasks.registry import JOBS, TASK_FAMILIES
from simulator.graph.team_graph import open_team

EXPLANATION = ROOT / "docs" / "explanation"


def read_table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the difficulty table under a heading, by their first cell."""
    text = (EXPLANATION / "scenarios.md").read_text()
    section = text[text.index(f"## {heading}\n") :]
    table = section[section.index("\n| ") : section.index("\n\n", section.index("\n| "))]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows[0] == ["difficulty", *map(str, range(1, 11))]
    return {row[0]: row[1:] for row in rows[2:]}


CODE = {
    "options": setting.NUM_OPTIONS,
    "upgrades of a structure": domain.NUM_UPGRADES,
    "limits that need a part, %": setting.BREAKS_LIMIT,
    "parts that a question leaves open, at least": parts.LEAST_AFFORDABLE,
    "budget, % of all best parts": case.BUDGET_SHARE,
    "and at most, % of those of the cheapest option": case.MOST_SHARE,
    "hidden profiles aimed at, %": case.HIDDEN_SHARE,
}


def test_the_difficulty_table_is_that_of_the_code() -> None:
    table = read_table("What difficulty changes")
    assert set(table) == set(CODE)
    for row, values in CODE.items():
        assert table[row] == [str(value) for value in values], row


def test_the_shown_meeting_is_the_one_that_the_command_plays() -> None:
    (played,) = emads.play(emads.load_team("scripted"), 1, first_index=7)
    said = " ".join(played.text.split())
    for page in (EXPLANATION / "scenarios.md", README):
        blocks = re.findall(r"```text\n(.*?)```", page.read_text(), re.DOTALL)
        block = next(text for text in blocks if "CTO reports" in text)
        for line in block.splitlines():
            words = " ".join(line.split()).removeprefix("CTO: accept, COO: accept")
            assert words in said or line in ("...", "") or line.startswith("  CTO: accept"), (page, line)


def test_the_picture_is_the_graph() -> None:
    shown = [block.text for block in read_blocks(EXPLANATION / "architecture.md", "mermaid")]
    assert shown == [open_team().get_graph().draw_mermaid().strip() + "\n"]


def test_lines_of_a_new_role_stand_where_the_page_says() -> None:
    (block,) = read_blocks(ROOT / "docs" / "how-to" / "add-a-role.md", "diff")
    changed = ""
    for line in block.text.splitlines():
        if line.startswith("--- "):
            changed = (ROOT / line[4:]).read_text()
        elif not line.startswith("+"):
            assert f"\n{line[1:]}" in changed, line


def test_folders_of_the_readme_exist() -> None:
    (tree,) = [block.text for block in read_blocks(README, "text") if block.text.startswith("roles/")]
    package = ""
    for line in tree.splitlines():
        names = line.split() if line.startswith("  ") or "  " not in line else line.split()[:1]
        for name in names:
            assert (ROOT / (package if line.startswith("  ") else "") / name).is_dir(), name
        package = names[0] if not line.startswith("  ") else package


def test_the_cases_to_read_are_those_of_the_generators() -> None:
    text = (EXPLANATION / "scenarios.md").read_text()
    heading = r"^### [^\n]*: `(\w+)/train/(\d+)/(\d+)/(\d+)`\n\n"
    shown = re.findall(heading + r"```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2 * len(JOBS)
    for name, *numbers, block in shown:
        case = TASK_FAMILIES[name].generate("train", *map(int, numbers))
        assert block == f"{case.brief}\n\nRight: {json.dumps(TASK_FAMILIES[name].solve(case))}\n", case.key
