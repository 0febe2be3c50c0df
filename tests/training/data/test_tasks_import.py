"""Importing question files: what a clean row becomes, every kind of corrupt row, splits, folder, command."""

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emads.cli import main
from roles.errors import UserError
from scenarios.base import Step, ToolCall
from scenarios.tasks.imported import assign_split, unseal_test
from scenarios.tasks.question_files import MAX_QUESTION_CHARS, MAX_ROW_BYTES, read_questions, read_solution
from training.data.folders.rows import COLUMNS, SCHEMA, load_messages
from training.data.tasks import import_tasks, read_rows

NATALIA = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72"
)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_annotations_become_calculator_calls(tmp_path: Path) -> None:
    path = write(tmp_path / "g.jsonl", [{"question": "How many clips?", "answer": NATALIA}])
    (task,), rejections = read_questions([path], "gsm8k")
    assert rejections == []
    assert (task.question, task.answer, task.difficulty, task.source) == (
        "How many clips?",
        "72",
        2,
        "g.jsonl:1",
    )
    assert task.check.kind == "number"
    assert task.steps == (
        Step(text="Natalia sold 48/2 =", call=ToolCall(name="calculator", arguments={"expression": "48/2"})),
        Step(
            text="24 clips in May.\nNatalia sold 48+24 =",
            call=ToolCall(name="calculator", arguments={"expression": "48+24"}),
        ),
        Step(text='72 clips altogether in April and May.\n{"answer": "72"}'),
    )


@pytest.mark.parametrize(
    "annotation",
    [
        "12/60=0.2",
        "10/3=3.33",
        "2/3=.67",
        "20%*50=10",
        "1,000*2=2,000",
        "5-8=-3",
        "2**3=8",
        "100*0.05=$5",
        "7=7.0",
    ],
)
def test_right_and_rounded_annotations_are_accepted(annotation: str) -> None:
    solution = read_solution(f"So <<{annotation}>>. #### 1")
    assert solution.calls[0].call is not None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<<48/2=25>> #### 25", "is wrong: the value is 24"),
        ("<<10/3=3>> #### 3", "is wrong: the value is about 3.3333333"),
        ("<<10/3=3.34>> #### 3.34", "is wrong"),
        ("<<48/2>> #### 24", "is not expression=number"),
        ("<<48/2=24=24>> #### 24", "is not expression=number"),
        ("<<=24>> #### 24", "'' is no expression"),
        ("<<2x=10>> #### 10", "unexpected 'x'"),
        ("<<1/0=1>> #### 1", "division by zero"),
        ("<<9**9**9=1>> #### 1", "exponent"),
        ("<<__import__('os')=1>> #### 1", "unexpected"),
        ("<<48/2=24 #### 24", "without both << and >>"),
        ("48/2=24>> #### 24", "without both << and >>"),
        ("a >> b <<1+1=2>> #### 2", "without both << and >>"),
        ("<<1+1=2>>" * 31 + "#### 2", "more than 30 annotations"),
        ("<<48/2=24>> 24", "0 times ####"),
        ("#### 24 #### 24", "2 times ####"),
        ("#### 24 clips", "is not a number"),
        ("####", "is not a number"),
    ],
)
def test_bad_solutions_say_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("*", r"\*")):
        read_solution(text)


