"""OpenAI, MCP and A2A clients play cases against one endpoint in this process."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from mcp.shared.exceptions import MCPError
from served_teams import ANN, ANNS_TOKEN, CASE, serve_scripted

from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.team import PlanGame
from scenarios.written.written_case import read_case
from serving.endpoint.tables import Metrics

CASE_FILE = Path(__file__).parents[3] / "examples/card-payments.yaml"
JSON = {"type": "json_object"}


def ask(text: str = CASE, **more: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **more}


def test_an_openai_client_plays_a_case_and_gets_the_whole_play() -> None:
    async def run() -> tuple[list[str], Any]:
        async with serve_scripted() as served:
            client = served.openai()
            names = [model.id async for model in client.models.list()]
            return names, await client.chat.completions.create(**ask(response_format=JSON))

    names, reply = asyncio.run(run())
    assert names == ["demo", *(f"demo/{role}" for role in ROLES)]
    said = json.loads(reply.choices[0].message.content)
    assert said["decision"]["option"] == "B"
    assert set(said["decision"]["fund"]) <= {"cto", "coo", "risk", "cost"}
    assert set(said["votes"].values()) == {"accept"}
    case = read_case(CASE_FILE)
    assert all(PlanGame(case).read_report(seat, said["reports"][seat]) for seat in case.seats)
    assert reply.usage.completion_tokens == said["completion_tokens"] > 0


def test_a_stream_tells_what_seats_do_then_the_minutes_then_usage() -> None:
    async def run() -> list[Any]:
        async with serve_scripted() as served:
            options = {"include_usage": True}
            stream = await served.openai().chat.completions.create(**ask(stream=True, stream_options=options))
            return [chunk async for chunk in stream]

    chunks = asyncio.run(run())
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert texts[0] == ""
    reports = [place for place, text in enumerate(texts) if "reports: " in text]
    decided = next(place for place, text in enumerate(texts) if "ReconcileGPT decides for" in text)
    assert len(reports) == 4
    assert max(reports) < decided
    assert "What replaces our card payment switch" in texts[-2]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens > 0


def test_null_and_empty_are_not_set_and_an_own_reply_is_taken_back() -> None:
    async def run() -> None:
        async with serve_scripted() as served:
            create = served.openai().chat.completions.create
            unset: dict[str, Any] = {
                "stop": "", "tools": [], "logprobs": False, "n": 1, "tool_choice": "", "top_logprobs": None
            }  # fmt: skip
            first = await create(**ask(), extra_body=unset)
            own = {**first.choices[0].message.model_dump(), "name": "", "refusal": "", "audio": {}}
            talk = [*ask()["messages"], first.choices[0].message, *ask()["messages"], own, *ask()["messages"]]
            second = await create(**{**ask(), "messages": talk})
            assert (first.choices[0].finish_reason, second.choices[0].finish_reason) == ("stop", "stop")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "dem"}, "did you mean 'demo'"),
        ({"tools": [{"type": "function", "function": {"name": "buy"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "buy it"}]}, "case"),
        (
            {"messages": [{"role": "user", "content": CASE.replace("budget: 40", "budget: -1")}]},
            "case:8: budget",
        ),
        ({"model": "demo/cto", "stream": True}, "stream"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    async def run() -> str:
        async with serve_scripted() as served:
            with pytest.raises(openai.BadRequestError) as raised:
                await served.openai().chat.completions.create(**{**ask(), **change})
            return str(raised.value)

    said = asyncio.run(run())
    assert named in said
    assert "/tmp" not in said


SOUND = json.dumps(ask()).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"model": NaN}',
        SOUND.replace(b'"model": "demo"', b'"model": "x", "model": "demo"'),
        SOUND.replace(b'"demo"', b"9" * 400),
        SOUND.replace(b"demo", b"\\ud800"),
        b"\xef\xbb\xbf" + SOUND,
        SOUND.decode().encode("utf-16"),
        json.dumps(ask("a: " + "[" * 20_000)).encode(),
        json.dumps(ask("a: &a [x]\nb: [*a, *a]")).encode(),
        json.dumps(ask("!!python/object/apply:os.system ['id']")).encode(),
        json.dumps(ask(CASE.replace("title:", 'title: "\x1b[2J" #'))).encode(),
        json.dumps({**ask(), "model": "demo\r\nX-Evil: 1"}).encode(),
    ],
)
def test_a_hostile_body_is_refused(body: bytes) -> None:
    async def run() -> tuple[int, str, int]:
        async with serve_scripted() as served:
            answer = await served.http().post("/v1/chat/completions", content=body)
            return answer.status_code, answer.json()["error"]["message"], len(answer.headers)

    status, said, num_headers = asyncio.run(run())
    assert status == 400
    assert 0 < len(said) < 500
    assert num_headers == 2


def test_fields_that_change_nothing_here_and_fences_are_taken() -> None:
    async def run() -> str:
        async with serve_scripted() as served:
            asked = ask(f"```yaml\n{CASE}\n```", user="me", seed=3, response_format=JSON)
            reply = await served.openai().chat.completions.create(**asked)
            return reply.choices[0].message.content or ""

    assert json.loads(asyncio.run(run()))["decision"]["option"] == "B"


def test_more_callers_than_places_wait_or_are_told_when_to_come_back() -> None:
    async def run() -> list[Any]:
        async with serve_scripted(most_at_once=1, most_waiting=2) as served:
            client = served.openai()
            calls = [client.chat.completions.create(**ask()) for _ in range(6)]
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(run())
    refused = [one for one in found if isinstance(one, openai.RateLimitError)]
    assert len(refused) == 3
    assert all(1 <= int(one.response.headers["retry-after"]) <= 60 for one in refused)


def test_a_full_queue_refuses_a_stream_before_it_begins() -> None:
    async def run() -> None:
        async with serve_scripted(most_at_once=1, most_waiting=0) as served, served.tables.place("decision"):
            with pytest.raises(openai.RateLimitError):
                await served.openai().chat.completions.create(**ask(stream=True))

    asyncio.run(run())


def test_an_engine_that_fails_is_told_as_such_and_gives_its_place_back() -> None:
    async def fail(*args: Any, **kwargs: Any) -> Any:
        raise InfrastructureError("the device is gone")

    async def run() -> tuple[Any, int]:
        async with serve_scripted(most_at_once=1) as served:
            served.tables.engine.complete = fail  # type: ignore[method-assign]
            with pytest.raises(openai.InternalServerError, match="the device is gone") as raised:
                await served.openai().chat.completions.create(**ask())
            return raised.value, served.tables.metrics.num_active

    error, active = asyncio.run(run())
    assert error.status_code == 502
    assert active == 0


def test_a_caller_that_goes_away_takes_its_job_along() -> None:
    async def run() -> tuple[int, str]:
        async with serve_scripted(most_at_once=1) as served:
            job = asyncio.create_task(_hold(served.tables))
            await asyncio.sleep(0)
            waiting = asyncio.create_task(served.openai().chat.completions.create(**ask()))
            await asyncio.sleep(0.05)
            waiting.cancel()
            job.cancel()
            await asyncio.gather(job, waiting, return_exceptions=True)
            await served.openai().chat.completions.create(**ask())
            return served.tables.metrics.num_waiting, served.tables.metrics.render()

    waiting, metrics = asyncio.run(run())
    assert waiting == 0
    assert 'emads_jobs_total{kind="decision",outcome="cancelled"} 1' in metrics


async def _hold(tables: Any) -> None:
    async with tables.place("decision"):
        await asyncio.sleep(60)


def test_an_mcp_client_decides_reports_votes_and_reads_minutes() -> None:
    async def run() -> None:
        async with serve_scripted() as served, served.mcp() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"decide", "report", "vote"}
            decided = (await client.call_tool("decide", {"case": CASE})).structured_content
            assert decided["decision"]["option"] == "B"
            (page,) = (await client.read_resource(decided["minutes"])).contents
            assert "Votes" in str(page)
            report = (await client.call_tool("report", {"case": CASE, "seat": "cto"})).structured_content
            assert report["seat"] == "cto"
            assert '"offers"' in report["report"]
            asked = {"case": CASE, "seat": "cto", "reports": decided["reports"]}
            for decision, vote in (
                (decided["decision"], "accept"),
                (
                    {"option": "A", "fund": [], "escalate": False},
                    "object",
                ),  # without what the CTO needs there
            ):
                said = await client.call_tool("vote", {**asked, "decision": json.dumps(decision)})
                assert json.loads(said.structured_content["vote"])["vote"] == vote

    asyncio.run(run())


def test_an_mcp_client_is_told_what_is_wrong() -> None:
    async def run() -> None:
        async with serve_scripted() as served, served.mcp() as client:
            for arguments, named in (
                ({"case": "x", "seat": "cto"}, "case"),
                ({"case": CASE, "seat": "ceo"}, "no seat 'ceo'"),
                ({"case": CASE, "seat": "reconcile"}, "call decide"),
            ):
                result = await client.call_tool("report", arguments)
                assert result.is_error
                assert named in str(result.content[0])
            with pytest.raises(MCPError, match="no minutes"):
                await client.read_resource("minutes://999")

    asyncio.run(run())


def test_an_a2a_task_stops_at_the_gate_and_only_its_reviewer_opens_it() -> None:
    async def run() -> None:
        async with serve_scripted() as served:
            agent = await served.a2a()
            task, states = await agent.send_case()
            assert states == ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]
            at_gate = "TASK_STATE_INPUT_REQUIRED"
            for attempt, reason in (
                ({"token": None}, "no reviewer of this name and token"),
                ({"token": "a-token-of-nobody-0"}, "no reviewer"),
                ({"reviewer": "cto"}, "no reviewer"),
                ({"reviewer": "simulated"}, "no reviewer"),
                ({"digest": "0" * 64}, "other_proposal"),
                ({"interrupt_id": "x"}, "not open"),
                ({"decision": "yes"}, "decision"),
                ({"decision": "edit"}, "option goes with edit"),
                ({"approved": True}, "approved"),
            ):
                state, said = await agent.rule(task, **attempt)
                assert (state, reason in said) == (at_gate, True), (attempt, said)
            state, said = await agent.rule(task)
            assert state == "TASK_STATE_COMPLETED", said
            ended = await agent.look(task)
            assert [artifact.name for artifact in ended.artifacts] == ["minutes"]
            assert ANN in ended.artifacts[0].parts[0].text
            stored = ended.SerializeToString()
            assert ANNS_TOKEN.encode() not in stored

    asyncio.run(run())


def test_a_refused_plan_is_never_carried_out() -> None:
    async def run() -> None:
        async with serve_scripted() as served:
            agent = await served.a2a()
            task, _ = await agent.send_case()
            state = "TASK_STATE_INPUT_REQUIRED"
            for _ in range(8):
                if state != "TASK_STATE_INPUT_REQUIRED":
                    break
                state, said = await agent.rule(task, decision="reject", feedback="no")
            assert state == "TASK_STATE_COMPLETED"
            assert "not" in said.lower()
            assert '"not_approved"' in str((await agent.look(task)).status) or "handed" in said.lower()

    asyncio.run(run())


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": 7, "id": 1},
        {
            "jsonrpc": "2.0",
            "method": "SendMessage",
            "params": {"message": {"role": 9, "parts": "x"}},
            "id": 1,
        },
    ],
)
def test_a_malformed_a2a_request_is_one_line_in_the_log(
    message: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> int:
        async with serve_scripted() as served:
            headers = {"A2A-Version": "1.0"}
            answer = await served.http().post("/a2a", json=message, headers=headers)
            assert "error" in answer.json()
            return answer.status_code

    with caplog.at_level("WARNING", logger="a2a"):
        assert asyncio.run(run()) == 200
    told = [record for record in caplog.records if record.name.startswith("a2a.server.routes")]
    assert len(told) == 1
    assert told[0].exc_info is None
    assert "\n" not in told[0].getMessage()


def test_a_case_that_cannot_be_played_is_rejected() -> None:
    async def run() -> tuple[str, list[str]]:
        async with serve_scripted() as served:
            return await (await served.a2a()).send_case("hello")

    assert asyncio.run(run())[1][-1] == "TASK_STATE_REJECTED"


def test_a_task_at_the_gate_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "company.db"

    async def send() -> str:
        async with serve_scripted(store=store) as served:
            task, _ = await (await served.a2a()).send_case()
            return task

    async def approve(task: str) -> tuple[str, str]:
        async with serve_scripted(store=store) as served:
            return await (await served.a2a()).rule(task)

    task = asyncio.run(send())
    assert asyncio.run(approve(task))[0] == "TASK_STATE_COMPLETED"


def test_health_and_metrics_count_what_was_done() -> None:
    async def run() -> tuple[dict[str, Any], str]:
        async with serve_scripted() as served:
            await served.openai().chat.completions.create(**ask())
            http = served.http()
            return (await http.get("/health")).json(), (await http.get("/metrics")).text

    health, text = asyncio.run(run())
    assert health == {"status": "ok", "team": "demo", "active": 0, "waiting": 0}
    assert 'emads_jobs_total{kind="decision",outcome="done"} 1' in text
    assert 'emads_job_seconds_count{kind="decision"} 1' in text
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0


def test_durations_fall_into_their_buckets() -> None:
    clock = iter([0.0, 0.2, 10.0, 17.0])
    metrics = Metrics(lambda: next(clock))
    for _ in range(2):
        with metrics.working("decision"):
            pass
    text = metrics.render()
    assert 'emads_job_seconds_bucket{kind="decision",le="0.1"} 0' in text
    assert 'emads_job_seconds_bucket{kind="decision",le="0.25"} 1' in text
    assert 'emads_job_seconds_bucket{kind="decision",le="10"} 2' in text
    assert 'emads_job_seconds_sum{kind="decision"} 7.200000' in text
