"""What small models read and learn at difficulties 1 and 2: published figures of trained teams rest on it."""

import hashlib
from collections.abc import Iterable

import pytest

from roles.registry import ROLES
from scenarios.base import Split
from scenarios.registry import SHORT_FAMILIES
from scenarios.team import PlanGame
from simulator.chat import PlainChat
from training.config.run_config import DataConfig
from training.data.demonstrations import demonstration_row, role_scenario, seat_row, team_scenario

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
NUM_CASES, DIFFICULTIES = 8, (1, 2)
DIGESTS = {
    "cto": "90b3d108e6ad9572",
    "coo": "7b39305f3a2d1e53",
    "risk": "823a53303bd4fefe",
    "cost": "5529884aa92f0213",
    "reconcile": "5b37d4e9f8ea1ecb",
    "team": "b3881ff7d4bfbb03",
}


def compute_digest(rows: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(str(row).encode())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("role", ROLES)
def test_role_families_stay_as_trained_teams_know_them(role: str) -> None:
    scenarios = [role_scenario(role, s, 0, i, DIFFICULTIES) for s in SPLITS for i in range(NUM_CASES)]
    rows = [demonstration_row(SHORT_FAMILIES[role], one, PlainChat()) for one in scenarios]
    assert compute_digest(rows) == DIGESTS[role]


def test_the_table_stays_as_trained_teams_know_it() -> None:
    cases = [team_scenario(DataConfig(), s, i, DIFFICULTIES) for s in SPLITS for i in range(NUM_CASES)]
    rows = [seat_row(role, PlanGame(case, "short"), PlainChat()) for case in cases for role in ROLES]
    assert compute_digest(rows) == DIGESTS["team"]
