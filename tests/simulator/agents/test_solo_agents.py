"""One role alone: a code agent, and limits that go before a play's own."""

import asyncio
import json
from functools import partial

from sandboxes import run_or_be_refused
from team_tables import CHAT, SAMPLING

from scenarios.base import ToolCall
from scenarios.registry import FAMILIES
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.observer import counting_turns
from simulator.tool_calls import format_tool_call

CALL = format_tool_call("", ToolCall(name="add", arguments={}))


def block(source: str) -> str:
    return f"Let me compute.\n```python\n{source}\n```"


def test_a_code_agent_solves_its_own_family_with_a_program() -> None:
    """Cost: every set of tiers, worked out by a program instead of by calls of the tool."""
    scenario = FAMILIES["cost"].generate("train", 0, 3, 1)
    given = {name: scenario.facts[name] for name in ("structure", "amount", "rates", "limits")}
    gold = FAMILIES["cost"].solve(scenario)
    program = (
        "import itertools, json\n"
        f"facts = {given!r}\n"
        "upgrades, items = facts['structure']['upgrades'], facts['structure']['items']\n"
        "bundle, ceiling = facts['structure']['bundle'], facts['rates']['ceiling']\n"
        "best = None\n"
        "def money(points):\n"
        "    return facts['rates']['point'] * min(points, ceiling)\n"
        "start = sum(item['quality'] for item in items.values())\n"
        "for n in range(len(upgrades) + 1):\n"
        "    for names in itertools.combinations(upgrades, n):\n"
        "        chosen = [upgrades[name] for name in names]\n"
        "        if len({one['item'] for one in chosen}) < n:\n"
        "            continue\n"
        "        cost = sum(one['cost'] for one in chosen)\n"
        "        for kind in ('percent', 'points'):\n"
        "            alike = sum(kind in one for one in chosen)\n"
        "            if alike >= bundle['count']:\n"
        "                cost -= alike * bundle['off']\n"
        "        quality = start + sum(one.get('points', 0) for one in chosen)\n"
        "        saved = sum(items[one['item']]['price'] * one.get('percent', 0) // 100 for one in chosen)\n"
        "        worth = saved + money(quality) - money(start)\n"
        "        keeps = quality >= facts['limits']['quality'] and cost <= facts['amount']\n"
        "        if keeps and (best is None or (worth, -cost) > best[:2]):\n"
        "            best = worth, -cost, list(names)\n"
        "print(json.dumps({'part': best[2], 'cost': -best[1], 'worth': best[0]}))\n"
    )

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
        assert json.loads(played.trajectory.final_text) == gold
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
        counted: list[None] = []
        with counting_turns(partial(counted.append, None)):
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
        assert len(counted) == num_turns
        assert (played.trajectory.ended_by, len(played.trajectory.turns)) == (ended_by, num_turns)
        assert played.verdict.reward == 0
