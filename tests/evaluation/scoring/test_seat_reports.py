"""Reports of one seat are scored by the seat's own verdict, as they are played at the table."""

from functools import partial

import pytest

from benchmarks.roles.seat_reports import score_reports
from scenarios.base import Style
from scenarios.team import PlanGame, generate
from scenarios.team.verdicts import verify_report
from simulator.agents.scripted_policies import oracle_specialist
from simulator.chat import PlainChat
from simulator.engines.scripted import ScriptedEngine, SeededPolicy

CASES = [generate("test", 0, index, 1 + index % 2) for index in range(6)]


@pytest.mark.parametrize("style", ["full", "short"])
@pytest.mark.parametrize("seat", ["cto", "cost"])
def test_experts_report_without_fault_and_silence_earns_nothing(seat: str, style: Style) -> None:
    experts: SeededPolicy = oracle_specialist(CASES, seat, habit="measured")
    chat = PlainChat()
    engine = ScriptedEngine(chat, {"silent": lambda _: ""}, seeded={"expert": experts})
    score = partial(
        score_reports,
        seat,
        CASES,
        engine=engine,
        chat=chat,
        make_game=partial(PlanGame, style=style),
        max_completion_tokens=20_000,
        stream="test",
    )
    assert [verdict.reward for verdict in score(policy="expert")] == [1.0] * len(CASES)
    assert score(policy="silent") == [verify_report(case, seat, "") for case in CASES]
