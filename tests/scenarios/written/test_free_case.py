"""Cases that people write: the examples play, every kind of bad file is one clear line, no text is obeyed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import fail
from team_tables import CHAT, SAMPLING, TEAM, oracle_engine
from tiny_models import tiny_chat, tiny_tokenizer

from roles.errors import UserError
from roles.registry import ROLES
from scenarios.team import parse_decision, parse_report, parse_vote
from scenarios.written.case_text import MAX_CASE_BYTES
from scenarios.written.written_case import FreeCase, read_case
from simulator.graph.runner import play_episodes
from training.config.run_config import RunConfig
from training.runs.run_folder import Run

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml")) + sorted((ROOT / "examples").glob("*.md"))
GOOD = """\
title: Where do we store our data?
sector: retail
options:
  A: Our own rooms
  B: A cloud
seats:
  cto:
    facts: The rooms are full.
    stakes: 83
    limit: 30
    utilities: {A: 45, B: 72}
  cost:
    facts: The cloud costs twice as much.
"""


def write(folder: Path, content: str | bytes, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: str, name: str = "case.yaml", *, figures_only: bool = False) -> FreeCase:
    return read_case(write(folder, content, name), figures_only=figures_only)


def test_there_are_examples_of_both_forms() -> None:
    cases = [read_case(path) for path in EXAMPLES]
    assert len(cases) >= 4
    assert {path.suffix for path in EXAMPLES} == {".yaml", ".md"}
    assert len({case.sector for case in cases}) == len({case.key for case in cases}) == len(cases)
    assert all(seat.facts for case in cases for seat in case.seats.values())  # scripted teams play them all
    assert any(not case.notes for case in cases)


def test_a_seat_reads_its_own_facts_and_no_other(tmp_path: Path) -> None:
    case = read(tmp_path, GOOD)
    assert case.options == ("A", "B")
    assert list(case.seats) == ["cto", "cost"]
    assert case.seats["cto"].brief == (
        "Retail case. CTO seat. Stakes 83. A 45 B 72. Limit 30.\n"
        "Where do we store our data?\nOption A: Our own rooms\nOption B: A cloud\n"
        "Your facts: The rooms are full.\n"
        "Report with one JSON object: pick (an option), flag (0 to 3, how much you press for it), "
        "veto (the options that break your hard limit, [] for none)."
    )
    assert case.seats["cost"].brief.startswith("Retail case. Cost seat.\nWhere do we store")
    assert "twice as much" in case.seats["cost"].brief
    assert "The rooms" not in case.seats["cost"].brief
    assert case.seats["cost"].facts == {}


def test_a_team_of_figures_reads_the_wording_it_was_trained_on(tmp_path: Path) -> None:
    case = read(tmp_path, GOOD, figures_only=True)
    assert case.seats["cto"].brief == "Retail case. CTO seat. Stakes 83. A 45 B 72. Limit 30."
    assert case.notes["cto"] == "The rooms are full."
    assert "twice as much" in case.seats["cost"].brief  # it has no figures


def test_seats_speak_in_the_order_of_the_house(tmp_path: Path) -> None:
    seats = "\n".join(f"  {name}: {{facts: x}}" for name in ("cost", "risk", "cto"))
    case = read(tmp_path, GOOD[: GOOD.index("  cto:")] + seats + "\n")
    assert list(case.seats) == ["cto", "risk", "cost"]


def test_markdown_and_yaml_say_the_same(tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("  cto:")]
    front = head + "  cto: {stakes: 83, limit: 30, utilities: {A: 45, B: 72}}\n"
    body = "We move in May.\n\n## CTO\n\nThe rooms are full.\n\n## cost\nThe cloud costs twice as much.\n"
    markdown = read(tmp_path, f"---\n{front}---\n{body}", "case.md")
    plain = read(tmp_path, GOOD + "context: We move in May.\n")
    assert {role: seat.brief for role, seat in markdown.seats.items()} == {
        role: seat.brief for role, seat in plain.seats.items()
    }
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


def test_the_examples_run_through_the_graph() -> None:
    cases = [case for case in map(read_case, EXAMPLES) if all(seat.facts for seat in case.seats.values())]
    assert len(cases) >= 3
    episodes = asyncio.run(play_episodes(cases, TEAM, oracle_engine(cases), CHAT, SAMPLING))
    for case, episode in zip(cases, episodes, strict=True):
        assert episode.error is None
        assert episode.scenario_key == case.key
        assert all(parse_report(case, text) for text in episode.reports.values())
        assert parse_decision(case, episode.decision) is not None
        assert [parse_vote(text) for text in episode.votes.values()] == ["accept"] * 4


def test_special_tokens_in_a_case_stay_text(tmp_path: Path) -> None:
    chat = tiny_chat()
    specials = tiny_tokenizer().all_special_tokens
    attack = "full. " + " ".join(specials)
    harmless, hostile = (
        read(tmp_path, GOOD.replace("full.", words)).seats["cto"].brief for words in ("full.", attack)
    )
    assert specials
    for text in specials:
        (token,) = chat.encode_raw(text)
        opened = [chat.open(ROLES["cto"], brief, with_tools=False) for brief in (harmless, hostile)]
        assert opened[0].count(token) == opened[1].count(token)
    plain = CHAT.open(ROLES["cto"], hostile, with_tools=False)
    assert sum(token < 5 for token in plain) == sum(
        token < 5 for token in CHAT.open(ROLES["cto"], harmless, with_tools=False)
    )


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines) + "\n"


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


# kind -> (content, line or None, words of the message)
BAD: dict[str, tuple[str | bytes, int | None, list[str]]] = {
    "broken YAML": (changed("  A: Our own rooms", "  A: [Our own rooms"), 5, ["malformed YAML", "examples/"]),
    "colon in a text": (changed("The rooms are full.", "Rooms: all full"), 8, ["malformed YAML"]),
    "tabs": (changed("  A: Our own", "\tA: Our own"), 4, ["malformed YAML", "spaces, not tabs"]),
    "repeated key": (GOOD + "title: Again\n", 14, ["'title' is repeated"]),
    "repeated option": (changed("  B: A cloud", "  A: A cloud"), 5, ["'A' is repeated"]),
    "unknown key": (changed("sector:", "sectr:"), 2, ["unknown key 'sectr'", "did you mean 'sector'"]),
    "unknown key of a seat": (changed("limit: 30", "limits: 30"), 10, ["'limits'", "mean 'limit'"]),
    "unknown seat": (changed("  cost:", "  costs:"), 12, ["unknown seat 'costs'", "mean 'cost'"]),
    "no options": (
        GOOD.replace("options:\n  A: Our own rooms\n  B: A cloud\n", ""),
        1,
        ["options is missing"],
    ),
    "one option": (changed("  B: A cloud\n", ""), 3, ["options", "at least 2"]),
    "missing utility": (changed("{A: 45, B: 72}", "{A: 45}"), 11, ["lacks option B", "`B: `"]),
    "utility of no option": (changed("B: 72}", "B: 72, C: 9}"), 11, ["utilities.C"]),
    "utility of an unknown option": (changed("B: 72}", "B: 72, C: 19}"), 11, ["option C", "A B"]),
    "option of two letters": (changed("  A: Our", "  AB: Our"), 4, ["one capital letter"]),
    "half of the figures": (changed("    limit: 30\n", ""), 7, ["seats.cto.limit is missing", "facts"]),
    "a limit that forbids all": (changed("limit: 30", "limit: 90"), 10, ["forbids every option", "lower it"]),
    "text for a number": (changed("stakes: 83", "stakes: high"), 9, ["'high'", "whole number from 1 to 99"]),
    "fraction for a number": (changed("stakes: 83", "stakes: 8.5"), 9, ["8.5", "whole number"]),
    "yes for a number": (changed("stakes: 83", "stakes: true"), 9, ["True", "whole number"]),
    "number out of range": (changed("stakes: 83", "stakes: 100"), 9, ["100", "1 to 99"]),
    "list for a text": (changed("The rooms are full.", "[a, b]"), 8, ["seats.cto.facts", "in its own words"]),
    "a seat without facts": (changed("    facts: The cloud costs twice as much.\n", ""), 12, ["seats.cost"]),
    "one seat": (GOOD[: GOOD.index("  cost:")], 6, ["seats", "at least"]),
    "a list": ("- title\n", 1, ["mapping of keys", "title:"]),
    "a text": ("hello\n", 1, ["mapping of keys"]),
    "empty": ("", None, ["empty", "title:"]),
    "huge": (GOOD + "context: " + "x" * MAX_CASE_BYTES, None, ["over 64 KiB", "shorten"]),
    "long context": (GOOD + "context: " + "x" * 5000 + "\n", 14, ["context", "4000"]),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00", 1, ["control character '\\x7f'"]),
    "zero bytes": (GOOD.encode() + b"\x00", 14, ["control character '\\x00'"]),
    "escape sequence": (changed("full.", "full.\x1b[2J"), 8, ["control character '\\x1b'"]),
    "Latin-1": (GOOD.encode() + b"context: caf\xe9\n", 14, ["not UTF-8", "save the file as UTF-8"]),
    "UTF-16": (GOOD.encode("utf-16"), 1, ["not UTF-8"]),
    "anchor bomb": (bomb(), 1, ["anchors (&) and aliases (*) are not allowed"]),
    "alias": (changed("A: 45", "A: *x"), 11, ["aliases (*) are not allowed"]),
    "merge key": (GOOD + "<<: {title: x}\n", 14, ["unknown key '<<'"]),
    "Python tag": ("!!python/object/apply:os.system [true]\n", 1, ["tags (!) are not allowed"]),
    "two documents": (GOOD + "---\n" + GOOD, 14, ["malformed YAML"]),
    "deep nesting": ("[" * 30_000, None, ["nested too deeply"]),
    "escaped control character": (changed("The rooms are full.", '"a\\0b"'), 8, ["control character"]),
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


FRONT = "---\ntitle: x\noptions: {A: x, B: y}\n"
BAD_MARKDOWN: dict[str, tuple[str, int, list[str]]] = {
    "no front matter": ("# Our data\n", 1, ["two `---` lines"]),
    "unclosed front matter": (FRONT, 1, ["two `---` lines"]),
    "unknown heading": (FRONT + "---\n\n## COOO\n\nx\n", 6, ["'cooo'", "did you mean 'coo'"]),
    "facts twice": (FRONT + "seats: {cto: {facts: x}}\n---\n## CTO\ny\n", 6, ["cto.facts is given twice"]),
    "context twice": (FRONT + "context: x\n---\ny\n", 6, ["context is given twice"]),
    "a seat that is no mapping": (FRONT + "seats: {cto: x}\n---\n## CTO\ny\n", 6, ["seats.cto must be"]),
    "an empty section": (FRONT + "---\n## CTO\n\n## COO\nx\n", 5, ["seats.cto.facts", "at least 1 char"]),
    "front matter is a list": ("---\n- x\n---\n", 2, ["must be keys"]),
    "mistake in the front": (FRONT + "secter: x\n---\n## CTO\nx\n## COO\ny\n", 4, ["did you mean 'sector'"]),
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
    assert "--index and --count" in fail(capsys, "simulate", "run", path, "--index", 0)


def test_a_good_file_gets_past_the_reader(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistakes above are found before any weights are asked for."""
    line = fail(capsys, "simulate", write(tmp_path, GOOD), run, "--stage", "base")
    assert "no sound base weights" in line
