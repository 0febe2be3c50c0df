"""A teacher on a real endpoint: the oracle's rows come out, nothing is asked twice, nothing wrong is kept."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from teacher_server import (
    NAMED,
    OFTEN,
    Body,
    Model,
    Oracle,
    TeacherServer,
    draw,
    expect_row,
    play_oracle,
    play_seats,
    say,
    serve,
)

from emads.cli import main
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.base import Scenario, Step, ToolCall
from scenarios.hostile import HOSTILE_TEXTS, SEAT_TEXTS
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario
from scenarios.team import generate as generate_team
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import EndpointSettings
from simulator.tool_calls import format_tool_call
from training.data.folders import datasets, requests
from training.data.folders.columns import encode_shard, load_messages, store_messages
from training.data.folders.rows import SOLO_FAMILIES, build_rows, list_tools
from training.data.folders.validation import validate_folder
from training.data.teacher.folder import TeachingReport, teach_folder
from training.data.teacher.index import TeacherIndex
from training.data.teacher.lessons import list_lessons
from training.data.teacher.teacher import (
    Halt,
    Outcome,
    TeachingRules,
    describe_rejection,
    write_demonstrations,
)
from training.data.teacher.validation import find_teacher_fault

ROOT = Path(__file__).parent.parent.parent.parent
HARD_LIMIT_S = 120
RULES = TeachingRules()
QUICK: dict[str, Any] = {"timeout_s": 20.0, "backoff_s": 0.01, "max_wait_s": 0.5, "max_retries": 3}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that hangs fails instead."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"the test took longer than {HARD_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HARD_LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SCENARIOS_PER_SHARD", 5)


def make_settings(server: TeacherServer, **changes: Any) -> EndpointSettings:
    return EndpointSettings(url=server.url, **({"model": "tiny"} | QUICK | changes))


def teach(
    out: Path,
    server: TeacherServer,
    count: int = 6,
    *,
    families: Sequence[str] = ("cto",),
    rules: TeachingRules = RULES,
    **changes: Any,
) -> TeachingReport:
    endpoint = make_settings(server, **changes)
    return teach_folder(families, count, out, endpoint=endpoint, rules=rules, difficulties=(1,))


def play_all(
    server: TeacherServer,
    scenarios: Sequence[Scenario | TeamScenario],
    *,
    rules: TeachingRules = RULES,
    families: Any = SOLO_FAMILIES,
    **changes: Any,
) -> list[Outcome]:
    async def run() -> list[Outcome]:
        async with ChatClient(make_settings(server, **changes)) as client:
            return await write_demonstrations(
                [lesson for one in scenarios for lesson in list_lessons(one, families)],
                client,
                author="teacher:tiny",
                rules=rules,
                halt=Halt(rules.max_failures),
            )

    return asyncio.run(run())


def reasons(outcomes: Sequence[Outcome]) -> list[str | None]:
    return [outcome.rejection.reason if outcome.rejection else None for outcome in outcomes]


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_oracle_behind_an_endpoint_writes_the_oracles_rows(family: str, native: bool) -> None:
    scenarios = draw(family, 4)
    rules = TeachingRules(tool_shape="native" if native else "text")
    with serve(Oracle(scenarios, native=native)) as server:
        outcomes = play_all(server, scenarios, rules=rules)
    for scenario, outcome in zip(scenarios, outcomes, strict=True):
        expected = expect_row(scenario)
        assert outcome.row == expected | {"author": "teacher:tiny"}
        assert list(outcome.row) == list(expected)


class TeamOracle:
    """Plays every seat as the experts of the case's meeting do; `spoil` changes a seat's steps."""

    def __init__(self, cases: Sequence[TeamScenario], spoil: Any = lambda steps: steps) -> None:
        self._steps = {brief: spoil(steps) for case in cases for brief, steps in play_seats(case).items()}

    def __call__(self, body: Body) -> Body:
        roles = [message["role"] for message in body["messages"]]
        step = self._steps[body["messages"][1]["content"]][roles.count("assistant")]
        return say(step.text) if step.call is None else say(step.text, step.call)


def draw_meetings() -> list[TeamScenario]:
    """Cases in whose meetings ReconcileGPT asks a seat, or does not."""
    return [generate_team("train", 0, index, 1) for index in range(6)]


def test_a_teacher_at_the_table_writes_the_experts_rows_of_every_seat(tmp_path: Path) -> None:
    """Reports, replies in ReconcileGPT's transcript, decisions and votes; a folder of them validates."""
    with serve(TeamOracle(draw_meetings())) as server:
        report = teach(tmp_path, server, 2, families=("team",), rules=TeachingRules(min_reward=0.5))
    (shard,) = report.shards
    assert shard.num_scenarios == 2
    assert shard.num_rows + sum(shard.rejected.values()) == 2 * 5
    rows = read_rows(tmp_path / shard.path)
    assert {row["role"] for row in rows} == set(TEAM_ROLES)
    num_asked = 0
    for row in rows:
        expert = {one["role"]: one for one in build_rows("team", "train", 0, row["index"], 1)}[row["role"]]
        told = [place for place, message in enumerate(row["messages"]) if message["role"] == "user"]
        if row["role"] == RECONCILER:
            num_asked += len(told) > 1
            assert row == expert | {"author": "teacher:tiny"}
        else:  # the expert may be asked for another offer before it votes
            assert row["messages"][: told[1]] == expert["messages"][: told[1]]
            assert row["messages"][-1]["content"] in (
                '{"vote": "accept", "reason": ""}',
                expert["messages"][-1]["content"],
            )
    assert num_asked > 0
    checked = validate_folder(tmp_path)
    assert (checked.num_clean, checked.problems) == (len(rows), ())


