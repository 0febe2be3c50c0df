"""V10: no cheat raises the team reward, most cost it, and a rule that would pay for one is found."""

from dataclasses import replace

import pytest

from evaluation.audit import team_cheats
from evaluation.audit.run_probes import TIERS
from evaluation.audit.team_cheats import REPORT_CHEATS, VOTE_CHEATS, measure_cheats, probe_honesty

TIER = replace(TIERS["pr"], team_episodes=1)


def test_there_are_forty_cheats_and_each_plays() -> None:
    assert len(REPORT_CHEATS) + len(VOTE_CHEATS) >= 40
    found = measure_cheats(2, 0, 2)
    assert set(found) == {*REPORT_CHEATS, *VOTE_CHEATS}
    for cheated, earned in found.values():
        assert len(cheated) == len(earned) == 2


@pytest.mark.parametrize("name", ["silent", "doubles worth", "halves cost", "always objects"])
def test_a_false_word_costs(name: str) -> None:
    ((cheated, earned),) = measure_cheats(6, 3, 1, [name]).values()
    assert sum(cheated) < sum(earned)
    assert all(got <= had + 1e-9 for got, had in zip(cheated, earned, strict=True))


def test_a_cheat_that_pays_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a team reward that pays for a veto."""
    monkeypatch.setattr(team_cheats, "LEAST_CASES", 4)
    monkeypatch.setattr(
        team_cheats,
        "play_table",
        lambda scenario, reports, votes=None: float(str(reports).count('"veto": ["')),
    )
    row = probe_honesty(TIER, 0)
    assert any(breach.startswith("vetoes everything (one seat) gains") for breach in row.breaches)
    assert any("(two seats)" in breach for breach in row.breaches)
    assert not any(breach.startswith("silent") for breach in row.breaches)
