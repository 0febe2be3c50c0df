"""Measures what one seat's policy reports at the table: role-local verdicts, no other seat plays."""

import asyncio
from collections.abc import Sequence

from roles.registry import ROLES
from scenarios.base import Verdict
from scenarios.team import TeamScenario
from scenarios.team.verdicts import verify_report
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating, list_roles


def score_reports(
    seat: str,
    scenarios: Sequence[TeamScenario],
    *,
    policy: str,
    engine: Engine,
    chat: Chat,
    make_game: MakeGame,
    max_completion_tokens: int,
    stream: str,
) -> list[Verdict]:
    """The verdict on the greedy report of `policy` in the seat, case by case.

    Rewards lie in [0, 1]: efficient offers, an offer wherever there is something to gain, needs and vetoes.
    """

    async def report(place: int, scenario: TeamScenario) -> Verdict:
        seating = Seating(
            team=dict.fromkeys(list_roles(scenario), policy),
            engine=engine,
            chat=chat,
            sampling=Sampling(temperature=0.0, max_completion_tokens=max_completion_tokens),
            stream=stream,
            max_turns=MAX_TURNS,
            roles=ROLES,
            make_game=make_game,
        )
        session, game = f"{stream}/{place}/{scenario.key}", make_game(scenario)
        agent = seating.make_agents(scenario, game, session)[seat]
        try:
            text = await agent.answer(seating.open_case(scenario, game, rounds=0)["briefs"][seat])
        finally:
            seating.end_sessions(scenario, session)
        return verify_report(scenario, seat, text)

    async def report_all() -> list[Verdict]:
        reports = [report(place, scenario) for place, scenario in enumerate(scenarios)]
        return list(await asyncio.gather(*reports))

    return asyncio.run(report_all())
