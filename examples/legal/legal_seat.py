"""Legal's seat in a team case: what it could have funded on each option, drawn from the case's key."""

import random

from legal_role import ROLE

from scenarios.team import TeamScenario, with_seat

CLAUSES = ("escrow account", "liability cap", "exit clause")


def seat_legal(case: TeamScenario) -> TeamScenario:
    """The case with Legal at the table; one option breaks its limit without an escrow account."""
    rng = random.Random(f"legal/{case.key}")
    upgrades = {
        option: {name: {"cost": rng.randint(2, 8), "worth": rng.randint(3, 16)} for name in CLAUSES}
        for option in case.options
    }
    needed = {rng.choice(case.options): [CLAUSES[0]]}
    return with_seat(case, ROLE.name, {"upgrades": upgrades, "needs": needed})
