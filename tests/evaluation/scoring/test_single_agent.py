"""One agent in place of a team: all facts and tools, and a plan that is valued like a team's."""

import asyncio
import json

import pytest
from northbank import make_northbank

from evaluation.scoring.baselines import play_alone, write_alone
from roles.base import AnswerError
from scenarios.base import Style, ToolCall, ToolError
from scenarios.team import TeamScenario, generate, seat_team
from scenarios.team.single import SingleGame
from simulator.chat import PlainChat
from simulator.engines.scripted import ScriptedEngine
from simulator.reward import TeamRewardWeights, score_episode
from simulator.tool_calls import format_tool_call

NORTHBANK = seat_team(make_northbank())
DRAWN = generate("test", 0, 7, 2)
WEIGHTS = TeamRewardWeights()


def best_plan(case: TeamScenario) -> str:
    if case.optimum is None:
        return json.dumps({"option": "none", "parts": {}, "escalate": True})
    plan = case.optimum.plan
    parts = {seat: list(choice) for seat, choice in plan.funded.items() if choice}
    return json.dumps({"option": plan.option, "parts": parts, "escalate": False})


@pytest.mark.parametrize("style", ["full", "short"])
def test_a_single_agent_has_all_facts_and_tools_and_is_scored_like_a_team(style: Style) -> None:
    cases = [generate("test", 0, index, 1 + index % 3) for index in range(12)]
    briefs = {SingleGame(case, style).write_brief(): case for case in cases}

    def speak(transcript: str) -> str:
        case = next(case for brief, case in briefs.items() if brief in transcript)
        call = ToolCall(name="measure", arguments={"seat": "risk", "option": "A", "part": []})
        called = format_tool_call("", call)
        return best_plan(case) if style == "short" or called in transcript else called

    chat = PlainChat()
    plays = play_alone(
        cases,
        engine=ScriptedEngine(chat, {"reconcile": speak}),
        chat=chat,
        temperature=0.0,
        max_completion_tokens=2000,
        stream="x",
        style=style,
    )
    episodes = asyncio.run(plays)
    pairs = zip(cases, episodes, strict=True)
    assert [score_episode(case, one, TeamRewardWeights()).reward for case, one in pairs] == [1.0] * 12
    num_calls = 0 if style == "short" else 1
    assert {one.trajectories["reconcile"].num_valid_tool_calls for one in episodes} == {num_calls}


def test_a_single_agent_that_calls_on_and_on_ends_without_a_plan_when_its_context_is_full() -> None:
    call = ToolCall(name="measure", arguments={"seat": "risk", "option": "A", "part": []})
    chat, game = PlainChat(), SingleGame(DRAWN, "full")
    opening = len(chat.open(game.prompt_role, game.write_brief(), with_tools=True))
    plays = play_alone(
        [DRAWN],
        engine=ScriptedEngine(chat, {"reconcile": lambda transcript: format_tool_call("", call)}),
        chat=chat,
        temperature=0.0,
        max_completion_tokens=2000,
        stream="x",
        style="full",
        max_turns=1000,
        max_total_tokens=opening + 3000,
    )
    (episode,) = asyncio.run(plays)
    played = episode.trajectories["reconcile"]
    assert played.ended_by == "total_tokens"
    assert opening + 2000 < len(played.token_ids) <= opening + 3000
    assert score_episode(DRAWN, episode, WEIGHTS).value == 0.0


def write(option: str, **parts: list[str]) -> str:
    return json.dumps({"option": option, "parts": parts, "escalate": False})


def test_a_plan_is_worth_what_the_structures_say() -> None:
    assert score_episode(NORTHBANK, write_alone(NORTHBANK, best_plan(NORTHBANK)), WEIGHTS).value == 1.0
    bare = score_episode(NORTHBANK, write_alone(NORTHBANK, write("A")), WEIGHTS)  # A needs a part of CTO
    assert (bare.value, bare.unresolved, bare.consensus) == (0.0, 0.25, 1.0)
    with_part = score_episode(NORTHBANK, write_alone(NORTHBANK, write("A", cto=["spare gateway"])), WEIGHTS)
    assert with_part.unresolved == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        write("C"),
        write("A", legal=["spare gateway"]),
        write("A", cto=["gold plating"]),
        write("none"),
        '{"option": "A", "parts": {}, "escalate": true}',
        '{"option": "A", "parts": {"cto": "spare gateway"}, "escalate": false}',
    ],
)
def test_what_is_no_plan_is_no_decision(text: str) -> None:
    with pytest.raises(AnswerError):
        SingleGame(NORTHBANK).read(text)
    verdict = score_episode(NORTHBANK, write_alone(NORTHBANK, text), WEIGHTS)
    assert (verdict.value, verdict.unresolved) == (0.0, 1.0)


def call(name: str, **arguments: object) -> str:
    return SingleGame(NORTHBANK).call_tool(ToolCall(name=name, arguments=arguments))


def test_its_tools_reach_every_seat() -> None:
    for seat in DRAWN.seats:
        part = DRAWN.parts_of(seat, "A")[1]
        asked = {"seat": seat, "option": "A", "part": list(part.choice)}
        told = SingleGame(DRAWN).call_tool(ToolCall(name="measure", arguments=asked))
        assert f"cost {part.cost}, worth {part.worth}; hard limit" in told
    full = {"cto": ["spare ledger node"], "coo": ["contractor crew"]}
    assert call("total", option="B", parts=full) == "cost 22 of 40, worth 72"
    assert (
        call("total", option="A", parts={})
        == "cost 0 of 40, worth 30; cannot be run: the limit of cto breaks"
    )
    with pytest.raises(ToolError, match="seat must be one of cto coo risk cost"):
        call("measure", seat="legal", option="A", part=[])
    with pytest.raises(ToolError, match="coo cannot buy this on B"):
        call("total", option="B", parts={"coo": ["gold plating"]})


def test_the_text_shows_every_seat_and_a_whole_answer() -> None:
    game = SingleGame(DRAWN)
    for seat in DRAWN.seats:
        assert f"({seat})" in game.write_brief()
    assert [tool.name for tool in game.prompt_role.tools] == ["describe", "measure", "total"]
    example = game.prompt_role.mandate.rsplit("\n", 1)[1]
    assert set(json.loads(example)) == {"option", "parts", "escalate", "reason"}
    assert [tool.name for tool in SingleGame(DRAWN, "short").prompt_role.tools] == ["sheet"]
