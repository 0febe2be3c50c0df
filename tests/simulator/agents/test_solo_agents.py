"""One role alone: a code agent, and limits that go before a play's own."""

import asyncio
import json

from sandboxes import run_or_be_refused
from team_tables import CHAT, SAMPLING

from scenarios.base import ToolCall
from scenarios.registry import FAMILIES
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.agents.tool_calls import format_tool_call
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine

CALL = format_tool_call("", ToolCall(name="add", arguments={}))


def block(source: str) -> str:
    return f"Let me compute.\n```python\n{source}\n```"


def test_a_code_agent_solves_its_own_family_with_a_program() -> None:
    """Cost: prices of every plan, worked out by a program instead of by calls of the tool."""
    scenario = FAMILIES["cost"].generate("train", 0, 3, 1)
    facts = {name: scenario.facts[name] for name in ("items", "floor", "discount", "budget")}
    gold = FAMILIES["cost"].solve(scenario)
    program = (
        "import itertools, json\n"
        f"facts = {facts!r}\n"
        "best = None\n"
        "for tiers in itertools.product(range(3), repeat=len(facts['items'])):\n"
        "    picks = [rows[tier] for rows, tier in zip(facts['items'].values(), tiers)]\n"
        "    cost, quality = sum(p[0] for p in picks), sum(p[1] for p in picks)\n"
        "    if quality >= facts['floor'] and (best is None or cost < best[0]):\n"
        "        best = cost, {name: tier + 1 for name, tier in zip(facts['items'], tiers)}\n"
        "print(json.dumps({'tiers': best[1], 'total': best[0]}))\n"
    )
    assert facts["discount"] is None

    def speak(transcript: str) -> str:
        told = transcript.rpartition("<|tool|>")[2].partition("<|end|>")[0]
        return told if "<|tool|>" in transcript else block(program)

    def act() -> SoloEpisode:
        return asyncio.run(
            play_solo(
                scenario,
                policy="cost",
                engine=ScriptedEngine(CHAT, {"cost": speak}),
                chat=CHAT,
                sampling=Sampling(max_completion_tokens=2000),
                session="s",
                max_turns=4,
                kind="code",
            )
        )

    played = run_or_be_refused(act)
    if played is not None:
        assert played.verdict.exact, played.verdict.explanation
        assert json.loads(played.trajectory.final_text)["total"] == gold["total"]
        assert played.trajectory.ended_by == "answer"


def test_limits_of_a_solo_play_go_before_its_own() -> None:
    scenario = FAMILIES["cost"].generate("train", 0, 3, 1)
    engine = ScriptedEngine(CHAT, {"cost": lambda transcript: CALL})
    for limits, ended_by, num_turns in [
        (AgentLimits(turns=2), "turns", 2),
        (AgentLimits(failed_calls=3), "failed_calls", 3),
        (AgentLimits(turn_tokens=5), "turn_tokens", 1),
        (None, "turns", 6),
    ]:
        played = asyncio.run(
            play_solo(
                scenario,
                policy="cost",
                engine=engine,
                chat=CHAT,
                sampling=SAMPLING,
                session="s",
                max_turns=6,
                limits=limits,
            )
        )
        assert (played.trajectory.ended_by, len(played.trajectory.turns)) == (ended_by, num_turns)
        assert played.verdict.reward == 0
