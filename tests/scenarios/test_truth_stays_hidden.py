"""No role ever reads the truth of its own family: sentinels in its place show in no request of any engine.

The team family is searched in test_graph.py.
"""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from roles.registry import ROLES
from scenarios.base import Scenario, ToolCall
from scenarios.hostile import HOSTILE_VALUES
from scenarios.registry import FAMILIES
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import play_solos
from simulator.chat import PlainChat
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.tool_calls import format_tool_call

NUMBER, WORD = 987_654_321, "TRUTH-SENTINEL"
CHAT = PlainChat()


def seal(value: Any) -> Any:
    """The same shape with a sentinel for every leaf."""
    if isinstance(value, Mapping):
        return {key: seal(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [seal(inner) for inner in value]
    return NUMBER if isinstance(value, int | float) and not isinstance(value, bool) else WORD


def draw(role: str, count: int) -> list[Scenario]:
    """Scenarios of mixed difficulty whose briefs differ, so that a scripted expert knows its own."""
    found: dict[str, Scenario] = {}
    index = 0
    while len(found) < count:
        scenario = FAMILIES[role].generate("train", 0, index, (1, 2, 3, 5)[index % 4])
        found.setdefault(scenario.brief, scenario)
        index += 1
    return list(found.values())


class Player(ScriptedEngine):
    """Per scenario an expert, or a policy that calls tools and answers at random; keeps what it was asked."""

    def __init__(self, role: str, scenarios: list[Scenario]) -> None:
        super().__init__(CHAT, seeded={role: self.speak})
        self.role = role
        self.by_brief = {scenario.brief: scenario for scenario in scenarios}
        self.experts = {scenario.brief: oracle_solo([scenario]) for scenario in scenarios[::2]}
        self.asked: list[str] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(CHAT.decode(request.prompt_ids))
        return await super().complete(request)

    def speak(self, transcript: str, rng: random.Random) -> str:
        brief = transcript.split("<|user|>")[1].split("<|end|>")[0]
        if brief in self.experts:
            return self.experts[brief](transcript)
        scenario, family = self.by_brief[brief], FAMILIES[self.role]
        if rng.random() < 0.3:
            return family.baselines["random"](scenario, rng)
        steps = family.demonstrate(scenario, rng)
        calls = [step.call for step in steps if step.call]
        if not calls:
            return steps[-1].text
        call = rng.choice(calls)
        arguments = dict(call.arguments)
        if arguments and rng.random() < 0.5:
            arguments[rng.choice(list(arguments))] = rng.choice(HOSTILE_VALUES)
        name = rng.choice([tool.name for tool in ROLES[self.role].tools]) if rng.random() < 0.5 else call.name
        return format_tool_call("", ToolCall(name=name, arguments=arguments))


@pytest.mark.parametrize("num_episodes", slow_except((120, num_trials(300, 1000)), 120))
@pytest.mark.parametrize("role", FAMILIES)
def test_truth_shows_in_no_request(role: str, num_episodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes on sealed scenarios, judged by the unsealed ones, so that the play is real."""
    scenarios = draw(role, num_episodes)
    original, family = {scenario.key: scenario for scenario in scenarios}, FAMILIES[role]
    sealed = [replace(scenario, truth=seal(scenario.truth)) for scenario in scenarios]
    assert WORD in json.dumps([s.truth for s in sealed]) or str(NUMBER) in json.dumps(
        [s.truth for s in sealed]
    )
    player = Player(role, scenarios)
    judge = replace(family, verify=lambda scenario, text: family.verify(original[scenario.key], text))
    monkeypatch.setitem(FAMILIES, role, judge)
    episodes = asyncio.run(
        play_solos(
            sealed,
            policy=role,
            engine=player,
            chat=CHAT,
            sampling=Sampling(max_completion_tokens=2000),
            stream="truth",
            max_turns=12,
        )
    )
    shown = "\n".join(player.asked)
    assert len(player.asked) >= 2 * num_episodes
    assert shown.count("<|tool|>") >= num_episodes
    assert WORD not in shown
    assert str(NUMBER) not in shown
    assert all(episode.verdict.reward == 1.0 for episode in episodes[::2])
    assert sum(episode.trajectory.num_valid_tool_calls for episode in episodes[1::2]) > num_episodes / 4
