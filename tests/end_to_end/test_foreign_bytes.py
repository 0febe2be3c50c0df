"""Every reader of bytes from outside, fed with damaged ones: a result or its documented error, soon.

Each reader has sound documents; a few changes are made to one of them (bytes flipped, cut, doubled, moved
between documents, or put in from a list of things that parsers trip over). No more examples are drawn than
the settings say, so the time is fixed.
"""

import asyncio
import json
import re
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import hypothesis.strategies as st
import pytest
from expert_meetings import expert_episode
from fastapi.testclient import TestClient
from governed_tables import CALM, yes_man
from hypothesis import HealthCheck, given, settings
from trial_counts import num_trials

from emads.bench.card import read_card
from evaluation.scoring.external_tasks import read_task_folder
from evaluation.summary.gates import read_gate_file
from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from scenarios.registry import FAMILIES
from scenarios.tasks.grading.arithmetic import ExpressionError, parse_expression
from scenarios.tasks.grading.equality import read_latex
from scenarios.tasks.grading.text_checks import Check, CheckKind, score_answer
from scenarios.tasks.programs import _judge_line
from scenarios.tasks.question_files import read_questions
from scenarios.team import PlanGame, generate
from scenarios.written.written_case import read_case
from serving.environments.http_env import make_app
from serving.environments.plays import KINDS, Play, make_row
from simulator.engines.openai.reply import EndpointError, read_error_text, read_message
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import read_or_create_key
from simulator.tool_calls import BadToolCallError, parse_tool_calls
from training.config.loading import load_config
from training.feedback.labels import Label, Message, Provenance, VerdictLabel, add_label, read_labels
from training.models.base_model import load_pretrained

ROOT = Path(__file__).parent.parent.parent
MOST_CPU_S = 2.0  # of one read, far over what any needs
TRIPS = (
    b"[" * 5_000, b'{"a":' * 5_000, b"}" * 40, b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\\u0000",
    b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"-0", b'""', b'"', b"'", b"null", b"true", b"[]", b"{}",
    b"\n", b"\r\n", b"\t", b": ", b"- ", b"---\n", b"&a [*a]", b"!!python/object:os.system ", b"<<: *x",
    b"|\n ", b"<think>", b"</think>", b"<tool_call>", b"</tool_call>", b"```", b"\xe2\x80\xae",
    b"\xf0\x9f\x98\x80" * 30, b"\\frac{", b"\\sqrt", b"^" * 200, b"**9**9**9", b"(" * 900, b"=" * 300,
    b"%s%n{0.__class__}", b"../../etc/passwd", b"9" * 400,
)  # fmt: skip


VALUES = (  # put in the place of every value of a document
    b"9" * 400, b"-" + b"9" * 400, b"1e309", b"1.5", b"true", b"null", b'"x"', b"9223372036854775808",
    b"4294967296", b"-1", b"[[]]", b'"\\ud800"', b'"\\u0000"',
)  # fmt: skip
VALUE = re.compile(rb'-?\d+(\.\d+)?|"[^"\\]*"|\btrue\b|\bfalse\b|\bnull\b')
MOST_PLACES = 25  # of a document


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One reader of foreign bytes."""

    sound: Callable[[Path], Sequence[bytes]]  # documents that it reads without an error
    read: Callable[[bytes, Path], object]  # given a scratch folder
    refuses: tuple[type[Exception], ...] = ()  # what it may raise


@st.composite
def damage(draw: st.DrawFn, documents: Sequence[bytes]) -> bytes:
    """One of the documents after one to four changes."""
    text = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.sampled_from((1, 2, 5, 20, 200, 4000))))
        match draw(st.sampled_from(("trip", "trip", "flip", "cut", "double", "other", "end"))):
            case "trip":
                text = text[:at] + draw(st.sampled_from(TRIPS)) + text[draw(st.sampled_from((at, end))) :]
            case "flip":
                text = text[:at] + bytes([draw(st.integers(0, 255))]) + text[at + 1 :]
            case "cut":
                text = text[:at] + text[end:]
            case "double":
                text = text[:end] + text[at:]
            case "other":
                other = draw(st.sampled_from(documents))
                text = text[:at] + other[draw(st.integers(0, len(other))) :]
            case _:
                text = text[:at]
    return text[:200_000]


def as_text(content: bytes) -> str:
    """What a model could write: any string."""
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")


def write(content: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def read_answer(content: bytes, _: Path) -> None:
    """Every role's verifier: total, in [0, 1]."""
    text = content.decode("utf-8", "replace")
    for scenario in SCENARIOS:
        assert 0 <= FAMILIES[scenario.family].verify(scenario, text).reward <= 1


def read_table(content: bytes, _: Path) -> None:
    """Everything that a seat or ReconcileGPT writes at the table."""
    text = content.decode("utf-8", "replace")
    game = PlanGame(CASE)
    known = game.read_report("cto", text)
    game.read_decision({"cto": known}, text)
    game.read_vote(text)
    ask = game.read_ask(text)
    game.read_reply("cto", ask or {"option": "A", "cost_at_most": 9}, known, text)


