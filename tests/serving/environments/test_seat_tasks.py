"""Seats as tasks: the reward is the team's, the best of the experts' answers is gold, nonsense nothing."""

import pytest

from serving.environments.plays import KINDS, ScenarioName, start_play
from serving.environments.seat_tasks import SEATS, draw_case, find_best_team, score_table


def name_seat(seat: str, index: int) -> ScenarioName:
    return ScenarioName(family=f"team_{seat}", split="train", seed=0, index=index, difficulty=3)


@pytest.mark.parametrize("seat", SEATS)
def test_a_seats_best_answer_is_worth_at_least_the_silence_of_that_seat(seat: str) -> None:
    family = KINDS[f"team_{seat}"].family
    gains = []
    for index in range(12):
        scenario = start_play(name_seat(seat, index)).scenario
        best, known = family.certify(scenario)
        assert best == known
        silent = '{"offers": [], "needs": [], "veto": [], "note": ""}'
        gains.append(best - family.verify(scenario, silent).reward)
        assert family.verify(scenario, "no JSON").reward == 0
    assert min(gains) >= 0 < max(gains)


def test_a_seat_is_paid_what_the_whole_table_earns() -> None:
    for index in range(6):
        case = draw_case("train", 0, index, 3)
        table = score_table(case, *find_best_team(case)).reward
        seats = [
            KINDS[f"team_{seat}"].family.certify(start_play(name_seat(seat, index)).scenario)[0]
            for seat in SEATS
        ]
        assert min(seats) > 0
        assert max(seats) <= 1
        assert table <= 1


def test_a_seats_tools_tell_its_own_parts() -> None:
    play = start_play(name_seat("cto", 1))
    assert [tool.name for tool in play.tools] == ["describe", "measure"]
    assert "Tools:" in play.messages[0]["content"] + play.messages[1]["content"]
    assert not play.call("describe", {"option": "A"}).startswith("error")
    assert play.call("describe", {"option": "Z"}).startswith("error: unknown option")
