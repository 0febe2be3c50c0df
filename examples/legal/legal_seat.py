"""Legal's seat in a team case: what each option's contracts are worth to it, drawn from the case's key."""

import random

from legal_role import ROLE

from scenarios.team import TeamScenario, with_seat

MOST_DRAWS = 100


def seat_legal(case: TeamScenario) -> TeamScenario:
    """The case with Legal at the table; its limit rules out the option that is worth least to it."""
    rng, reason = random.Random(f"legal/{case.key}"), ValueError()
    for _ in range(MOST_DRAWS):
        worth = dict(zip(case.options, rng.sample(range(10, 100), len(case.options)), strict=True))
        facts = {"utilities": worth, "stakes": rng.choice((15, 90)), "limit": sorted(worth.values())[1]}
        try:
            return with_seat(case, ROLE, facts)
        except ValueError as error:  # two options would be best: draw again
            reason = error
    raise reason