def list_answers(_: Path) -> list[bytes]:
    golds = [json.dumps(FAMILIES[one.family].solve(one)).encode() for one in SCENARIOS]
    texts = [*EPISODE.reports.values(), EPISODE.decision, *EPISODE.votes.values()]
    return [*golds, *(text.encode() for text in texts), b'<think>so</think> {"vote": "accept"}']


def read_judged(content: bytes, _: Path) -> None:
    """General checks of a task's answer, whose expected answer is sound."""
    text = as_text(content)[:60]
    checks: tuple[tuple[CheckKind, str], ...] = (
        ("exact", "42"),
        ("number", "1,250"),
        ("regex", "a+b"),
        ("f1", "the red house"),
    )
    for kind, expected in checks:
        assert 0 <= score_answer(Check(kind=kind, expected=expected), text).value <= 1


def post(content: bytes, _: Path) -> None:
    client = TestClient(make_app(), raise_server_exceptions=False)
    client.post("/seed_session", json=ROW)
    for path in ("/seed_session", "/measure", "/verify", "/nothing"):
        assert client.post(path, content=content).status_code < 500


def play_store(path: Path) -> None:
    async def run() -> None:
        async with open_services(path, key=KEY) as services:
            await play_governed(draw_cases(1), services, make_seating(draw_cases(1)), yes_man(), CALM)

    asyncio.run(run())


def make_store(folder: Path) -> list[bytes]:
    path = folder / "sound.db"
    play_store(path)
    return [path.read_bytes()]


def open_damaged_store(content: bytes, folder: Path) -> None:
    for old in folder.glob("s.db*"):
        old.unlink()
    play_store(write(content, folder, "s.db"))


def make_mark(folder: Path) -> list[bytes]:
    play_store(folder / "marked.db")
    return [(folder / "marked.db.mark").read_bytes()]


def open_damaged_mark(content: bytes, folder: Path) -> None:
    write(content, folder, "marked.db.mark")
    play_store(folder / "marked.db")


def make_labels(folder: Path) -> list[Label]:
    path = folder / "labels.jsonl"
    if not path.exists():
        add_label(path, VERDICT)
    return read_labels(path)


