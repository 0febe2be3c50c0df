"""The setup of a probe: sealed cases, one engine for all teams, and ways to play parts of an episode."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roles.registry import ROLES
from roles.team import RECONCILER, Decision, SpecialistReport
from scenarios.team import TeamScenario, decision_value, parse_decision, vote_brief
from simulator.agents.agent import Agent
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.graph.runner import play_decisions, play_episodes
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

Team = Mapping[str, str]  # role -> policy of the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSetup:
    """Sealed cases and who serves the policies. Greedy by default: what changes is then caused by the probe.

    Example: ProbeSetup(scenarios=cases, engine=engine, chat=chat, weights=weights).play(team, "home")
    """

    scenarios: Sequence[TeamScenario]
    engine: Engine
    chat: Chat
    weights: TeamRewardWeights
    max_completion_tokens: int = 256
    temperature: float = 0.0
    rounds: int = 1

    def play(self, team: Team, label: str) -> list[Episode]:
        """One whole episode per case.

        Raises:
            RuntimeError: an engine failed; what is measured would be of fewer cases.
        """
        episodes = asyncio.run(
            play_episodes(
                self.scenarios,
                team,
                self.engine,
                self.chat,
                self._sampling(),
                rounds=self.rounds,
                concurrency=max(1, len(self.scenarios)),
                stream=f"diagnose/{label}",
            )
        )
        return _sound(episodes)

    def rewards(self, episodes: Sequence[Episode]) -> list[float]:
        """Team reward of each case's episode."""
        pairs = zip(self.scenarios, episodes, strict=True)
        return [score_episode(scenario, episode, self.weights).reward for scenario, episode in pairs]

    def decide(self, team: Team, reports: Sequence[Mapping[str, str]], label: str) -> list[Decision | None]:
        """ReconcileGPT's decision on given reports, one set per case; "" stands for no report."""
        sets = [
            (scenario, Episode(
                scenario_key=scenario.key,
                index_in_group=0,
                trajectories={},
                reports=dict(of_case),
                decision="",
                votes={},
            ))
            for scenario, of_case in zip(self.scenarios, reports, strict=True)
        ]  # fmt: skip
        episodes = asyncio.run(
            play_decisions(
                sets,
                team,
                self.engine,
                self.chat,
                self._sampling(),
                num_decisions=1,
                with_votes=False,
                concurrency=max(1, len(sets)),
                stream=f"diagnose/{label}",
            )
        )
        pairs = zip(self.scenarios, _sound(episodes), strict=True)
        return [parse_decision(scenario, episode.decision) for scenario, episode in pairs]

    def values(self, decisions: Sequence[Decision | None]) -> list[float]:
        """V of one decision per case."""
        pairs = zip(self.scenarios, decisions, strict=True)
        return [decision_value(scenario, decision) for scenario, decision in pairs]

    def vote(self, team: Team, asked: Sequence[tuple[TeamScenario, str, Decision]], label: str) -> list[str]:
        """Votes on decisions that nobody made, after the specialist's own report: (case, role, decision)."""

        async def ask(place: int, scenario: TeamScenario, role: str, decision: Decision) -> str:
            agent = Agent(
                role=ROLES[role],
                policy=team[role],
                engine=self.engine,
                chat=self.chat,
                sampling=self._sampling(),
                session=f"diagnose/{label}/{place}/{scenario.key}/{role}",
            )
            await agent.answer(scenario.seats[role].brief)
            text = await agent.answer(vote_brief(decision))
            agent.trajectory()  # gives the session back
            return text

        async def ask_all() -> list[str]:
            return list(await asyncio.gather(*(ask(place, *one) for place, one in enumerate(asked))))

        return asyncio.run(ask_all())

    def on(self, scenarios: Sequence[TeamScenario]) -> "ProbeSetup":
        """Return the same setup on other cases."""
        return replace(self, scenarios=scenarios)

    def _sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_completion_tokens=self.max_completion_tokens)


def write_report(report: SpecialistReport) -> str:
    """Return a report as text that every chair can read."""
    return json.dumps(report.model_dump())


def seats_of(scenarios: Sequence[TeamScenario]) -> list[str]:
    """Return every specialist that sits in any case, in order."""
    return list(dict.fromkeys(role for scenario in scenarios for role in scenario.seats))


def with_role(team: Team, role: str, policy: str) -> dict[str, str]:
    """Return the team with another policy in one seat."""
    return {**team, role: policy}


def split_teams(specialists: Team, chair: Team) -> dict[str, str]:
    """Specialists of one team under the chair of another."""
    return {**specialists, RECONCILER: chair[RECONCILER]}


def _sound(episodes: Sequence[Episode]) -> list[Episode]:
    errors = [episode.error for episode in episodes if episode.error is not None]
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(episodes)} episodes failed, the first: {errors[0]}")
    return list(episodes)
