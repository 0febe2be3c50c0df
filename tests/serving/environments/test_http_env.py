"""The HTTP environments: the role reward comes out, sessions stay apart, no path pays for a model."""

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from scenarios import environment
from scenarios.base import Scenario, ToolCall
from scenarios.registry import FAMILIES
from serving.environments.http_env import COOKIE, MAX_BODY_BYTES, find_answer, make_app
from serving.environments.plays import KINDS, Play, make_row, write_rows
from serving.guard import LOOPBACK

CTO = FAMILIES["cto"]


HOSTILE_BODIES = {
    "half a surrogate pair": b'{"x": "\\ud800"}',
    "half a pair as a key": b'{"\\udfff": 1}',
    "deep list": b'{"x": ' + b"[" * 800 + b"]" * 800 + b"}",
    "deep object": b'{"x": ' + b'{"a":' * 800 + b"1" + b"}" * 800 + b"}",
    "deeper than the parser": b"[" * 100_000 + b"]" * 100_000,
    "infinite": b'{"x": 1e999}',
    "minus infinite": b'{"x": -1e999}',
    "NaN": b'{"x": NaN}',
    "long number": b'{"x": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"x": "\xff\xfe"}',
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "repeated key": b'{"x": 1, "x": 2}',
    "list": b"[]",
    "null": b"null",
    "empty": b"",
}


@pytest.mark.parametrize("path", ["seed_session", "verify", "measure", "describe"])
@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_no_body_is_an_error_of_the_server(path: str, name: str) -> None:
    """Alone, and inside a row that is sound otherwise."""
    client = TestClient(make_app(), raise_server_exceptions=False)
    client.post("/seed_session", json=row_of(draw()))
    body = HOSTILE_BODIES[name]
    sound = json.dumps({**row_of(draw()), "response": responded("{}")}).encode()
    bodies = [body, sound[:-1] + b', "extra": ' + body + b"}" if body[:1] == b"{" else body]
    for one in bodies:
        got = client.post(f"/{path}", content=one, headers={"content-type": "application/json"})
        assert got.status_code < 500, (got.status_code, got.text[:200])
        got.content.decode()


@pytest.mark.parametrize("field", ["seed", "index"])
def test_a_scenario_beyond_all_numbers_is_refused(field: str) -> None:
    client = TestClient(make_app(), raise_server_exceptions=False)
    row = row_of(draw())
    row["scenario"][field] = 10**4000
    got = client.post("/seed_session", content=json.dumps(row))
    assert got.status_code == 422


def test_a_large_tool_call_is_refused_before_it_is_read() -> None:
    client = TestClient(make_app())
    client.post("/seed_session", json=row_of(draw()))
    read = 0

    def send() -> Iterator[bytes]:
        nonlocal read
        for _ in range(13 * 16):
            read += 1 << 16
            yield b'"' + b"x" * ((1 << 16) - 1)

    start = time.process_time()
    assert client.post("/measure", content=send()).status_code == 413
    assert client.post("/measure", json={"option": "A" * 70_000}).status_code == 413
    assert time.process_time() - start < 1


def draw(family: str = "cto", index: int = 7, difficulty: int = 2) -> Scenario:
    return FAMILIES[family].generate("train", 0, index, difficulty)


def row_of(scenario: Scenario) -> dict[str, Any]:
    return make_row(Play(KINDS[scenario.family], scenario))


def responded(text: str) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"output": [{"type": "function_call", "name": "measure", "arguments": "{}"}, message]}


def verify(client: Any, scenario: Scenario, text: str) -> dict[str, Any]:
    got = client.post("/verify", json={**row_of(scenario), "response": responded(text)})
    assert got.status_code == 200, got.text
    return dict(got.json())


def play_expert(client: Any, scenario: Scenario) -> dict[str, Any]:
    """Seed, every tool call of the demonstration, verify."""
    assert client.post("/seed_session", json=row_of(scenario)).json() == {}
    family = FAMILIES[scenario.family]
    steps = family.demonstrate(scenario, random.Random(0))
    for step in steps[:-1]:
        assert step.call is not None
        told = client.post(f"/{step.call.name}", json=dict(step.call.arguments)).json()
        assert told == {"observation": family.call_tool(scenario, step.call)}
    return verify(client, scenario, steps[-1].text)