CASE = generate("train", 0, 3, 3)
EPISODE = expert_episode(CASE, "measured", "exact")
SCENARIOS = [FAMILIES[name].generate("train", 0, 5, 3) for name in FAMILIES]
ROW = make_row(Play(KINDS[SCENARIOS[0].family], SCENARIOS[0]))
CALL = b'Let me see. <tool_call>{"name": "measure", "arguments": {"option": "A"}}</tool_call>'
REPLY = {
    "choices": [
        {"message": {"role": "assistant", "content": "hi", "tool_calls": None}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}  # fmt: skip
VERDICT = VerdictLabel(
    case=CASE.key,
    seat="cto",
    prompt=(Message(role="system", content="You are CTO."), Message(role="user", content="Which option?")),
    reviewer="ann",
    time=datetime(2026, 1, 1, tzinfo=UTC),
    provenance=Provenance(run="demo", weights="grpo", style="short"),
    answer=(Message(role="assistant", content='{"option": "A"}'),),
    approved=True,
)
QUESTIONS = [
    b'{"question": "What is 2+2?", "answer": "4"}\n{"question": "And 3+3?", "answer": "6"}\n',
    b'[{"question": "What is 2+2?", "answer": "So 2+2 = 4.\\n#### 4"}]',
]

READERS: dict[str, Reader] = {
    "answers of the roles": Reader(sound=list_answers, read=read_answer),
    "words at the table": Reader(sound=list_answers, read=read_table),
    "tool calls": Reader(
        sound=lambda _: [CALL, CALL + CALL[12:]],
        read=lambda content, _: parse_tool_calls(as_text(content)),
        refuses=(BadToolCallError,),
    ),
    "expressions": Reader(
        sound=lambda _: [b"(3 + 4) * 2 ** 0.5 / x", rb"\frac{1}{2}\sqrt{x^2} + 3\pi", b"sin(x)^2+cos(x)^2"],
        read=lambda content, _: parse_expression(read_latex(as_text(content)), names=True),
        refuses=(ExpressionError,),
    ),
    "answers of tasks": Reader(
        sound=lambda _: [b"42", b"1,250.0", b"the red house", b"aaab"], read=read_judged
    ),
    "results of programs": Reader(
        sound=lambda _: [b'{"value": [1, 2]}', b'{"error": "KeyError"}'],
        read=lambda content, _: _judge_line(content.decode(errors="replace"), 6, "ended"),
    ),
    "cases in YAML": Reader(
        sound=lambda _: [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.yaml"))],
        read=lambda content, folder: read_case(write(content, folder, "case.yaml")),
        refuses=(UserError,),
    ),
    "cases in Markdown": Reader(
        sound=lambda _: [(ROOT / "examples" / "city-permits.md").read_bytes()],
        read=lambda content, folder: read_case(write(content, folder, "case.md")),
        refuses=(UserError,),
    ),
    "configurations": Reader(
        sound=lambda _: [path.read_bytes() for path in sorted((ROOT / "configs").rglob("*.yaml"))][:6],
        read=lambda content, folder: load_config(write(content, folder, "config.yaml")),
        refuses=(UserError,),
    ),
    "gate files": Reader(
        sound=lambda _: [path.read_bytes() for path in sorted((ROOT / "examples" / "gates").glob("*.yaml"))],
        read=lambda content, folder: read_gate_file(write(content, folder, "gates.yaml")),
        refuses=(UserError,),
    ),
    "question files": Reader(
        sound=lambda _: QUESTIONS,
        read=lambda content, folder: read_questions([write(content, folder, "q.jsonl")], "qa"),
        refuses=(UserError,),
    ),
    "task folders": Reader(
        sound=lambda _: QUESTIONS,
        read=lambda content, folder: read_task_folder(write(content, folder, "q.jsonl").parent),
        refuses=(UserError,),
    ),
    "replies of endpoints": Reader(
        sound=lambda _: [json.dumps(REPLY).encode(), b'{"error": {"message": "busy"}}'],
        read=lambda content, _: (read_error_text(content), read_message(content)),
        refuses=(EndpointError,),
    ),
    "HTTP bodies": Reader(
        sound=lambda _: [json.dumps({**ROW, "response": {"output": []}}).encode(), b'{"option": "A"}'],
        read=post,
    ),
    "labels": Reader(
        sound=lambda folder: [b"".join(label.model_dump_json().encode() for label in make_labels(folder))],
        read=lambda content, folder: read_labels(write(content, folder, "l.jsonl")),
        refuses=(UserError,),
    ),
    "cards of the bench": Reader(
        sound=lambda _: [json.dumps({"set": "x", "scores": {}, "plays": 3}).encode()],
        read=lambda content, folder: read_card(write(content, folder, "card.json").parent),
        refuses=(UserError,),
    ),
    "GGUF": Reader(
        sound=lambda _: [b"GGUF" + struct.pack("<IQQ", 3, *counts) for counts in ((0, 0), (1, 1))],
        read=lambda content, folder: load_pretrained(str(write(content, folder, "model.gguf"))),
        refuses=(UserError,),
    ),
    "approval keys": Reader(
        sound=lambda _: [b"ab" * 32 + b"\n"],
        read=lambda content, folder: read_or_create_key(write(content, folder, "key")),
        refuses=(UserError,),
    ),
    "marks of stores": Reader(sound=make_mark, read=open_damaged_mark, refuses=(UserError,)),
    "stores": Reader(sound=make_store, read=open_damaged_store, refuses=(UserError,)),
}  # fmt: skip
COSTLY = {  # times what others cost
    "stores": 5,
    "marks of stores": 5,
    "HTTP bodies": 4,
    "configurations": 3,
    "cases in YAML": 3,
    "gate files": 3,
}


BINARY = ("stores", "marks of stores", "GGUF", "approval keys")  # no text with values in it


@pytest.fixture(scope="module", params=READERS)
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Reader, Path, Sequence[bytes]]:
    folder = tmp_path_factory.mktemp("foreign")
    one = READERS[request.param]
    return request.param, one, folder, one.sound(folder)


def test_damaged_bytes_end_in_a_result_or_the_documented_error(
    reader: tuple[str, Reader, Path, Sequence[bytes]],
) -> None:
    name, one, folder, documents = reader
    scratch = folder / "scratch"
    for source in [*folder.iterdir()]:
        if name in ("labels of other tools", "marks of stores"):
            scratch = folder  # they are read beside what they belong to
            assert source.exists()
    scratch.mkdir(exist_ok=True)

    @settings(
        max_examples=num_trials(20, 5_000) // COSTLY.get(name, 1),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(damage(documents))
    def check(content: bytes) -> None:
        read_soon(one, content, scratch)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("reader", [name for name in READERS if name not in BINARY], indirect=True)
def test_any_value_in_the_place_of_another_ends_in_a_result_or_the_documented_error(
    reader: tuple[str, Reader, Path, Sequence[bytes]],
) -> None:
    """Repeated keys too."""
    name, one, folder, documents = reader
    scratch = folder if name == "labels of other tools" else folder / "scratch"
    scratch.mkdir(exist_ok=True)
    for document in documents[:6]:
        places = [found.span() for found in VALUE.finditer(document)]
        for start, end in places[:: max(1, len(places) // MOST_PLACES)]:
            old = document[start:end]
            for value in (*VALUES, old + b", " + old + b": " + old):
                read_soon(one, document[:start] + value + document[end:], scratch)


def read_soon(one: Reader, content: bytes, scratch: Path) -> None:
    """Read the bytes: a result or the reader's documented error, in time."""
    start = time.process_time()
    try:
        one.read(content, scratch)
    except one.refuses as error:
        said = str(error)
    else:
        said = "read"
    assert 0 < len(said) < 2_000
    assert time.process_time() - start < MOST_CPU_S