@pytest.mark.parametrize(
    ("words", "other", "reason"),
    [
        ('"vote": "', '"vote": "never ', "answer"),
        ('"worth": ', '"worth": 1', "answer"),
        ('{"offers"', 'Worth 7777. {"offers"', "chain"),
    ],
)
def test_a_seats_bad_words_are_rejected_with_their_reason(words: str, other: str, reason: str) -> None:
    """A malformed vote, false offers, and a figure that nobody gave."""

    def spoil(steps: Sequence[Step]) -> list[Step]:
        return [one if one.call else replace(one, text=one.text.replace(words, other, 1)) for one in steps]

    cases = draw_meetings()[:1]
    with serve(TeamOracle(cases)) as server:
        sound = reasons(play_all(server, cases, rules=TeachingRules(min_reward=0.01)))
    with serve(TeamOracle(cases, spoil)) as server:
        spoilt = reasons(play_all(server, cases, rules=TeachingRules(min_reward=0.01)))
    assert sound != spoilt
    assert {one for one, before in zip(spoilt, sound, strict=True) if one != before} == {reason}


def rephrase(brief: str) -> str:
    """The brief of a risk case in other words and another order."""
    situation, terms, offered, question = brief.split("\n")
    amount = question[question.index("at most") + 8 : question.index(" k$")]
    option = question[question.index("option ") :][:8]
    appetite = terms[terms.index("at most") + 8 : terms.index(" k$ (the")]
    return (
        f"Find the best part on {option} with no more than {amount} k$ a month. {situation} You may buy: "
        f"{offered.partition(': ')[2]} Each k$ of loss prevented counts 1 k$. The loss we expect must not "
        f"exceed {appetite} k$."
    )


def test_briefs_in_other_words_are_kept_if_they_read_back_to_the_same_facts(tmp_path: Path) -> None:
    """Of every other case the teacher changes a figure: it is rejected. The rest of a row is the oracle's."""
    odd = {one.brief for one in draw("risk", 4) if one.index % 2}

    def model(body: Body) -> Body:
        assert "tools" not in body
        brief = body["messages"][1]["content"]
        text = rephrase(brief)
        return say(text.replace("counts 1 k$", "counts 2 k$") if brief in odd else text)

    rules = TeachingRules(writes="brief")
    with serve(model) as server:
        report = teach(tmp_path, server, 4, families=("risk",), rules=rules)
        with pytest.raises(UserError, match="'reconcile': its brief cannot be paraphrased; name some"):
            teach(tmp_path / "other", server, 4, families=("reconcile",), rules=rules)
    (shard,) = report.shards
    assert (shard.num_rows, shard.rejected) == (2, {"answer": 2})
    for row in read_rows(tmp_path / shard.path):
        (expected,) = build_rows("risk", "train", 0, row["index"], 1)
        assert row["brief"] == row["messages"][1]["content"] == rephrase(expected["brief"])
        assert row["messages"][2:] == expected["messages"][2:]
        assert (row["answer"], row["author"]) == (expected["answer"], "paraphrase:tiny")
    assert validate_folder(tmp_path).num_clean == 2
    path = tmp_path / shard.path
    table = pq.read_table(path)
    briefs = [text.replace("exceed", "fall below") for text in table["brief"].to_pylist()]
    spoilt = table.set_column(table.schema.get_field_index("brief"), table.schema.field("brief"), [briefs])
    pq.write_table(spoilt, path)
    checked = validate_folder(tmp_path)
    assert checked.num_clean == 0
    assert all("brief:" in str(problem) for problem in checked.problems)


