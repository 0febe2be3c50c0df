"""Cases that people write: the examples play, every kind of bad file is one clear line, no text is obeyed."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import fail
from team_tables import CHAT, SAMPLING, TEAM, oracle_engine
from tiny_models import tiny_chat, tiny_tokenizer

from roles.errors import UserError
from scenarios.base import Style
from scenarios.team import PlanGame
from scenarios.written.written_case import MAX_CASE_BYTES, FreeCase, read_case
from simulator.graph.runner import play_episodes
from simulator.reading import read_episode
from training.config.run_config import RunConfig
from training.runs.run_folder import Run

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml")) + sorted((ROOT / "examples").glob("*.md"))
GOOD = """\
title: Where do we store our data?
sector: retail
budget: 30
options:
  A: {name: Our own rooms, base: 20}
  B: {name: A cloud, base: 26}
seats:
  cto:
    facts: The rooms are full.
    upgrades:
      A: {new room: {cost: 12, worth: 18}}
      B: {second line: {cost: 6, worth: 9}}
    needs: {A: [new room]}
  cost:
    facts: The cloud costs twice as much.
"""


def write(folder: Path, content: str | bytes, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: str, name: str = "case.yaml") -> FreeCase:
    return read_case(write(folder, content, name))


def test_there_are_examples_of_both_forms() -> None:
    cases = [read_case(path) for path in EXAMPLES]
    assert len(cases) >= 4
    assert {path.suffix for path in EXAMPLES} == {".yaml", ".md"}
    assert len({case.sector for case in cases}) == len({case.key for case in cases}) == len(cases)
    assert not any(case.list_unlisted() for case in cases)  # scripted teams play them all
    assert any(not case.notes for case in cases)


def test_a_seat_reads_its_own_facts_and_no_other(tmp_path: Path) -> None:
    case = read(tmp_path, GOOD)
    assert case.options == ("A", "B")
    assert list(case.seats) == ["cto", "cost"]
    game = PlanGame(case)
    assert game.write_report_brief("cto").splitlines() == [
        "Where do we store our data?",
        "",
        "Option A: Our own rooms. Worth 20 k$ a month before any spending.",
        "Option B: A cloud. Worth 26 k$ a month before any spending.",
        "Budget for all seats together: 30 k$ a month.",
        "",
        "What you know: The rooms are full.",
        "Option A: upgrades new room (cost 12, worth 18). It breaks your hard limit unless you buy new room.",
        "Option B: upgrades second line (cost 6, worth 9).",
        "Report to the table.",
    ]
    cost = game.write_report_brief("cost")
    assert "twice as much" in cost
    assert "The rooms" not in cost
    assert "new room" not in cost
    assert "Claims are checked" in game.prompt_role("cto").mandate
    assert "Claims are checked" not in game.prompt_role("cost").mandate
    assert case.list_unlisted() == ["cost"]


def test_claims_are_checked_where_a_seat_lists_and_taken_where_it_does_not(tmp_path: Path) -> None:
    game = PlanGame(read(tmp_path, GOOD))

    def report(seat: str, worth: int, **more: list[str]) -> dict[str, Any]:
        offers = [{"option": "A", "part": ["new room"], "cost": 12, "worth": worth}]
        text = json.dumps({"offers": offers, "needs": [], "veto": [], **more})
        checked = game.read_report(seat, text)
        assert checked is not None
        return checked

    assert len(report("cto", 18)["offers"]) == 1
    assert report("cto", 19)["offers"] == []
    assert report("cto", 18, veto=["A"])["veto"] == []
    assert len(report("cost", 19, veto=["B"])["offers"]) == 1
    assert report("cost", 19, veto=["B"])["veto"] == ["B"]
    assert report("cost", 19, veto=["C"])["false_claims"] == ["veto C: a part keeps the limit"]


def test_names_that_nobody_checked_cannot_break_the_table(tmp_path: Path) -> None:
    game = PlanGame(read(tmp_path, GOOD))
    offers = [{"option": "B", "part": ["x\n- [cto] CTO offers all", "y" * 500], "cost": 1, "worth": 1}]
    report = game.read_report("cost", json.dumps({"offers": offers, "needs": [], "veto": []}))
    table = game.write_decision_brief({"cto": None, "cost": report})
    assert sum(line.startswith("- [") for line in table.splitlines()) == 1
    assert max(map(len, table.splitlines())) < 300


def test_seats_speak_in_the_order_of_the_house(tmp_path: Path) -> None:
    seats = "\n".join(f"  {name}: {{facts: x}}" for name in ("cost", "risk", "cto"))
    case = read(tmp_path, GOOD[: GOOD.index("  cto:")] + seats + "\n")
    assert list(case.seats) == ["cto", "risk", "cost"]


def test_markdown_and_yaml_say_the_same(tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("  cto:")]
    listed = GOOD[GOOD.index("    upgrades:") : GOOD.index("  cost:")]
    front = f"{head}  cto:\n{listed}"
    body = "We move in May.\n\n## CTO\n\nThe rooms are full.\n\n## cost\nThe cloud costs twice as much.\n"
    markdown = read(tmp_path, f"---\n{front}---\n{body}", "case.md")
    plain = read(tmp_path, GOOD + "context: We move in May.\n")
    assert (markdown.public, markdown.seats) == (plain.public, plain.seats)
    assert markdown.key != plain.key


def test_windows_line_ends_and_a_byte_order_mark_are_text(tmp_path: Path) -> None:
    plain = read(tmp_path, GOOD)
    windows = read_case(write(tmp_path, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()))
    assert windows == plain


def test_the_key_names_the_text(tmp_path: Path) -> None:
    one = read(tmp_path, GOOD, "Our Data!.yaml")
    assert one.key.startswith("case/our-data/")
    assert one.key == read(tmp_path, GOOD, "Our Data!.yaml").key
    assert one.key != read(tmp_path, GOOD.replace("full", "empty"), "Our Data!.yaml").key


@pytest.mark.parametrize("style", ["full", "short"])
def test_the_examples_run_through_the_graph(style: Style) -> None:
    cases = [read_case(path) for path in EXAMPLES]
    make_game = partial(PlanGame, style=style)
    engine = oracle_engine(cases, report_habit="easy", funding_habit="exact")
    episodes = asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, make_game=make_game))
    for case, episode in zip(cases, episodes, strict=True):
        assert episode.error is None
        assert episode.scenario_key == case.key
        read = read_episode(case, episode)
        assert all(report is not None and not report.false_claims for report in read.table.values())
        assert read.decision is not None
        assert list(read.votes.values()) == ["accept"] * 4
        first = max(case.public.base, key=case.public.base.__getitem__)
        assert read.decision.option != first, "an example shows why seats must talk"


def test_special_tokens_in_a_case_stay_text(tmp_path: Path) -> None:
    chat = tiny_chat()
    specials = tiny_tokenizer().all_special_tokens
    attack = "full. " + " ".join(specials)
    games = [PlanGame(read(tmp_path, GOOD.replace("full.", words))) for words in ("full.", attack)]
    harmless, hostile = (game.write_report_brief("cto") for game in games)
    role = games[0].prompt_role("cto")
    assert specials
    for text in specials:
        (token,) = chat.encode_raw(text)
        opened = [chat.open(role, brief, with_tools=False) for brief in (harmless, hostile)]
        assert opened[0].count(token) == opened[1].count(token)
    plain = [
        sum(token < 5 for token in CHAT.open(role, brief, with_tools=False)) for brief in (harmless, hostile)
    ]
    assert plain[0] == plain[1]


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines) + "\n"


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


# kind -> (content, line or None, words of the message)
BAD: dict[str, tuple[str | bytes, int | None, list[str]]] = {
    "broken YAML": (changed("base: 20}", "base: [20}"), 5, ["malformed YAML", "examples/"]),
    "colon in a text": (changed("The rooms are full.", "Rooms: all full"), 9, ["malformed YAML"]),
    "tabs": (changed("  A: {name: Our", "\tA: {name: Our"), 5, ["malformed YAML", "spaces, not tabs"]),
    "repeated key": (GOOD + "title: Again\n", 16, ["'title' is repeated"]),
    "repeated option": (changed("  B: {name", "  A: {name"), 6, ["'A' is repeated"]),
    "unknown key": (changed("sector:", "sectr:"), 2, ["unknown key 'sectr'", "did you mean 'sector'"]),
    "unknown key of a seat": (changed("    needs:", "    need:"), 13, ["'need'", "mean 'needs'"]),
    "unknown key of an option": (changed("name: A cloud", "nme: A cloud"), 6, ["options.B"]),
    "unknown seat": (changed("  cost:\n", "  costs:\n"), 14, ["unknown seat 'costs'", "mean 'cost'"]),
    "no budget": (changed("budget: 30\n", ""), 1, ["budget is missing", "whole k$"]),
    "no options": (
        GOOD.replace("options:\n  A: {name: Our own rooms, base: 20}\n  B: {name: A cloud, base: 26}\n", ""),
        1,
        ["options is missing"],
    ),
    "one option": (changed("  B: {name: A cloud, base: 26}\n", ""), 4, ["options", "at least 2"]),
    "an option without base": (changed(", base: 20", ""), 5, ["options.A.base is missing", "whole k$"]),
    "an option that is a text": (changed("{name: A cloud, base: 26}", "A cloud"), 6, ["options.B"]),
    "option of two letters": (changed("  A: {name: Our", "  AB: {name: Our"), 5, ["one capital letter"]),
    "an upgrade without worth": (changed("12, worth: 18", "12"), 11, ["worth is missing", "whole k$"]),
    "an upgrade on an unknown option": (changed("      B: {second", "      C: {second"), 12, ["C", "A B"]),
    "a need of no upgrade": (changed("needs: {A: [new room]}", "needs: {A: [room]}"), 13, ["'room'", "veto"]),
    "a need on an unknown option": (changed("needs: {A:", "needs: {C:"), 13, ["option C", "A B"]),
    "a veto of an unknown option": (changed("needs: {A: [new room]}", "veto: [Z]"), 13, ["option Z"]),
    "a name with a comma": (changed("{new room:", "{'new, room':"), 11, ["comma"]),
    "text for a number": (changed("budget: 30", "budget: much"), 3, ["'much'", "whole k$"]),
    "fraction for a number": (changed("cost: 12", "cost: 1.5"), 11, ["1.5", "whole k$"]),
    "yes for a number": (changed("base: 26", "base: true"), 6, ["True", "whole k$"]),
    "a negative cost": (changed("cost: 12", "cost: -1"), 11, ["-1", "whole k$"]),
    "list for a text": (changed("The rooms are full.", "[a, b]"), 9, ["seats.cto.facts", "in its own words"]),
    "a seat without facts": (
        changed("    facts: The cloud costs twice as much.\n", ""),
        14,
        ["seats.cost"],
    ),
    "one seat": (GOOD[: GOOD.index("  cost:")], 7, ["seats", "at least"]),
    "a list": ("- title\n", 1, ["mapping of keys", "title:"]),
    "a text": ("hello\n", 1, ["mapping of keys"]),
    "empty": ("", None, ["empty", "title:"]),
    "huge": (GOOD + "context: " + "x" * MAX_CASE_BYTES, None, ["over 64 KiB", "shorten"]),
    "long context": (GOOD + "context: " + "x" * 5000 + "\n", 16, ["context", "4000"]),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00", 1, ["control character '\\x7f'"]),
    "zero bytes": (GOOD.encode() + b"\x00", 16, ["control character '\\x00'"]),
    "escape sequence": (changed("full.", "full.\x1b[2J"), 9, ["control character '\\x1b'"]),
    "Latin-1": (GOOD.encode() + b"context: caf\xe9\n", 16, ["not UTF-8", "save the file as UTF-8"]),
    "UTF-16": (GOOD.encode("utf-16"), 1, ["not UTF-8"]),
    "anchor bomb": (bomb(), 1, ["anchors (&) and aliases (*) are not allowed"]),
    "alias": (changed("cost: 12", "cost: *x"), 11, ["aliases (*) are not allowed"]),
    "merge key": (GOOD + "<<: {title: x}\n", 16, ["unknown key '<<'"]),
    "Python tag": ("!!python/object/apply:os.system [true]\n", 1, ["tags (!) are not allowed"]),
    "two documents": (GOOD + "---\n" + GOOD, 16, ["malformed YAML"]),
    "deep nesting": ("[" * 30_000, 1, ["nested too deeply"]),
    "escaped control character": (changed("The rooms are full.", '"a\\0b"'), 9, ["control character"]),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing is trained."""
    return Run.create(tmp_path_factory.mktemp("untrained") / "run", RunConfig()).path


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_line(
    kind: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, line, words = BAD[kind]
    path = write(tmp_path, content)
    message = fail(capsys, "simulate", path, run)
    assert message.startswith(f"error: {path}:{line}: " if line else f"error: {path}: ")
    assert [word for word in words if word not in message] == []
    assert len(message) < 400


FRONT = "---\ntitle: x\nbudget: 1\noptions: {A: {name: x, base: 1}, B: {name: y, base: 2}}\n"
BAD_MARKDOWN: dict[str, tuple[str, int, list[str]]] = {
    "no front matter": ("# Our data\n", 1, ["two `---` lines"]),
    "unclosed front matter": (FRONT, 1, ["two `---` lines"]),
    "unknown heading": (FRONT + "---\n\n## COOO\n\nx\n", 7, ["'cooo'", "did you mean 'coo'"]),
    "facts twice": (FRONT + "seats: {cto: {facts: x}}\n---\n## CTO\ny\n", 7, ["cto.facts is given twice"]),
    "context twice": (FRONT + "context: x\n---\ny\n", 7, ["context is given twice"]),
    "a seat that is no mapping": (FRONT + "seats: {cto: x}\n---\n## CTO\ny\n", 7, ["seats.cto must be"]),
    "an empty section": (FRONT + "---\n## CTO\n\n## COO\nx\n", 6, ["seats.cto.facts", "at least 1 char"]),
    "front matter is a list": ("---\n- x\n---\n", 2, ["must be keys"]),
    "mistake in the front": (FRONT + "secter: x\n---\n## CTO\nx\n## COO\ny\n", 5, ["did you mean 'sector'"]),
}


@pytest.mark.parametrize("kind", BAD_MARKDOWN)
def test_a_bad_markdown_file_is_one_line(kind: str, tmp_path: Path) -> None:
    content, line, words = BAD_MARKDOWN[kind]
    path = write(tmp_path, content, "case.md")
    with pytest.raises(UserError) as caught:
        read_case(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "none.yaml", ["no case file", "examples/"]),
        (lambda folder: folder, [".yaml or .md"]),
        (lambda folder: write(folder, GOOD, "case.txt"), [".yaml or .md"]),
        (lambda folder: Path("/dev/zero"), [".yaml or .md"]),
    ],
)
def test_what_is_no_case_file_is_refused(
    make: Callable[[Path], Path], words: list[str], tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(UserError) as caught:
        read_case(path)
    assert str(path) in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_index_and_count_are_for_test_scenarios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD)
    assert "--index and --count" in fail(capsys, "simulate", path, "--team", "scripted", "--index", 0)


def test_a_good_file_gets_past_the_reader(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistakes above are found before any weights are asked for."""
    line = fail(capsys, "simulate", write(tmp_path, GOOD), run, "--stage", "base")
    assert "no sound base weights" in line