@pytest.mark.parametrize(
    ("answer", "check", "kind"),
    [
        ("Paris", "auto", "exact"),
        ("1,250", "auto", "number"),
        (42, "auto", "number"),
        (2.50, "auto", "number"),
        ("x^2", "symbolic", "symbolic"),
        ("the red house", "f1", "f1"),
        ("7", "exact", "exact"),
    ],
)
def test_short_answers_get_the_check_that_fits(answer: Any, check: str, kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", [{"question": "What?", "answer": answer, "id": 7}])
    (task,), _ = read_questions([path], "qa", check)
    assert task.check.kind == kind
    assert len(task.steps) == 1


def row(**changes: Any) -> bytes:
    return json.dumps({"question": f"Question {random.random()}?", "answer": NATALIA} | changes).encode()


CORRUPT: dict[str, tuple[Callable[[], bytes], str]] = {
    "cut off": (lambda: row()[:-5], "not JSON"),
    "not JSON": (lambda: b"question,answer", "not JSON"),
    "no object": (lambda: b'["question", "answer"]', "not an object"),
    "no question": (lambda: b'{"answer": "#### 1"}', "question is missing"),
    "no answer": (lambda: b'{"question": "What?"}', "answer is missing"),
    "null answer": (lambda: row(answer=None), "answer is missing"),
    "empty question": (lambda: row(question=" \n"), "question is empty"),
    "number as question": (lambda: row(question=5), "question is not text"),
    "list as answer": (lambda: row(answer=["#### 1"]), "neither text nor a number"),
    "truth value": (lambda: row(answer=True), "neither text nor a number"),
    "NaN": (lambda: b'{"question": "What?", "answer": NaN}', "NaN is not JSON"),
    "key twice": (lambda: b'{"question": "a", "question": "b", "answer": "#### 1"}', "repeats a key"),
    "not UTF-8": (lambda: b'{"question": "caf\xe9?", "answer": "#### 1"}', "not UTF-8"),
    "control characters": (lambda: row(question="What\x00?"), "control characters"),
    "half a character": (lambda: row(question="What\ud800?"), "half a character"),
    "too long": (lambda: row(question="x" * (MAX_QUESTION_CHARS + 1)), "characters"),
    "huge row": (lambda: row(note="x" * MAX_ROW_BYTES), "row of more than"),
    "too deep": (
        lambda: b'{"question": ' + b"[" * 5000 + b"]" * 5000 + b', "answer": "1"}',
        "nested too deep",
    ),
    "one level too deep": (
        lambda: b'{"question": ' + b"[" * 100 + b"]" * 100 + b', "answer": "1"}',
        "nested too deep",
    ),
    "just deep enough": (
        lambda: b'{"question": ' + b"[" * 99 + b"]" * 99 + b', "answer": "1"}',
        "question is neither text nor a number",
    ),
    "huge number": (lambda: b'{"question": "What?", "answer": ' + b"9" * 6000 + b"}", "a number too large"),
    "no final answer": (lambda: row(answer="It is 72."), "0 times ####"),
    "final answer in words": (lambda: row(answer="#### seventy"), "is not a number"),
    "wrong annotation": (lambda: row(answer="<<1+1=3>>3 #### 3"), "is wrong: the value is 2"),
    "code as annotation": (lambda: row(answer="<<exit()=3>>3 #### 3"), "unexpected"),
    "braces in the text": (lambda: row(answer='{"answer": 4} #### 3'), "does not read as an answer"),
    "tool call in the text": (lambda: row(answer="<tool_call> #### 3"), "tool-call marker"),
}
BRACKETS = "[{" * 80  # in a text they nest nothing


def test_brackets_in_strings_and_beside_each_other_are_not_depth(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    note: list[Any] = [[]] * 200 + ["[" * 200, '\\"[' * 200]
    path.write_bytes(row(note=note) + b"\n" + row(note=json.loads("[" * 99 + "]" * 99)))
    tasks, rejections = read_questions([path], "gsm8k")
    assert (len(tasks), rejections) == (2, [])


def test_corrupt_rows_are_named_and_clean_rows_kept(tmp_path: Path) -> None:
    """120 corrupt rows and more, each kind five times, among clean ones."""
    rng = random.Random(0)
    kinds = [*CORRUPT] * 5
    rng.shuffle(kinds)
    lines: list[bytes] = []
    expected: dict[int, str] = {}
    for number, kind in enumerate(kinds):
        lines.append(json.dumps({"question": f"Clean {number} {BRACKETS}?", "answer": NATALIA}).encode())
        lines.append(CORRUPT[kind][0]())
        expected[len(lines)] = CORRUPT[kind][1]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"\n".join(lines))
    tasks, rejections = read_questions([path], "gsm8k")
    assert [task.question for task in tasks] == [
        f"Clean {number} {BRACKETS}?" for number in range(len(kinds))
    ]
    assert [rejection.row for rejection in rejections] == list(expected)
    for rejection in rejections:
        assert rejection.file == str(path)
        assert expected[rejection.row] in rejection.reason, rejection
    assert len(rejections) == 135


def test_repeated_questions_are_rejected_over_all_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", [{"question": "What is  1+1?", "answer": 2}])
    second = write(
        tmp_path / "b.jsonl",
        [{"question": "what is 1+1? ", "answer": "2"}, {"question": "WHAT is 1+1?", "answer": 3},
         {"question": "What is 1-1?", "answer": 0}],
    )  # fmt: skip
    tasks, rejections = read_questions([first, second], "qa")
    assert [task.answer for task in tasks] == ["2", "0"]
    assert [str(rejection) for rejection in rejections] == [
        f"{second} row 1: repeats the question of a.jsonl:1",
        f"{second} row 2: repeats the question of a.jsonl:1 with another answer",
    ]


def test_a_json_list_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    rows = [{"question": "One?", "answer": "1"}, {"question": "Two?"}, "three"]
    path.write_bytes(b"\xef\xbb\xbf \n" + json.dumps(rows, indent=1).encode())
    tasks, rejections = read_questions([path], "qa")
    assert [task.question for task in tasks] == ["One?"]
    assert [(rejection.row, rejection.reason) for rejection in rejections] == [
        (2, "answer is missing"),
        (3, "not an object with question and answer"),
    ]
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b'\xef\xbb\xbf{"question": "One?", "answer": "1"}\n\n \n')
    assert len(read_questions([marked], "qa")[0]) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no rows"),
        (b"\n\n", "has no rows"),
        (b"[]", "has no rows"),
        (b'[{"question": 1},', "is no JSON list"),
        (b'["caf\xe9"]', "not UTF-8 at byte 5"),
    ],
)
def test_files_that_are_unusable_as_a_whole(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason):
        read_questions([path], "qa")