def test_the_teacher_is_told_mandate_tools_schema_and_brief_and_no_truth() -> None:
    scenarios = draw("cost", 1)
    with serve(Oracle(scenarios)) as server:
        play_all(server, scenarios)
        first, last = server.bodies[0], server.bodies[-1]
    system, user = first["messages"]
    assert "You are the Cost Officer" in system["content"]
    assert '"required": ["part", "cost", "worth"]' in system["content"]
    assert user == {"role": "user", "content": scenarios[0].brief}
    assert [tool["function"]["name"] for tool in first["tools"]] == ["describe", "measure"]
    call_turn, observation = last["messages"][2:4]
    call = call_turn["tool_calls"][0]
    assert observation["tool_call_id"] == call["id"]
    arguments = json.loads(call["function"]["arguments"])
    said = FAMILIES["cost"].call_tool(
        scenarios[0], ToolCall(name=call["function"]["name"], arguments=arguments)
    )
    assert observation == {"role": "tool", "tool_call_id": call["id"], "content": said}


def test_a_teacher_that_writes_calls_as_text_is_told_and_answered_in_text() -> None:
    scenarios = draw("cto", 1)
    with serve(Oracle(scenarios, native=False)) as server:
        play_all(server, scenarios, rules=TeachingRules(tool_shape="text"))
        body = server.bodies[1]
    assert "tools" not in body
    assert '"name": "measure"' in body["messages"][0]["content"]
    assert body["messages"][2]["content"].endswith("</tool_call>")
    assert body["messages"][3]["content"].startswith("<tool_response>\nlatency ")


class Pupil(Oracle):
    """The oracle but for scenarios of odd index, where `spoil` changes its play."""

    def __init__(self, scenarios: Sequence[Scenario], spoil: Any) -> None:
        super().__init__(scenarios)
        self._spoil = spoil

    def steps(self, scenario: Scenario) -> Sequence[Step]:
        steps = play_oracle(scenario)
        spoilt: Sequence[Step] = self._spoil(steps) if scenario.index % 2 else steps
        return spoilt