def expected_parts(scenario: Scenario) -> dict[str, float]:
    family = FAMILIES[scenario.family]
    state = environment.reset(family, scenario.split, scenario.seed, scenario.index, scenario.difficulty)
    steps = family.demonstrate(scenario, random.Random(0))
    for step in steps[:-1]:
        assert step.call is not None
        state = environment.step(family, state, step.call).state
    return dict(environment.step(family, state, steps[-1].text).parts)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_expert_gets_the_role_reward(family: str) -> None:
    client = TestClient(make_app())
    for index in range(3):
        client.cookies.clear()
        scenario = draw(family, index)
        got, parts = play_expert(client, scenario), expected_parts(scenario)
        assert got["reward"] == parts.pop("total") >= 1.0
        assert {name: got[f"reward_{name}"] for name in parts} == parts
        assert (got["mask_sample"], got["failure"], got["exact"]) == (False, None, True)
        assert verify(client, scenario, "asked again")["reward"] == got["reward"]
        assert {"responses_create_params", "response", "scenario"} <= set(got)


def test_sessions_stay_apart() -> None:
    app = make_app()
    one, other = TestClient(app), TestClient(app)
    first, second = draw(index=1), draw(index=2)
    one.post("/seed_session", json=row_of(first))
    other.post("/seed_session", json=row_of(second))
    assert one.cookies[COOKIE] != other.cookies[COOKIE]
    for client, scenario in ((one, first), (other, second)):
        own = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
        told = client.post("/describe", json=dict(own.arguments)).json()["observation"]
        assert told == CTO.call_tool(scenario, own)
    assert (
        CTO.call_tool(first, ToolCall(name="describe", arguments={"option": first.facts["option"]})) != told
    )
    gold = CTO.demonstrate(first, random.Random(0))[-1].text
    assert verify(one, first, gold)["reward"] > 0
    assert verify(other, second, "no")["reward"] == 0


def test_a_model_gains_nothing_by_the_servers_own_paths() -> None:
    """Harnesses send any function call to the path of its name: these are calls that a model may make."""
    client = TestClient(make_app())
    scenario, easier = draw(index=7, difficulty=8), draw(index=0, difficulty=1)
    client.post("/seed_session", json=row_of(scenario))
    gold = CTO.demonstrate(scenario, random.Random(0))[-1].text
    assert client.post("/seed_session", json=row_of(easier)).status_code == 409
    assert client.post("/seed_session", json=row_of(scenario)).status_code == 200
    told = client.post("/truth", json={}).json()["observation"]
    assert told.startswith("error: unknown tool")
    probe = verify(client, scenario, "I guess B")
    assert probe["reward"] == 0
    assert not {"truth", "facts", "worth", "part"} & set(probe)
    assert verify(client, scenario, gold)["reward"] == 0, "a second answer after a look at the first reward"
    assert client.post("/measure", json={"option": "A"}).json() == {
        "observation": "error: the episode is over"
    }
    got = client.post("/verify", json={**row_of(easier), "response": responded(gold)})
    assert got.status_code == 409


def test_a_lost_session_is_masked_and_not_scored() -> None:
    client = TestClient(make_app(max_sessions=1))
    scenario = draw()
    gold = CTO.demonstrate(scenario, random.Random(0))[-1].text
    got = verify(client, scenario, gold)
    assert (got["reward"], got["mask_sample"], got["failure_kind"]) == (0.0, True, "session_lost")
    client.post("/seed_session", json=row_of(scenario))
    token = client.cookies[COOKIE]
    client.cookies.clear()
    client.post("/seed_session", json=row_of(draw(index=9)))
    client.cookies.clear()
    client.cookies.set(COOKIE, token)
    assert verify(client, scenario, gold)["mask_sample"]
    assert client.post("/measure", json={"option": "A"}).status_code == 404


def spoil(**changed: Any) -> dict[str, Any]:
    row = row_of(draw())
    return {**row, "scenario": {**row["scenario"], **changed}}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (spoil(split="test"), "scenario.split"),
        (spoil(family="ctoo"), "did you mean 'cto'"),
        (spoil(difficulty=11), "scenario.difficulty"),
        (spoil(index="7"), "scenario.index"),
        (spoil(more=1), "scenario.more"),
        ({}, "scenario"),
    ],
)
def test_wrong_rows_are_named(row: dict[str, Any], says: str) -> None:
    got = TestClient(make_app()).post("/seed_session", json=row)
    assert got.status_code == 422
    assert says in got.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"[]", 422),
        (b'{"a": NaN}', 422),
        (b'{"a": 1, "a": 2}', 422),
        (b"\xff", 422),
        (b"[" * 60_000, 422),
        (b" " * (MAX_BODY_BYTES + 1), 413),
    ],
)
@pytest.mark.parametrize("path", ["/seed_session", "/verify", "/measure"])
def test_bodies_are_strict_json(path: str, body: bytes, status: int) -> None:
    assert TestClient(make_app()).post(path, content=body).status_code == status


