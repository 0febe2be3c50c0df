"""ATIF documents: the rules of the format, exact token ids, every role's words, no truth."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import atif
import pytest
from team_tables import CHAT, SAMPLING, TEAM, oracle_engine
from tiny_models import tiny_chat

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import ToolCall
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.agents.agent import Agent
from simulator.agents.dialogue import read_exchanges, read_messages
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.export.atif import episode_to_atif, write_atif
from simulator.game import TeamGame
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_prompt_roles
from simulator.records import Episode, Trajectory
from simulator.tool_calls import format_tool_call

ANSWER = '{"offers": [], "needs": [], "veto": []}'


def check_document(document: dict[str, Any]) -> None:
    """The rules of the format's models (known keys, order of steps, fields of agents alone), and counts."""
    atif.Trajectory.model_validate(document, strict=True)
    assert document["schema_version"] == "ATIF-v1.8"
    known = [one["trajectory_id"] for one in document.get("subagent_trajectories", [])]
    for part in (document, *document.get("subagent_trajectories", [])):
        assert part["final_metrics"]["total_steps"] == len(part["steps"])
        for step in part["steps"]:
            check_step(step, known)


def check_step(step: dict[str, Any], known: list[str]) -> None:
    for result in step.get("observation", {}).get("results", []):
        assert all(one["trajectory_id"] in known for one in result.get("subagent_trajectory_ref", []))
    metrics = step.get("metrics")
    if metrics is not None:
        assert metrics["prompt_tokens"] == len(metrics["prompt_token_ids"])
        assert (
            metrics["completion_tokens"] == len(metrics["completion_token_ids"]) == len(metrics["logprobs"])
        )


SHORT = partial(PlanGame, style="short")


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def play(cases: list[TeamScenario], chat: Chat = CHAT) -> list[Episode]:
    engine = ScriptedEngine(chat, seeded=oracle_team(cases))
    sampling = Sampling(max_completion_tokens=1500)
    return asyncio.run(play_episodes(cases, TEAM, engine, chat, sampling, rounds=2, make_game=SHORT))


def speakers(case: TeamScenario, game: TeamGame | None = None) -> dict[str, Role]:
    """The roles as their prompts have them."""
    return list_prompt_roles(case, game or SHORT(case), {})


def with_tools() -> Trajectory:
    turns = iter(
        [
            format_tool_call("Let me see. ", ToolCall(name="measure", arguments={"option": "B"})),
            "<tool_call>{}</tool_call>",
            ANSWER,
        ]
    )
    agent = Agent(
        role=ROLES["cto"],
        policy="cto",
        engine=ScriptedEngine(CHAT, {"cto": lambda transcript: next(turns)}),
        chat=CHAT,
        sampling=SAMPLING,
        session="s/cto",
        call_tool=lambda call: "latency 35",
    )
    asyncio.run(agent.answer("Bank case."))
    return agent.trajectory()


@pytest.mark.parametrize("make_chat", [lambda: CHAT, tiny_chat], ids=["plain", "template"])
def test_episodes_follow_the_format(make_chat: Callable[[], Chat]) -> None:
    cases, chat = draw(4), make_chat()
    for case, episode in zip(cases, play(cases, chat), strict=True):
        game = SHORT(case)
        document = episode_to_atif(episode, chat, roles=speakers(case))
        check_document(document)
        assert document["session_id"] == f"{case.key}#0"
        by_role = {one["agent"]["name"]: one["steps"] for one in document["subagent_trajectories"]}
        assert list(by_role) == list(episode.trajectories)
        for role in case.seats:
            brief = game.write_report_brief(role)
            assert by_role[role][0] == {"step_id": 1, "source": "user", "message": brief}
            assert by_role[role][1]["message"] == episode.reports[role]
            assert by_role[role][-1]["message"] == episode.votes[role]
            assert by_role[role][-2]["message"].endswith("Vote.")
        assert by_role["reconcile"][0]["message"].startswith(f"A {case.public.base['A']}: ")


def test_questions_and_tools_are_steps_too() -> None:
    (case,) = draw(1)
    experts = oracle_team([case], report_habit="lean", funding_habit="exact")
    ask = json.dumps({"ask": {"seat": "risk", "option": "A", "cost_at_most": 50}})

    def asks_first(transcript: str, rng: random.Random) -> str:
        return experts["reconcile"](transcript, rng) if ask in transcript else ask

    engine = ScriptedEngine(CHAT, seeded={**experts, "reconcile": asks_first})
    (episode,) = asyncio.run(play_episodes([case], TEAM, engine, CHAT, Sampling(max_completion_tokens=1500)))
    document = episode_to_atif(episode, CHAT, roles=speakers(case, PlanGame(case)))
    check_document(document)
    told = [step["message"] for step in document["steps"]]
    assert told[2:4] == ["ReconcileGPT asks for another offer.", "The asked specialist replies."]
    (replied,) = document["steps"][3]["observation"]["results"]
    assert (replied["extra"]["role"], replied["content"]) == ("risk", episode.asked[0].reply)
    by_role = {one["agent"]["name"]: one for one in document["subagent_trajectories"]}
    assert {tool["function"]["name"] for tool in by_role["cto"]["agent"]["tool_definitions"]} == {
        "describe",
        "measure",
    }
    called = [step for step in by_role["cto"]["steps"] if "tool_calls" in step]
    assert len(called) == episode.trajectories["cto"].num_valid_tool_calls > 0
    assert all("hard limit" in step["observation"]["results"][0]["content"] for step in called)