SPOILT = {
    "unknown tool": (
        lambda steps: [Step(text="", call=ToolCall(name="search", arguments={"q": "x"})), *steps],
        "tools",
        "calls 'search'",
    ),
    "refused call": (
        lambda steps: [Step(text="", call=ToolCall(name="measure", arguments={"option": 1})), *steps],
        "tools",
        "in vain",
    ),
    "wrong answer": (
        lambda steps: [*steps[:-1], Step(text='{"part": ["no such"], "cost": 1, "worth": 1}')],
        "answer",
        "no such part",
    ),
    "no answer": (lambda steps: [*steps[:-1], Step(text="I give up")], "answer", "no JSON object"),
    "lying reasoning": (
        lambda steps: [steps[0], replace(steps[1], text="latency 1 ms, as measured"), *steps[2:]],
        "chain",
        "turn 2 states latency 1,",
    ),
    "lucky guess": (
        lambda steps: [Step(text=steps[-1].text[steps[-1].text.index("{") :])],
        "chain",
        "neither a tool nor the brief gave",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_bad_play_is_rejected_with_its_reason_and_the_good_ones_are_kept(tmp_path: Path, kind: str) -> None:
    spoil, reason, detail = SPOILT[kind]
    with serve(Pupil(draw("cto", 6), spoil)) as server:
        report = teach(tmp_path, server)
    (shard,) = report.shards
    assert (shard.num_rows, shard.rejected, shard.num_unfinished) == (3, {reason: 3}, 0)
    assert report.problem is None
    assert [row["index"] for row in read_rows(tmp_path / shard.path)] == [0, 2, 4]
    lines = [
        json.loads(line) for line in (tmp_path / "cto/train-00000.rejected.jsonl").read_text().splitlines()
    ]
    assert [line["key"] for line in lines] == [f"cto/train/0/{index}/1" for index in (1, 3, 5)]
    assert {line["reason"] for line in lines} == {reason}
    assert all(detail in line["detail"] for line in lines)


def test_a_tool_of_moods_is_rejected_by_replay() -> None:
    scenarios = draw("cto", 1)
    calls = Counter[str]()

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        calls[call.name] += 1
        return f"{FAMILIES['cto'].call_tool(scenario, call)} call {calls[call.name]}"

    moody = replace(FAMILIES["cto"], call_tool=call_tool)
    with serve(Oracle(scenarios)) as server:
        outcomes = play_all(server, scenarios, families={"cto": moody})
    assert reasons(outcomes) == ["replay"]


def one_reply(text: str, *calls: ToolCall, **more: Any) -> Model:
    return lambda body: say(text, *calls) | more


MEASURE = ToolCall(name="measure", arguments={"option": "A", "part": []})


@pytest.mark.parametrize(
    ("model", "reason", "detail"),
    [
        (one_reply("", MEASURE), "answer", "no answer in 4 turns"),
        (one_reply("so long", finish_reason="length"), "answer", "cut off: length"),
        (one_reply("", finish_reason="content_filter"), "answer", "cut off: content_filter"),
        (one_reply("<tool_call>{}"), "tools", "close every"),
        (one_reply('<tool_call>{"name": "measure"}</tool_call>'), "tools", "a tool call is"),
        (
            one_reply(f"{format_tool_call('', MEASURE)} and {format_tool_call('', MEASURE)}"),
            "tools",
            "nothing but another tool call",
        ),
        (
            one_reply("", tool_calls=[{"function": {"name": "f", "arguments": "{x"}}]),
            "tools",
            "not valid JSON",
        ),
        (
            one_reply("", tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]),
            "tools",
            "not an object",
        ),
        (one_reply("", tool_calls=[{"function": {"name": "f", "arguments": '{"a": NaN}'}}]), "tools", "NaN"),
        (one_reply(""), "answer", "no JSON object"),
    ],
)
def test_senseless_replies_are_rejections(model: Model, reason: str, detail: str) -> None:
    with serve(model) as server:
        (outcome,) = play_all(server, draw("cto", 1), rules=TeachingRules(max_turns=4))
    assert outcome.rejection is not None
    assert outcome.rejection.reason == reason
    assert detail in outcome.rejection.detail


DEEP = [f'{{"option": {"[" * depth}{"]" * depth}}}' for depth in (100, 199, 200, 400, 950, 990, 100_000)]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_replies_are_rejections_that_can_be_written_down(family: str) -> None:
    (scenario,) = draw(family, 1)
    tool = list_tools(ROLES[scenario.role])[0]["function"]["name"]
    texts = [*HOSTILE_TEXTS, *SEAT_TEXTS, *DEEP, "x" * 100_000]
    replies = [say(text) for text in texts]
    replies += [say(f'<tool_call>{{"name": "{tool}", "arguments": {text}}}</tool_call>') for text in texts]
    calls = [{"function": {"name": tool, "arguments": text}} for text in texts]
    replies += [{"role": "assistant", "content": None, "tool_calls": [call]} for call in calls]
    waiting = chain(replies, repeat(say("")))  # some of it is a sound call, and the play goes on
    with serve(lambda body: next(waiting)) as server:
        outcomes = play_all(server, [scenario] * len(replies), concurrency=1, rules=RULES)
    for outcome in outcomes:
        assert outcome.rejection is not None
        assert json.loads(describe_rejection(outcome, outcome.rejection))["key"] == scenario.key


def test_calls_in_one_breath_become_turns_of_their_own() -> None:
    (scenario,) = draw("cto", 1)
    *measures, answer = play_oracle(scenario)

    def model(body: Body) -> Body:
        if len(body["messages"]) == 2:
            return say("all at once", *[step.call for step in measures if step.call])
        roles = [message["role"] for message in body["messages"][2:]]
        assert roles == ["assistant", *["tool"] * len(measures)]
        return say(answer.text)

    with serve(model) as server:
        (outcome,) = play_all(server, [scenario])
    assert outcome.row is not None
    messages = load_messages(outcome.row["messages"])[2:]
    assert [message["role"] for message in messages] == ["assistant", "tool"] * len(measures) + ["assistant"]
    assert [message["content"] for message in messages[::2]] == [
        "all at once",
        *[""] * (len(measures) - 1),
        answer.text,
    ]


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
@pytest.mark.parametrize(
    ("thoughts", "rules", "is_kept"),
    [
        ("{hm} I measure every option; 3 + 4 = 7.", RULES, True),
        ("{hm} I measure every option; 3 + 4 = 7.", TeachingRules(reasoning="none"), False),
        ("latency 1", RULES, False),
        ("2 + 2 = 5, therefore B", RULES, False),
        ("It must be 12345.", RULES, False),
        ("<tool_call>{}</tool_call>", RULES, False),
        ("nested <think>again", RULES, False),
    ],
)
def test_thoughts_are_kept_where_their_chain_stands(
    field: str, thoughts: str, rules: TeachingRules, is_kept: bool
) -> None:
    """What is not kept costs nothing else: the row is the oracle's."""
    scenarios = draw("cto", 1)
    oracle = Oracle(scenarios)

    def model(body: Body) -> Body:
        message = oracle(body)
        if field == "content":
            return message | {"content": f"<think>\n{thoughts}\n</think>\n\n{message['content']}"}
        return message | {field: thoughts}

    with serve(model) as server:
        (outcome,) = play_all(server, scenarios, rules=rules)
        assert not any("<think>" in str(message) for body in server.bodies for message in body["messages"])
    expected = expect_row(scenarios[0])
    if not is_kept:
        assert outcome.row == expected | {"author": "teacher:tiny"}
        return
    assert outcome.row is not None
    written = load_messages(outcome.row["messages"])
    begins = f"<think>\n{thoughts}\n</think>\n"
    for message, plain in zip(written, load_messages(expected["messages"]), strict=True):
        mark = begins if message["role"] == "assistant" else ""
        assert message["content"] == mark + plain["content"]
    assert find_teacher_fault(outcome.row) is None


@pytest.mark.usefixtures("small_shards")
def test_a_folder_opens_with_plain_load_dataset_and_is_the_oracles_but_for_the_author(tmp_path: Path) -> None:
    from datasets import load_dataset

    families = ("cto", "risk")
    with serve(Oracle([scenario for family in families for scenario in draw(family, 8)])) as server:
        report = teach(tmp_path / "taught", server, 7, families=families)
    datasets.generate_folder(families, 7, tmp_path / "oracle", difficulties=(1,))
    assert [(shard.path, shard.num_rows) for shard in report.shards] == [
        ("cto/train-00000.parquet", 5),
        ("cto/train-00001.parquet", 2),
        ("risk/train-00000.parquet", 5),
        ("risk/train-00001.parquet", 2),
    ]
    for shard in report.shards:
        family = FAMILIES[shard.family]
        indices = [row["index"] for row in read_rows(tmp_path / "oracle" / shard.path)]
        assert read_rows(tmp_path / "taught" / shard.path) == [
            expect_row(family.generate("train", 0, index, 1)) | {"author": "teacher:tiny"}
            for index in indices
        ]
    cache = str(tmp_path / "cache")
    loaded = load_dataset(str(tmp_path / "taught"), "risk", split="train", cache_dir=cache)
    assert loaded.num_rows == 7
    assert loaded[0]["author"] == "teacher:tiny"


def test_finished_scenarios_are_never_asked_again(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 10))) as server:
        teach(tmp_path, server, 6)
        num_requests = len(server.bodies)
        before = read_rows(tmp_path / "cto/train-00000.parquet")
        teach(tmp_path, server, 6)
        assert len(server.bodies) == num_requests
        assert read_rows(tmp_path / "cto/train-00000.parquet") == before
        teach(tmp_path, server, 8)
        assert {server.model.find(body)[0].index for body in server.bodies[num_requests:]} == {6, 7}  # type: ignore[attr-defined]
        assert set(server.answered.values()) == {1}
        assert read_rows(tmp_path / "cto/train-00000.parquet")[:6] == before


