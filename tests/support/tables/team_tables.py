"""Engines and cases that several simulator tests share."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cache

from scenarios.team import TeamScenario, generate
from scenarios.team.playable import PlayableCase
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import PlainChat
from simulator.engines.base import Completion, CompletionRequest, Engine, Sampling
from simulator.engines.scripted import ScriptedEngine

CHAT = PlainChat()
SAMPLING = Sampling(max_completion_tokens=1200)
SEATS = ("cto", "coo", "risk", "cost")
TEAM = {role: role for role in (*SEATS, "reconcile")}


@cache
def draw_scenario(index: int) -> TeamScenario:
    return generate("train", 0, index, 1 + index % 3)


def draw_scenarios(count: int) -> list[TeamScenario]:
    return [draw_scenario(index) for index in range(count)]


def oracle_engine(
    scenarios: Sequence[PlayableCase], report_habit: str | None = None, funding_habit: str | None = None
) -> ScriptedEngine:
    experts = oracle_team(scenarios, report_habit=report_habit, funding_habit=funding_habit)
    return ScriptedEngine(CHAT, seeded=experts)


class WatchedEngine:
    """Passes calls on and keeps them; checks that sessions are append-only, one call at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: list[CompletionRequest] = []
        self.in_flight: Counter[str] = Counter()
        self.most_in_flight = 0
        self.open_sessions: dict[str, tuple[int, ...]] = {}
        self.ended: Counter[str] = Counter()

    async def complete(self, request: CompletionRequest) -> Completion:
        played = self.open_sessions.get(request.session, ())
        assert request.prompt_ids[: len(played)] == played, "not append-only"
        assert self.in_flight[request.session] == 0, "two calls at once in one session"
        self.requests.append(request)
        self.in_flight[request.session] += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight.total())
        try:
            await asyncio.sleep(0)
            completion = await self.engine.complete(request)
        finally:
            self.in_flight[request.session] -= 1
        self.open_sessions[request.session] = request.prompt_ids + completion.token_ids
        return completion

    def end_session(self, session: str) -> None:
        self.ended[session] += 1
        self.open_sessions.pop(session, None)

    def prompts(self, policy: str) -> list[str]:
        """Decoded prompts of one policy, in order."""
        return [CHAT.decode(request.prompt_ids) for request in self.requests if request.policy == policy]
