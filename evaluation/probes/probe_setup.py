"""The setup of a probe: sealed cases, one engine for all teams, parts of an episode, adversaries."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.registry import ROLES
from roles.team import NO_OPTION, RECONCILER, Decision, Report
from scenarios.team import PlanGame, PlayableCase, TeamScenario, decision_value
from scenarios.team.experts import make_offer
from scenarios.team.funding import list_all_fundings
from simulator.agents.scripted_policies import ReadTable, list_specialists, reconciler_policy, seat_policy
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import SeededPolicy
from simulator.game import MakeGame
from simulator.graph.runner import MAX_TURNS, play_decisions, play_episodes
from simulator.graph.seating import Seating
from simulator.reading import ReadEpisode, read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

Team = Mapping[str, str]  # role -> policy of the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedVote:
    """A decision that nobody made, put to the vote of one seat, and the reports that it stands on.

    Example: ForcedVote(scenario=case, role="coo", decision=Decision(option="B", fund=[], escalate=False),
                        reports={})
    """

    scenario: TeamScenario
    role: str
    decision: Decision
    reports: Mapping[str, Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSetup:
    """Sealed cases and who serves the policies. Greedy by default: what changes is then caused by the probe.

    Example: ProbeSetup(scenarios=cases, engine=engine, chat=chat, weights=weights).play(team, "home")
    """

    scenarios: Sequence[TeamScenario]
    engine: Engine
    chat: Chat
    weights: TeamRewardWeights
    make_game: MakeGame = PlanGame
    max_completion_tokens: int = 1200
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
                make_game=self.make_game,
            )
        )
        return _sound(episodes)

    def rewards(self, episodes: Sequence[Episode]) -> list[float]:
        """Team reward of each case's episode."""
        pairs = zip(self.scenarios, episodes, strict=True)
        return [score_episode(scenario, episode, self.weights).reward for scenario, episode in pairs]

    def decide(self, team: Team, reports: Sequence[Mapping[str, str]], label: str) -> list[ReadEpisode]:
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
                make_game=self.make_game,
            )
        )
        pairs = zip(self.scenarios, _sound(episodes), strict=True)
        return [read_episode(scenario, episode) for scenario, episode in pairs]

    def values(self, decided: Sequence[ReadEpisode]) -> list[float]:
        """V of one decision per case."""
        pairs = zip(self.scenarios, decided, strict=True)
        return [decision_value(scenario, read.table, read.decision) for scenario, read in pairs]

    def vote(self, team: Team, asked: Sequence[ForcedVote], label: str) -> list[str | None]:
        """Votes on decisions that nobody made, after the seat's own report; None for one that is none."""

        async def ask(place: int, one: ForcedVote) -> str | None:
            game = self.make_game(one.scenario)
            seating = Seating(
                team=team,
                engine=self.engine,
                chat=self.chat,
                sampling=self._sampling(),
                stream="",
                max_turns=MAX_TURNS,
                roles=ROLES,
                make_game=self.make_game,
            )
            session = f"diagnose/{label}/{place}/{one.scenario.key}"
            agent = seating.make_agents(one.scenario, game, session)[one.role]
            brief = seating.open_case(one.scenario, game, rounds=1)["briefs"][one.role]
            await agent.answer(brief)
            reports = {
                seat: game.read_report(seat, report.model_dump_json()) for seat, report in one.reports.items()
            }
            decision = one.decision.model_dump(mode="json")
            text = await agent.answer(game.write_vote_brief(decision, one.role, reports))
            agent.trajectory()  # gives the session back
            vote = game.read_vote(text)
            return None if vote is None else str(vote["vote"])

        async def ask_all() -> list[str | None]:
            return list(await asyncio.gather(*(ask(place, one) for place, one in enumerate(asked))))

        return asyncio.run(ask_all())

    def _sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_completion_tokens=self.max_completion_tokens)


def seats_of(scenarios: Sequence[TeamScenario]) -> list[str]:
    """Return every specialist that sits in any case, in order."""
    return list(dict.fromkeys(role for scenario in scenarios for role in scenario.seats))


def _sound(episodes: Sequence[Episode]) -> list[Episode]:
    errors = [episode.error for episode in episodes if episode.error is not None]
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(episodes)} episodes failed, the first: {errors[0]}")
    return list(episodes)


_OTHER_VOTE = {"accept": "object", "object": "accept"}


def adversary_team(scenarios: Sequence[PlayableCase]) -> dict[str, SeededPolicy]:
    """An adversary for every seat of these scenarios and the reconciler's, each under its role's name."""
    seats = {role: adversary_specialist(scenarios, role) for role in list_specialists(scenarios)}
    return {**seats, RECONCILER: reconciler_policy(decide_worst)}


def adversary_specialist(scenarios: Sequence[PlayableCase], role: str) -> SeededPolicy:
    """Offers its dearest parts at their true price, names no limit, and votes against the book."""

    def report(case: PlayableCase, played: str, has_tools: bool, rng: random.Random) -> str:
        return gild_report(case, role).model_dump_json()

    honest = seat_policy(scenarios, role, report)

    def speak(transcript: str, rng: random.Random) -> str:
        text = honest(transcript, rng)
        answer = json.loads(text)
        return json.dumps({"vote": _OTHER_VOTE[answer["vote"]]}) if "vote" in answer else text

    return speak


def gild_report(case: PlayableCase, seat: str) -> Report:
    """On every option the dearest part that keeps the limit; not a word of the limit."""
    offers = []
    for option in case.options:
        keeping = [part for part in case.parts_of(seat, option) or () if part.keeps_limit and part.choice]
        if keeping:
            offers.append(make_offer(max(keeping, key=lambda part: (part.cost, -part.worth))))
    return Report(offers=offers, needs=[], veto=[])


def decide_worst(table: ReadTable, _rng: random.Random) -> Decision:
    """The plan of the least worth that can be run by the reports; escalates where there is none."""
    plans = list_all_fundings(table.public, table.reports)
    if not plans:
        return Decision(option=NO_OPTION, fund=[], escalate=True)
    worst = min(plans, key=lambda plan: plan.worth)
    return Decision(option=worst.option, fund=[offer.label for offer in worst.offers], escalate=False)