def test_another_threshold_filters_what_is_there_without_asking(tmp_path: Path) -> None:
    def wrong_figure(steps: Sequence[Step]) -> list[Step]:
        text = steps[-1].text
        answer = json.loads(text[text.index("{") :])
        return [*steps[:-1], Step(text=json.dumps(answer | {"worth": 777}))]

    with serve(Pupil(draw("coo", 4), lambda steps: steps)) as server:
        teach(tmp_path / "coo", server, 4, families=("coo",))
    scenarios = draw("cto", 4)
    with serve(Pupil(scenarios, wrong_figure)) as server:
        outcomes = play_all(server, scenarios, rules=TeachingRules(min_reward=0.9))
        assert reasons(outcomes) == [None, "chain", None, "chain"]
        assert reasons(play_all(server, scenarios)) == [None, "answer", None, "answer"]


COMMAND = [sys.executable, "-m", "emads.cli", "generate", "--family", "cto", "--difficulties", "1"]


def generate(server: TeacherServer, out: Path, count: int = 12) -> list[str]:
    teacher = ["--teacher", server.url, "--model", "tiny", "--teacher-set", "concurrency=3"]
    return [*COMMAND, "--count", str(count), "--out", str(out), *teacher]


@pytest.mark.process
@pytest.mark.parametrize("hold_after", [2, 23])
def test_kill_nine_then_rerun_asks_nothing_twice_and_gives_the_same_rows(
    tmp_path: Path, hold_after: int
) -> None:
    scenarios = draw("cto", 12)
    with serve(Oracle(scenarios)) as server:
        teach(tmp_path / "whole", server, 12)
        num_requests = len(server.bodies)
        server.bodies.clear()
        server.answered.clear()
        server.hold_after = hold_after
        killed = tmp_path / "killed"
        journal = killed / "cto" / "train-00000.journal.jsonl"
        with subprocess.Popen(generate(server, killed), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not is_journaled(journal, hold_after):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert sum(server.answered.values()) == hold_after
        with journal.open("ab") as file:
            file.write(b'{"kind":"reply","key":"cto/tr')  # what a kill in the middle of a write leaves
        server.hold_after = None
        subprocess.run(generate(server, killed), cwd=ROOT, check=True, capture_output=True, timeout=50)
        assert set(server.answered.values()) == {1}
        assert sum(server.answered.values()) == num_requests
    whole = (tmp_path / "whole" / "cto" / "train-00000.parquet").read_bytes()
    assert (killed / "cto" / "train-00000.parquet").read_bytes() == whole


def is_journaled(path: Path, num_replies: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") == num_replies + 1


@pytest.mark.parametrize("place", [0, 5])
def test_faults_of_all_kinds_change_nothing(tmp_path: Path, place: int) -> None:
    faults = [fault for fault, kind in NAMED.items() if kind != "timeout"]
    with serve(Oracle(draw("cto", 8))) as server:
        teach(tmp_path / "whole", server, 8)
        server.answered.clear()
        server.faults += [None] * place
        for fault in faults:
            server.faults += [fault, None]
        report = teach(tmp_path / "faulty", server, 8, max_retries=20)
        assert report.problem is None
        assert server.faults == []
        assert set(server.answered.values()) == {1}
    name = "cto/train-00000.parquet"
    assert (tmp_path / "faulty" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_scenarios_without_a_reply_are_named_and_asked_again(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 5))) as server:
        server.faults = [None, "400", None, "400"]
        report = teach(tmp_path, server, 5, concurrency=1)
        assert report.problem == "scenarios without a reply: refused 2; run the same command again to go on"
        assert report.num_failures == {"refused": 2}
        (shard,) = report.shards
        assert (shard.num_rows, shard.num_unfinished) == (3, 2)
        (shard,) = teach(tmp_path, server, 5, concurrency=1).shards
        assert (shard.num_rows, shard.num_unfinished) == (5, 0)
        assert set(server.answered.values()) == {1}


def test_an_endpoint_that_is_down_ends_the_work(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 20))) as server:
        server.faults = ["500"] * OFTEN
        rules = TeachingRules(max_failures=3)
        report = teach(tmp_path, server, 20, rules=rules, concurrency=1, max_retries=1)
        assert report.problem is not None
        assert (
            "failed on 3 scenarios in a row, the last time with server_error: 500 internal" in report.problem
        )
        assert len(server.bodies) == 6
        assert not (tmp_path / "teacher.json").exists()
        server.faults = []
        assert teach(tmp_path, server, 20).shards[0].num_rows == 20


