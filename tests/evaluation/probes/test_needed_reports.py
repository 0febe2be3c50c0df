"""The value of team decisions falls without any one report, at every band of difficulty."""

from dataclasses import replace

import pytest

from evaluation.probes import needed_reports
from scenarios import team
from scenarios.world.case import weigh


@pytest.mark.slow
def test_every_report_is_needed_at_every_band_of_difficulty() -> None:
    losses: dict[str, list[float]] = {"reports": [], "facts": []}
    for difficulty, chair, found in needed_reports.measure(80, (1, 5, 10)):
        assert all(found[role] < found["-"] for role in ("cto", "coo", "risk", "cost")), (difficulty, chair)
        losses[chair].append(needed_reports.mean_loss(found))
        if chair == "facts":
            assert found["-"] == 1.0
    assert all(loss >= needed_reports.LEAST_LOSS for values in losses.values() for loss in values)


def test_a_seat_without_stakes_and_limit_is_not_needed() -> None:
    case = team.generate("test", 0, 0, 3)
    silent = {**case.seats["risk"].facts, "stakes": 0, "limit": 10}
    seats = {**case.seats, "risk": replace(case.seats["risk"], facts=silent)}
    truth = weigh({role: seat.facts for role, seat in seats.items()})
    case = replace(case, seats=seats, truth=truth)
    assert needed_reports.decide_by_facts(case, "risk") == needed_reports.decide_by_facts(case, "-")