def test_every_token_comes_back() -> None:
    for episode in play(draw(4)):
        for document in episode_to_atif(episode, CHAT)["subagent_trajectories"]:
            path = episode.trajectories[document["agent"]["name"]]
            written = [step["metrics"] for step in document["steps"] if step["source"] == "agent"]
            num_before = 0
            for turn, metrics in zip(path.turns, written, strict=True):
                assert tuple(metrics["prompt_token_ids"][num_before:]) == turn.context_ids
                assert tuple(metrics["completion_token_ids"]) == turn.completion_ids
                assert tuple(metrics["logprobs"]) == turn.logprobs
                num_before = metrics["prompt_tokens"] + metrics["completion_tokens"]


def test_the_meeting_points_to_its_roles() -> None:
    (episode,) = play(draw(1))
    reports, decision, votes = episode_to_atif(episode, CHAT)["steps"][1:]
    assert [result["content"] for result in reports["observation"]["results"]] == [*episode.reports.values()]
    assert [result["content"] for result in decision["observation"]["results"]] == [episode.decision]
    assert [result["extra"]["role"] for result in votes["observation"]["results"]] == [*episode.votes]


def test_tool_calls_carry_their_observations() -> None:
    (episode,) = play(draw(1))
    played = replace(episode, trajectories={"cto": with_tools()})
    document = episode_to_atif(played, CHAT)
    check_document(document)
    (cto,) = document["subagent_trajectories"]
    heard, called, malformed, said = cto["steps"]
    assert heard["message"] == "Bank case."
    (call,) = called["tool_calls"]
    assert (call["function_name"], call["arguments"]) == ("measure", {"option": "B"})
    assert called["observation"]["results"] == [
        {"content": "latency 35", "source_call_id": call["tool_call_id"]}
    ]
    assert "tool_calls" not in malformed
    assert malformed["observation"]["results"][0]["content"].startswith("error: ")
    assert said["message"] == ANSWER
    assert cto["extra"] == {
        "truncated": False,
        "ended_by": "answer",
        "num_tool_calls": 2,
        "num_valid_tool_calls": 1,
    }


def test_a_failed_episode_is_a_document_too() -> None:
    (episode,) = play(draw(1))
    failed = replace(episode, trajectories={}, reports={}, decision="", votes={}, error="gpu lost")
    document = episode_to_atif(failed, CHAT)
    check_document(document)
    assert document["extra"]["error"] == "gpu lost"


def test_neither_truth_nor_score_is_written(tmp_path: Path) -> None:
    cases = draw(1)
    path = write_atif(tmp_path / "new" / "e.json", play(cases)[0], CHAT)
    text = path.read_text()
    assert json.loads(text)["schema_version"] == "ATIF-v1.8"
    for word in ("truth", "optimum", "reward", "verdict"):
        assert word not in text
    assert [entry.name for entry in path.parent.iterdir()] == ["e.json"]


@pytest.mark.parametrize("make_chat", [lambda: CHAT, tiny_chat], ids=["plain", "template"])
def test_a_transcript_reads_back_as_talk(make_chat: Callable[[], Chat]) -> None:
    cases, chat = draw(3), make_chat()
    for case, episode in zip(cases, play(cases, chat), strict=True):
        for role in case.seats:
            brief, prompt_role = SHORT(case).write_report_brief(role), speakers(case)[role]
            messages = read_messages(episode.trajectories[role], chat, prompt_role)
            assert [message.source for message in messages[:2]] == ["user", "agent"]
            assert messages[0].text == brief
            assert not any("<|" in message.text for message in messages)
            first, *rest = read_exchanges(episode.trajectories[role], chat, prompt_role)
            assert (first.message, first.tool_calls, first.answer) == (brief, (), episode.reports[role])
            assert rest[-1].answer == episode.votes[role]


def test_a_turn_cut_by_a_limit_does_not_shift_the_talk() -> None:
    cases = draw(1)
    engine = oracle_engine(cases)
    (episode,) = asyncio.run(
        play_episodes(cases, TEAM, engine, CHAT, Sampling(max_completion_tokens=5), rounds=1, make_game=SHORT)
    )
    exchanges = read_exchanges(episode.trajectories["cto"], CHAT, speakers(cases[0])["cto"])
    brief = SHORT(cases[0]).write_report_brief("cto")
    assert [exchange.message for exchange in exchanges] == [brief, "No decision. Vote."]
    check_document(episode_to_atif(episode, CHAT))


def test_tools_read_back_as_lookups() -> None:
    (exchange,) = read_exchanges(with_tools(), CHAT, ROLES["cto"])
    assert exchange.message == "Bank case."
    assert [told for _, told in exchange.tool_calls] == ["latency 35", exchange.tool_calls[1][1]]
    assert exchange.tool_calls[1][1].startswith("error: ")
    assert exchange.answer == ANSWER