def test_a_wrong_model_name_can_be_set_right(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 3))) as server:
        server.faults = ["404"] * OFTEN
        report = teach(tmp_path, server, 3, model="tyni")
        assert report.problem is not None
        assert "no model tiny; check the URL and the model's name" in report.problem
        server.faults = []
        assert teach(tmp_path, server, 3).shards[0].num_rows == 3


def test_the_cost_limit_stops_cleanly_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    prices: dict[str, Any] = {
        "price_in": 1000.0,
        "price_out": 1000.0,
        "max_completion_tokens": 20,
        "concurrency": 2,
    }
    with serve(Oracle(draw("cto", 8))) as server:
        report = teach(tmp_path, server, 8, max_cost=8.0, **prices)
        assert report.problem is None
        assert report.stop is not None
        assert report.stop.startswith("cost limit 8 reached")
        (shard,) = report.shards
        assert 0 < shard.num_unfinished < 8
        assert shard.num_rows + shard.num_unfinished == 8
        assert shard.cost == pytest.approx(0.11 * len(server.bodies))
        assert shard.cost <= 8
        (shard,) = teach(tmp_path, server, 8, max_cost=8.0, **prices).shards
        assert shard.cost <= 8
        assert shard.num_unfinished > 0
        (shard,) = teach(tmp_path, server, 8, max_cost=50.0, **prices).shards
        assert (shard.num_rows, shard.num_unfinished) == (8, 0)
        assert set(server.answered.values()) == {1}
        assert shard.cost == pytest.approx(0.11 * len(server.bodies))
        assert (shard.prompt_tokens, shard.completion_tokens) == (
            100 * len(server.bodies),
            10 * len(server.bodies),
        )


def test_folders_are_never_mixed(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 6))) as server:
        teach(tmp_path / "taught", server, 4)
        with pytest.raises(UserError, match=r"holds replies of teacher:tiny, seed 0, difficulties 1; choose"):
            teach(tmp_path / "taught", server, 4, model="other")
        with pytest.raises(UserError, match="already holds more cto/train scenarios"):
            teach(tmp_path / "taught", server, 3)
        with pytest.raises(UserError, match="holds demonstrations of a teacher"):
            datasets.generate_folder(("cto",), 4, tmp_path / "taught", difficulties=(1,))
        datasets.generate_folder(("cto",), 4, tmp_path / "oracle", difficulties=(1,))
        with pytest.raises(UserError, match="holds demonstrations of the oracle"):
            teach(tmp_path / "oracle", server, 4)
    assert len(TeacherIndex.read(tmp_path / "taught").shards) == 1


