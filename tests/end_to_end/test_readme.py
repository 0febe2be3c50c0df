"""README.md and docs/ tell the truth: commands parse, links lead somewhere, pictures and tables are real."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from readme_tree import BEGIN, END, OTHERS, find_modules, read_tree

from emads.cli import STAGES, app
from emads.options import choose_roles, parse_difficulties
from scenarios import coo, cost, cto, headroom, reconcile, risk
from scenarios.base import FORMS
from scenarios.briefs import forms
from scenarios.team import verdicts as team_verdicts
from scenarios.world import architecture, case, prices, threats, work
from simulator.graph.team_graph import graph_mermaid
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.data.rows import check_families

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
DIFFICULTIES = range(1, 11)


def find_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def find_commands(text: str) -> list[str]:
    """Every `emads ...` line in a shell block, and every `emads ...` in running text."""
    lines = [line for block in find_blocks(text, "bash") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in lines if line.startswith("emads ")] + re.findall(r"`(emads [a-z][^`]*)`", prose)


def parse_command(command: str) -> dict[str, Any]:
    """What the command line would hand to the verb, which is not called."""
    verb: Any = typer.main.get_command(app)
    arguments = shlex.split(command, comments=True)[1:]
    while hasattr(verb, "commands"):
        _, verb, arguments = verb.resolve_command(verb.make_context("emads", list(arguments)), arguments)
    given: dict[str, Any] = verb.make_context("emads", arguments).params
    return given


COMMANDS = [(page.name, command) for page in PAGES for command in find_commands(page.read_text())]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_shown_commands_parse(page: str, command: str) -> None:
    given = parse_command(command)
    load_config(given.get("config") and ROOT / given["config"], given.get("overrides") or ())
    choose_roles(given.get("role"))
    check_families(given.get("family") or ())
    parse_difficulties(given.get("difficulties", "1"))
    assert given.get("stage", "base") in STAGES


def test_every_verb_is_shown() -> None:
    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert verbs == {command.split()[1] for command in find_commands(README)}


@pytest.mark.parametrize(
    "command",
    ["emads trian sft", "emads train sft --rolle cto", "emads validate", "emads demo --seeds three"],
)
def test_a_wrong_command_would_be_found(command: str) -> None:
    with pytest.raises(Exception, match=r"trian|rolle|folder|valid integer"):
        parse_command(command)


def test_make_targets_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = re.findall(r"make (\w+)", "\n".join(find_blocks(README, "bash")))
    assert len(shown) >= 2
    assert set(shown) <= set(targets)


def test_config_examples_are_accepted(tmp_path: Path) -> None:
    blocks = find_blocks(README, "yaml")
    assert blocks
    for block in blocks:
        (tmp_path / "example.yaml").write_text(block)
        assert load_config(tmp_path / "example.yaml", ()) != RunConfig()


def test_the_tree_lists_every_file_and_no_other() -> None:
    tree = read_tree(README[README.index(BEGIN) + len(BEGIN) : README.index(END)])
    assert sorted(path for path in tree if path.endswith(".py")) == find_modules(), (
        "the file tree is out of date: python tests/support/readme_tree.py"
    )
    assert [path for path in tree if not path.endswith(".py")] == list(OTHERS)
    assert all((ROOT / path).exists() for path in OTHERS)


def test_the_picture_is_the_graph() -> None:
    assert find_blocks(README, "mermaid") == [graph_mermaid().strip() + "\n"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def read_table(family: str) -> dict[str, list[str]]:
    """Rows of a family's difficulty table in docs/scenarios.md, by their first cell."""
    text = (ROOT / "docs" / "scenarios.md").read_text()
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


def test_thresholds_in_the_text_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text()
    for sentence in (
        f"From difficulty {cto.THROUGHPUT_FROM} a throughput is required",
        f"From difficulty {architecture.BRANCHES_FROM} components stand side by side",
        f"From difficulty {architecture.SKIPS_FROM} edges are left out",
        f"From difficulty {work.UNQUALIFIED_FROM} some people cannot do some packages",
        f"From difficulty {coo.ORDER_FROM} the order matters",
        f"From difficulty {architecture.BUILDS_FROM} every option comes in {architecture.NUM_BUILDS} builds",
        f"From difficulty {forms.FORMS_FROM} briefs come in {len(FORMS)} forms",
        f"From difficulty {headroom.BETTER_OF_TWO_FROM} a blind choice is the better of two",
        f"From difficulty {reconcile.FAIRNESS_FROM} the tool tells",
        f"From difficulty {reconcile.ALL_PARTS_FROM} only an answer that is right in every part",
        f"From difficulty {team_verdicts.CONTRADICTIONS_COUNT_FROM} a report that picks",
    ):
        assert sentence in text
    with_discount = [cost.generate("test", 0, 0, d).facts["discount"] is not None for d in DIFFICULTIES]
    with_budget = [cost.generate("test", 0, 0, d).facts["budget"] is not None for d in DIFFICULTIES]
    assert f"From difficulty {1 + with_discount.index(True)} a volume discount" in text
    assert f"From difficulty {1 + with_budget.index(True)} a budget" in text
