"""A team scenario made again from its key: episodes are stored without facts and without truth."""

from roles.errors import UserError
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, SPLITS
from scenarios.team import TeamScenario, generate
from scenarios.team.scenario import FAMILY, MAX_OFFERS_PER_OPTION


def regenerate(key: str) -> TeamScenario:
    """The scenario of a key such as "team/test/0/7/2", or "team-2/test/0/7/2" of two offers per option.

    Raises:
        UserError: not the key of a generated team scenario.
    """
    parts = key.split("/")
    numbers = [int(part) for part in parts[2:] if part.isascii() and part.isdecimal() and len(part) <= 12]
    variants = {FAMILY: 1} | {f"{FAMILY}-{number}": number for number in range(2, MAX_OFFERS_PER_OPTION + 1)}
    if len(parts) != 5 or parts[0] not in variants or parts[1] not in SPLITS or len(numbers) != 3:
        raise UserError(f"{key[:80]!r} is not the key of a generated team scenario, like team/test/0/7/2")
    seed, index, difficulty = numbers
    if not MIN_DIFFICULTY <= difficulty <= MAX_DIFFICULTY:
        raise UserError(
            f"{key!r}: difficulty {difficulty} is not between {MIN_DIFFICULTY} and {MAX_DIFFICULTY}"
        )
    return generate(parts[1], seed, index, difficulty, variants[parts[0]])  # type: ignore[arg-type]  # one of SPLITS