@pytest.mark.parametrize(
    ("line", "spoilt", "reason"),
    [
        (1, b"{}", ":2: damaged line"),
        (0, b"{}", ":1: damaged line"),
        (0, b"", ":1: damaged line"),
        (1, b"\xff", ":2: damaged line"),
        (0, None, ":1: the heading must be the first line"),
    ],
)
def test_a_damaged_journal_is_named(tmp_path: Path, line: int, spoilt: bytes | None, reason: str) -> None:
    path = tmp_path / "cto" / "train-00000.journal.jsonl"
    with serve(Oracle(draw("cto", 3))) as server:
        teach(tmp_path, server, 3)
        lines = path.read_bytes().splitlines()
        lines[line : line + 1] = [] if spoilt is None else [spoilt]
        path.write_bytes(b"\n".join(lines) + b"\n")
        with pytest.raises(UserError, match=reason):
            teach(tmp_path, server, 3)


def test_a_reply_whose_line_was_deleted_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "cto" / "train-00000.journal.jsonl"
    with serve(Oracle(draw("cto", 3))) as server:
        teach(tmp_path, server, 3)
        before = read_rows(tmp_path / "cto/train-00000.parquet")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3] + lines[4:]))
        report = teach(tmp_path, server, 3)
        assert report.shards[0].num_rows == 3
        assert read_rows(tmp_path / "cto/train-00000.parquet") == before


def test_the_verb_writes_a_folder_and_shows_counts_but_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-123")
    arguments = [
        "generate",
        "--family",
        "cto",
        "--count",
        "4",
        "--difficulties",
        "1",
        "--out",
        str(tmp_path / "d"),
    ]
    arguments += ["--model", "tiny", "--api-key-env", "MY_KEY", "--price-in", "2", "--price-out", "10"]
    with serve(Pupil(draw("cto", 4), SPOILT["wrong answer"][0])) as server:
        status = main([*arguments, "--max-cost", "1", "--teacher", server.url])
        assert set(server.authorizations) == {"Bearer sk-secret-123"}
        num = len(server.bodies)
    captured = capsys.readouterr()
    assert status == 0
    assert captured.out.splitlines() == [
        "cto/train-00000.parquet: 2 of 4 scenarios kept; rejected answer 2",
        f"cost {num * 300e-6:.4f} ({num * 100} prompt and {num * 10} completion tokens)",
    ]
    files = [path for path in (tmp_path / "d").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "README.md",
        "teacher.json",
        "train-00000.parquet",
        "train-00000.rejected.jsonl",
        "train-00000.journal.jsonl",
    }
    assert not any(b"sk-secret" in path.read_bytes() for path in files)
    assert "sk-secret" not in captured.out + captured.err