def test_the_last_message_is_the_answer() -> None:
    assert find_answer(responded("B")) == "B"
    assert find_answer({"output": [{"type": "message", "content": "B"}]}) == "B"
    bad: list[dict[str, Any]] = [
        {},
        {"output": []},
        {"output": "B"},
        {"output": [1]},
        {"output": [{"type": "function_call"}]},
    ]
    assert [find_answer(response) for response in bad] == [""] * len(bad)
    assert find_answer({"output": [{"type": "message", "content": [1, {"text": 2}]}]}) == ""


def test_rows_hold_what_a_model_reads_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_rows(path, "cto", count=4, difficulties=[1, 3])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["scenario"]["difficulty"] for row in rows] == [1, 3, 1, 3]
    for row in rows:
        name = row["scenario"]
        scenario = CTO.generate(name["split"], name["seed"], name["index"], name["difficulty"])
        assert row["responses_create_params"]["input"][1]["content"] == scenario.brief
        assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["describe", "measure"]
        assert set(row) == {"responses_create_params", "scenario"}


FOREIGN = (  # a page in the user's browser: by a name that leads to this machine, or from another origin
    {"host": "attacker.example:8700"},
    {"origin": "https://attacker.example"},
    {"sec-fetch-site": "cross-site"},
)


def test_it_listens_on_this_machine_alone() -> None:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "emads.cli", "serve-env", "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent.parent.parent.parent
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with httpx.Client(base_url=f"http://{LOOPBACK}:{port}") as client:
                    assert play_expert(client, draw())["reward"] >= 1.0
                    for foreign in FOREIGN:
                        assert client.post("/seed_session", json={}, headers=foreign).status_code in (
                            403,
                            421,
                        )
                break
            except httpx.ConnectError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
        outside = socket.gethostbyname(socket.gethostname())
        if not outside.startswith("127."):
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://{outside}:{port}/", timeout=5)
    finally:
        process.terminate()
        process.wait(20)


def seed_of(session: str, scenario: Scenario, rollout: str = "r") -> dict[str, Any]:
    episode = {"rollout_id": rollout, "attempt": 0}
    task = {"taskset": "emads", "task_id": scenario.key}
    return {
        "resources_session_id": session,
        "episode_id": episode,
        "task_id": task,
        "task_data": row_of(scenario),
    }


def test_an_environment_server_seeds_calls_verifies_and_closes_by_its_own_ids() -> None:
    client, scenario = TestClient(make_app()), draw()
    seed = seed_of("one", scenario)
    for _ in range(2):
        assert client.post("/seed_session", json=seed).json() == {"resources_session_id": "one"}
    assert client.post("/seed_session", json=seed_of("one", draw(index=8))).status_code == 409
    steps = CTO.demonstrate(scenario, random.Random(0))
    for step in steps[:-1]:
        assert step.call is not None
        client.post(f"/{step.call.name}", json=dict(step.call.arguments))
    asked = {key: seed[key] for key in ("episode_id", "task_id")}
    got = client.post(
        "/verify", json={**asked, "verification_input": {"response": responded(steps[-1].text)}}
    )
    assert got.json()["reward"] == expected_parts(scenario)["total"]
    close = {"resources_session_id": "one", "episode_id": seed["episode_id"]}
    stranger = {**close, "episode_id": {"rollout_id": "other"}}
    assert client.post("/close_session", json=stranger).status_code == 409
    for _ in range(2):
        assert client.post("/close_session", json=close).json() == {"resources_session_id": "one"}
    assert client.post("/seed_session", json=seed).status_code == 409
    lost = client.post("/verify", json={**asked, "verification_input": {"response": responded("{}")}})
    assert lost.json()["mask_sample"] is True
    assert client.post("/seed_session", json={**seed, "more": 1}).status_code == 422


def test_metrics_are_means_without_masked_samples() -> None:
    verified = [
        {"_ng_task_index": 0, "reward": 1.0, "exact": True, "mask_sample": False},
        {"_ng_task_index": 0, "reward": 0.0, "exact": False, "mask_sample": False},
        {"_ng_task_index": 1, "reward": 0.5, "exact": False, "mask_sample": False},
        {"_ng_task_index": 1, "reward": 0.0, "exact": False, "mask_sample": True},
    ]
    got = TestClient(make_app()).post("/aggregate_metrics", json={"verify_responses": verified}).json()
    assert got["key_metrics"] == {"mean/reward": 0.5, "mean/exact": pytest.approx(1 / 3)}
    assert [one["mean/reward"] for one in got["group_level_metrics"]] == [0.5, 0.5]
    assert (got["agent_metrics"]["count"], got["agent_metrics"]["masked"]) == (3, 1)
    wrong = TestClient(make_app()).post("/aggregate_metrics", json={"verify_responses": {}})
    assert wrong.status_code == 422
