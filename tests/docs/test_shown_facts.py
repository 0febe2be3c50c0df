"""Difficulty tables and the graph that pages show are those of the code."""

from typing import Any

import pytest
from doc_pages import README, ROOT, read_blocks

from scenarios import cto, reconcile, risk
from scenarios.world import architecture, case, prices, threats, work
from simulator.graph.team_graph import graph_mermaid

EXPLANATION = ROOT / "docs" / "explanation"
DIFFICULTIES = range(1, 11)


def read_table(family: str) -> dict[str, list[str]]:
    """Return the rows of a family's difficulty table, by their first cell."""
    text = (EXPLANATION / "scenarios.md").read_text()
    section = text[text.index(f"### {family}\n") :]
    table = section[section.index("\n| ") : section.index("\n\n", section.index("\n| "))]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows[0] == ["difficulty", *map(str, DIFFICULTIES)]
    return {row[0]: row[1:] for row in rows[2:]}


CODE: dict[str, dict[str, Any]] = {
    "cto": {
        "options": cto.NUM_OPTIONS,
        "builds of an option": [
            1 if level < architecture.BUILDS_FROM else architecture.NUM_BUILDS for level in DIFFICULTIES
        ],
        "components per option": architecture.NUM_COMPONENTS,
        "availability decides, %": [round(100 * cto.availability_share(level)) for level in DIFFICULTIES],
    },
    "coo": {
        "packages": work.NUM_PACKAGES,
        "people": work.NUM_PEOPLE,
        "fewest precedence edges": work.FEWEST_EDGES,
        "most precedence edges": work.MOST_EDGES,
        "least contrast, hours": work.LEAST_CONTRAST,
    },
    "risk": {
        "assets": threats.NUM_ASSETS,
        "controls": threats.NUM_CONTROLS,
        "obvious purchase misses, %": [round(100 * share) or "-" for share in risk.MISLED_SHARE],
        "money in steps of": map(threats.cost_step, DIFFICULTIES),
        "loss per score point": map(risk.score_step, DIFFICULTIES),
    },
    "cost": {
        "items": prices.NUM_ITEMS,
        "items in one tier for the discount": [count or "-" for count in prices.DISCOUNT_COUNT],
    },
    "reconcile": {
        "options": reconcile.NUM_OPTIONS,
        "largest weight": reconcile.MOST_WEIGHT,
        "least gap to the second": reconcile.LEAST_GAP,
        "stakeholders drawn with a veto, %": [round(100 * share) for share in reconcile.VETO_SHARE],
        "more favoured option loses, %": [round(100 * share) or "-" for share in reconcile.FAVOURED_LOSES],
        "a vetoed option is fairer, %": [round(100 * share) or "-" for share in reconcile.VETO_DECIDES],
    },
    "team": {
        "options": case.NUM_OPTIONS,
        "seats with a veto, %": [round(100 * share) for share in case.VETO_SHARE],
        "most vetoes of a seat": case.MOST_VETOES,
        "two critical seats, %": [round(100 * share) for share in case.TWO_CRITICAL_SHARE],
        "best is nobody's favourite, %": [round(100 * share) or "-" for share in case.COMPROMISE_SHARE],
    },
}


@pytest.mark.parametrize("family", CODE)
def test_difficulty_tables_are_those_of_the_code(family: str) -> None:
    table = read_table(family)
    for row, values in CODE[family].items():
        assert table[row] == [str(value) for value in values], row


def test_the_picture_is_the_graph() -> None:
    shown = [block.text for block in read_blocks(EXPLANATION / "architecture.md", "mermaid")]
    assert shown == [graph_mermaid().strip() + "\n"]


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