@pytest.mark.parametrize("ending", ["\r", "\r\n", "\n"])
def test_each_kind_of_line_end_separates_rows(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [{"question": f"Caf\u00e9 {number}?", "answer": number} for number in range(3)]
    path.write_bytes(ending.join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    tasks, rejections = read_questions([path], "qa")
    assert [(task.question, task.source) for task in tasks] == [
        (f"Caf\u00e9 {number}?", f"q.jsonl:{number + 1}") for number in range(3)
    ]
    assert rejections == []


TABLE = (
    'id;Question ;ANSWER\r\n1;"Who said ""no; never""\r\nin 1848?";"Caf\u00e9; alone"\r\n\r\n2;What?;7\r\n'
)
ROW = '{"question": "Caf\u00e9?", "answer": "7"}'


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        TABLE.replace("\r\n", "\n").encode(),
        TABLE.replace("\r\n", "\r").encode(),
        TABLE.encode("utf-8-sig"),
        TABLE.encode("utf-16"),
        b"\xfe\xff" + TABLE.encode("utf-16-be"),
        gzip.compress(TABLE.encode()),
    ],
    ids=["CRLF", "LF", "CR", "BOM", "UTF-16", "UTF-16 big-endian", "gzip"],
)
def test_tables_are_read_as_spreadsheets_write_them(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes(content)
    tasks, rejections = read_questions([path], "qa")
    assert rejections == []
    ending = (
        "\r\n" if b"\r\n" in content or content[0] in b"\xff\xfe\x1f" else "\n" if b"\n" in content else "\r"
    )
    assert [(task.question, task.answer, task.source) for task in tasks] == [
        (f'Who said "no; never"{ending}in 1848?', "Caf\u00e9; alone", "q.csv:2"),
        ("What?", "7", "q.csv:4"),
    ]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_rows_of_a_table_that_do_not_fit_its_header_are_rejected(delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    rows = (("question", "answer"), ("One?", "1"), ("Two", " or three?", "2"), ("Four?", ""))
    path.write_text("\n".join(delimiter.join(row) for row in rows))
    tasks, rejections = read_questions([path], "qa")
    assert [task.question for task in tasks] == ["One?"]
    assert [(one.row, one.reason) for one in rejections] == [
        (3, f"3 cells under a header of 2; quote cells that hold {delimiter!r}"),
        (4, "answer is empty"),
    ]


@pytest.mark.parametrize(
    "content",
    [ROW.encode("utf-16"), gzip.compress(ROW.encode()), f"[{ROW}]".encode("utf-16")],
    ids=["UTF-16", "gzip", "list in UTF-16"],
)
def test_packed_and_wide_json_is_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(content)
    assert [task.question for task in read_questions([path], "qa")[0]] == ["Caf\u00e9?"]


def test_line_separators_inside_texts_end_no_row(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    text = "One\u2028two\u0085three?"
    path.write_bytes(f'{{"question": "{text}", "answer": "1"}}\n'.encode())
    (rejection,) = read_questions([path], "qa")[1]  # the row is whole; a control character is no text
    assert rejection.reason == "question holds control characters or half a character"
    path.write_bytes(path.read_bytes().replace("\u0085".encode(), b" "))
    assert [task.question for task in read_questions([path], "qa")[0]] == [text.replace("\u0085", " ")]


def test_parquet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001.parquet"
    rows = {"question": ["One?", "Two?", None], "answer": [2.5, float("nan"), 3.0], "id": [1, 2, 3]}
    pq.write_table(pa.table(rows), path)
    tasks, rejections = read_questions([path], "qa")
    assert [(task.question, task.answer) for task in tasks] == [("One?", "2.5")]
    assert [one.row for one in rejections] == [2, 3]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"prompt,completion\nOne?,1\n", 'neither JSON nor a table.*{"question": "...", "answer"'),
        (b"question,answer,answer\nOne?,1,2\n", "neither JSON nor a table"),
        (b"- question: One?\n  answer: 1\n", "neither JSON nor a table"),
        ('{"question": "One?", "answer": "1"}'.encode("utf-16-le"), "neither JSON nor a table"),
        (b"question,answer\nOne?,1\nTwo?,\"2\n", "line 3: unexpected end of data; mend the quotes"),
        ("question,answer\nCaf\u00e9?,1\n".encode("latin-1"), "not UTF-8 at byte 19"),
        (b"\xff\xfe{\x00x", "not utf-16-le at byte 2"),
        (b"PAR1\x15\x04\xff", "is damaged Parquet"),
        (gzip.compress(b"question,answer\nOne?,1")[:-9], "cannot unpack"),
        (b'{\n "data": [{"question": "One?", "answer": "1"}]\n}', "one JSON object over several lines"),
        (b"question,answer\n", "has no rows"),
    ],
    ids=["CSV", "twice", "YAML", "UTF-16", "quotes", "Latin", "half", "Parquet", "gzip", "object", "empty"],
)  # fmt: skip
def test_a_file_of_another_form_is_refused_with_the_expected_row(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "questions.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason.replace("{", r"\{")):
        read_questions([path], "qa")


HUMAN, GPT = {"from": "human", "value": "One?"}, {"from": "gpt", "value": "1"}
USER, ASSISTANT = {"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}


@pytest.mark.parametrize(
    ("row", "question"),
    [
        ({"id": "x", "conversations": [HUMAN, GPT]}, "One?"),
        ({"conversations": [{"from": "system", "value": "Be short."}, HUMAN, GPT]}, "Be short.\n\nOne?"),
        ({"messages": [USER, ASSISTANT | {"tool_calls": None}]}, "One?"),
        ({"messages": [USER | {"content": [{"type": "text", "text": "One?"}]}, ASSISTANT]}, "One?"),
    ],
)
def test_conversations_of_one_question_are_tasks(row: dict[str, Any], question: str, tmp_path: Path) -> None:
    tasks, rejections = read_questions([write(tmp_path / "q.jsonl", [row])], "qa")
    assert rejections == []
    assert [(task.question, task.answer) for task in tasks] == [(question, "1")]


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        ({"conversations": [HUMAN, GPT, HUMAN, GPT]}, "the conversation is user, assistant, user, assistant"),
        ({"conversations": [HUMAN]}, "the conversation is user; write one question"),
        ({"conversations": []}, "the conversation is empty"),
        ({"conversations": "One?"}, "conversations is not a list of turns"),
        ({"conversations": [HUMAN, {"from": "function_call", "value": "{}"}, GPT]}, "calls tools"),
        ({"messages": [USER, ASSISTANT | {"tool_calls": [{}]}]}, "calls tools"),
        ({"messages": [USER, ASSISTANT], "tools": [{}]}, "calls tools"),
        ({"messages": [USER, {"role": "critic", "content": "1"}]}, "a turn is from 'critic'"),
        ({"messages": [USER | {"content": [{"type": "image_url"}]}, ASSISTANT]}, "something else than text"),
        ({"messages": [USER, ASSISTANT | {"content": None}]}, "something else than text"),
        ({"messages": [USER, ASSISTANT | {"content": "<think>?</think>1"}]}, "thoughts"),
        ({"instruction": "One?", "output": "1"}, "question is missing; the row has 'instruction', 'output'"),
        ({"problem": "One?", "answer": "1"}, "question is missing; the row has 'problem'"),
    ],
)
def test_rows_of_other_layouts_are_refused_in_words(
    foreign: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (rejection,) = read_questions([write(tmp_path / "q.jsonl", [foreign])], "qa")[1]
    assert reason in rejection.reason


def test_missing_files_and_unknown_choices_are_the_users_mistake(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", [{"question": "One?", "answer": "1"}])
    for paths, layout, check, reason in (
        ([tmp_path / "no.jsonl"], "qa", "auto", "No such file"),
        ([tmp_path], "qa", "auto", "cannot read"),
        ([path], "gsm", "auto", "did you mean 'gsm8k'"),
        ([path], "qa", "numbr", "did you mean 'number'"),
    ):
        with pytest.raises(UserError, match=reason):
            read_questions(paths, layout, check)


def test_splits_are_seventy_fifteen_fifteen_and_never_share_a_question() -> None:
    questions = [f"How much is {a} plus {b}?" for a in range(100) for b in range(100)]
    shares = Counter(assign_split(question) for question in questions)
    assert shares["train"] == pytest.approx(7000, abs=150)
    assert shares["validation"] == pytest.approx(1500, abs=120)
    assert shares["test"] == pytest.approx(1500, abs=120)
    for question in questions[::97]:
        again = f"  {question.upper().replace('?', ' ?!')}\n"
        assert assign_split(again) == assign_split(question)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows: list[Any] = [{"question": f"How many clips are {n}?", "answer": NATALIA} for n in range(80)]
    return write(tmp_path / "clips.jsonl", [*rows, {"question": "Bad?", "answer": "<<1+1=3>> #### 3"}])


def test_a_folder_has_the_rows_of_generated_data_and_seals_the_test_split(
    questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "data"
    report = import_tasks([questions], out, layout="gsm8k", name="clips")
    assert sum(report.num_rows.values()) == 80
    shards = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.parquet"))
    assert shards == [
        "clips/train-00000.parquet",
        "clips/validation-00000.parquet",
        "sealed/clips-test-00000.parquet",
    ]
    for path in shards:
        assert pq.read_schema(out / path).equals(SCHEMA)
    rows = read_rows(out, "train")
    assert len(rows) == report.num_rows["train"]
    first = rows[0]
    assert list(first) == list(COLUMNS)
    assert (first["key"], first["role"], first["author"]) == ("clips/train/0/0/2", "solver", "import")
    messages = load_messages(first["messages"])
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["24", "72"]
    assert json.loads(first["answer"]) == {"answer": "72"}
    with pytest.raises(UserError, match="sealed"):
        read_rows(out, "test")
    with unseal_test() as key:
        assert len(read_rows(out, "test", key)) == report.num_rows["test"]
    assert "test" not in (out / "README.md").read_text().split("---")[1]
    assert json.loads((out / "rejected.jsonl").read_text())["row"] == 81


def test_the_folder_opens_with_plain_load_dataset(questions: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    report = import_tasks([questions], tmp_path / "data", layout="gsm8k", name="clips")
    opened = datasets.load_dataset(str(tmp_path / "data"), "clips", cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in opened.items()} == {
        split: report.num_rows[split] for split in ("train", "validation")
    }


def test_the_same_import_gives_the_same_bytes_and_another_is_refused(questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    import_tasks([questions], out, layout="gsm8k")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    import_tasks([questions], out, layout="gsm8k")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match="another import"):
        import_tasks([questions], out, layout="gsm8k", name="other")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="other files"):
        import_tasks([questions], tmp_path / "used", layout="gsm8k")


def test_an_interrupted_import_is_finished_by_running_it_again(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "data"
    num_left, real = 3, os.fsync

    def fill_the_disk(descriptor: int) -> None:
        nonlocal num_left
        num_left -= 1
        if num_left < 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fill_the_disk)
        with pytest.raises(UserError, match="No space left on device"):
            import_tasks([questions], out, layout="gsm8k")
    with pytest.raises(UserError, match="interrupted; run it again"):
        read_rows(out, "train")
    import_tasks([questions], out, layout="gsm8k")
    assert read_rows(out, "train")


def test_damage_is_noticed(questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    import_tasks([questions], out, layout="gsm8k")
    shard = out / "imported" / "train-00000.parquet"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + b"x")
    with pytest.raises(UserError, match="is damaged"):
        read_rows(out, "train")
    shard.unlink()
    with pytest.raises(UserError, match="cannot read"):
        read_rows(out, "train")
    (out / "import.json").write_text("{}")
    with pytest.raises(UserError, match="is damaged"):
        read_rows(out, "train")
    with pytest.raises(UserError, match="emads import"):
        read_rows(tmp_path, "train")


@pytest.mark.parametrize("name", ["cto", "team", "maths", "sealed", "A", "../x", "", "x" * 41])
def test_names_that_would_confuse_are_refused(name: str, questions: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name"):
        import_tasks([questions], tmp_path / "data", layout="gsm8k", name=name)


def test_a_file_without_a_clean_row_makes_no_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.jsonl", [{"question": "Bad?", "answer": "<<1+1=3>> #### 3"}])
    with pytest.raises(UserError, match=r"no row is a task; the first of 1: .* is wrong"):
        import_tasks([path], tmp_path / "data", layout="gsm8k")
    assert not (tmp_path / "data").exists()


def test_the_command_lists_rejected_rows_and_counts(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data"
    assert main(["import", str(questions), "--format", "gsm8k", "--name", "clips", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"{questions} row 81: annotation <<1+1=3>> is wrong: the value is 2" in printed
    assert "80 tasks (" in printed
    assert "1 row rejected" in printed
    assert main(["import", str(questions), "--format", "gms8k", "--out", str(out)]) == 2
    assert "did you mean 'gsm8k'" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "no.jsonl"), "--out", str(out)]) == 2
    assert "No such file" in capsys.readouterr().err