def test_the_verb_ends_with_a_mistake_where_the_endpoint_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "--family", "cto", "--count", "3", "--out", str(tmp_path), "--model", "tiny"]
    with serve(Oracle(draw("cto", 3))) as server:
        server.faults = ["401"] * OFTEN
        assert main([*arguments, "--difficulties", "1", "--teacher", server.url]) == 2
    assert "answers 401 Incorrect API key" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model tiny", "--model goes with --teacher URL"),
        ("--max-cost 3", "--max-cost goes with --teacher URL"),
        ("--teacher-set concurrency=3", "--teacher-set goes with --teacher URL"),
        ("--teacher http://h/v1", "--teacher needs --model"),
        ("--teacher localhost:8000 --model m", "'localhost:8000' is not of the form"),
        ("--teacher http://h/v1 --model m --max-cost 3", "max_cost 3 needs prices"),
        ("--teacher http://h/v1 --model m --price-in -1", "price_in -1.0: input should be greater"),
        ("--teacher http://h/v1 --model m --price-in nan", "price_in nan: input should be a finite number"),
        ("--teacher http://h/v1 --model m --api-key-env NO_SUCH_KEY", "'NO_SUCH_KEY' holds no API key"),
        ("--teacher http://h/v1 --model m --teacher-set concurency=3", "did you mean 'concurrency'"),
        ("--teacher http://h/v1 --model m --teacher-set api_key=3", "unknown teacher setting 'api_key'"),
        (
            "--teacher http://h/v1 --model m --teacher-set concurrency=0",
            "concurrency 0: input should be greater",
        ),
        ("--teacher http://h/v1 --model m --teacher-set concurrency=x", "concurrency 'x': input should be"),
        ("--teacher http://h/v1 --model m --teacher-set timeout_s", "not of the form key=value"),
        ("--teacher http://h/v1 --model m --teacher-set min_reward=2", "min_reward 2: input should be less"),
        ("--teacher http://h/v1 --model m --teacher-set tool_shape=xml", "tool_shape 'xml': input should be"),
        ("--teacher http://h/v1 --model m --processes 2", "--processes 2 does not go with --teacher"),
        ("--teacher http://h/v1 --model m --count 0", "count 0 must be 1 or more"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, reason: str
) -> None:
    assert main(["generate", "--out", str(tmp_path / "d"), *arguments.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert reason in lines[0]
    assert not (tmp_path / "d").exists()


def test_settings_are_read_with_their_types(tmp_path: Path) -> None:
    from training.data.teacher.settings import resolve_teacher

    overrides = ["timeout_s=30", "temperature=0", "tool_shape=text", "requests_per_minute=90", "max_turns=5"]
    endpoint, rules = resolve_teacher("http://h/v1", {"model": "m", "price_in": 2.0}, overrides)
    assert (endpoint.timeout_s, endpoint.temperature, endpoint.requests_per_minute) == (30.0, 0.0, 90.0)
    assert (endpoint.price_in, endpoint.max_cost) == (2.0, None)
    assert (rules.tool_shape, rules.max_turns) == ("text", 5)


@pytest.mark.process
def test_no_other_process_may_write_there(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 3))) as server:
        server.hold_after = 0
        with subprocess.Popen(generate(server, tmp_path, 3), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not server.bodies:
                time.sleep(0.01)
            with pytest.raises(UserError, match="another process is writing"):
                teach(tmp_path, server, 3)
            os.kill(process.pid, signal.SIGKILL)


def change_json(column: str, change: Callable[[Any], object]) -> Callable[[dict[str, Any]], None]:
    def apply(row: dict[str, Any]) -> None:
        if column == "messages":
            chat = load_messages(row[column])
            change(chat)
            row[column] = store_messages(chat)
            return
        value = json.loads(row[column])
        change(value)
        row[column] = json.dumps(value)

    return apply


def state_a_lie(chat: list[Body]) -> None:
    chat[4]["content"] = "latency 1"


CORRUPTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other brief": (lambda row: row.update(brief="x"), "brief differs"),
    "other author": (lambda row: row.update(author="oracle"), "messages differs"),
    "unknown author": (lambda row: row.update(author="me"), "messages differs"),
    "cut messages": (lambda row: row.update(messages=row["messages"][:1]), "not mandate, brief and turns"),
    "other mandate": (
        change_json("messages", lambda chat: chat[0].update(content="x")),
        "not mandate, brief and turns",
    ),
    "no last turn": (change_json("messages", lambda chat: chat.pop()), "check of answer: no final answer"),
    "false observation": (
        change_json("messages", lambda chat: chat[3].update(content="cost 1 latency 1 availability 1")),
        "check of replay",
    ),
    "unknown tool": (
        change_json(
            "messages",
            lambda chat: (
                chat[2]["tool_calls"][0]["function"].update(name="guess"),
                chat[3].update(name="guess"),
            ),
        ),
        "check of tools",
    ),
    "lie": (change_json("messages", state_a_lie), "check of chain: turn 2 states latency 1"),
    "wrong last turn": (
        change_json("messages", lambda chat: chat[-1].update(content="{}")),
        "check of answer: reward 0.000",
    ),
    "other answer": (
        change_json("answer", lambda answer: answer.update(cost=1)),
        "answer differs from that of",
    ),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_validation_checks_a_teachers_rows_again(taught: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(taught, folder)
    spoil, reason = CORRUPTIONS[kind]
    path = folder / "cto/train-00000.parquet"
    rows = read_rows(path)
    for row in rows:  # another text than the oracle's, as honest
        change_json("messages", lambda chat: chat[2].update(content="I look at A first."))(row)
    path.write_bytes(encode_shard(rows))
    assert validate_folder(folder).problems == ()
    spoil(rows[1])
    path.write_bytes(encode_shard(rows))
    (problem,) = validate_folder(folder).problems
    assert (problem.file, problem.row) == ("cto/train-00000.parquet", 1)
    assert reason in problem.reason


def test_validation_names_lost_rows_and_files(taught: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(taught, folder)
    path = folder / "cto/train-00000.parquet"
    path.write_bytes(encode_shard(read_rows(path)[:2]))
    assert [problem.reason for problem in validate_folder(folder).problems] == [
        "has 2 rows, teacher.json says 3"
    ]
    path.unlink()
    assert [problem.reason for problem in validate_folder(folder).problems] == ["file is missing"]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    with serve(Oracle(draw("cto", 3))) as server:
        teach(folder, server, 3)
    return folder
