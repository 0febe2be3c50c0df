"""What the whole jobs share: the frame of a case, the verdict on graded parts, the checks of a tool call.

A job draws candidates until one has a single best answer that its expert reaches in a stated number of
steps. Money is in k$ a year. Everything that an answer depends on stands in the brief or the mandate.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from roles.base import Role, Tool
from scenarios.base import Scenario, Split, ToolCall, ToolError, Verdict, check_coordinates, scenario_rng
from scenarios.company.sectors import SECTORS
from scenarios.company.sectors.sector import Sector
from scenarios.company.splits import belongs_to

MAX_TRIES = 2000
SETTLE_TRIES = 6
MAX_CALLS = 40  # of tools in one case
LIMITS_SHARE = 0.1  # of the reward, for the limits that an answer keeps
ESCALATION_SHARE = 0.08  # of the cases in which no answer keeps all limits
TRAP_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)  # by difficulty, of the other cases:
# those in which the rule of thumb is not optimal

Facts = dict[str, Any]


class NoCaseError(Exception):
    """A candidate that is no case: no single best answer, or too long a way to it."""


def draw_scenario(
    family: str,
    role: str,
    coordinates: tuple[Split, int, int, int],
    draw: Callable[[random.Random, Sector, int], Facts],
    settle: Callable[[Facts, int, bool, random.Random], tuple[dict[str, Any], int]],
    follow_rule: Callable[[Facts], dict[str, Any]],
    write_brief: Callable[[Facts], str],
) -> Scenario:
    """The scenario at these coordinates (split, seed, index, difficulty); a pure function of them.

    `draw(rng, sector, difficulty)` makes a candidate. `settle(facts, difficulty, escalates, rng)` sets its
    limits and returns its truth and the tool calls of its demonstration, or raises NoCaseError; it is tried
    SETTLE_TRIES times on a candidate. `follow_rule(facts)` is the answer by the family's
    rule of thumb; it is wrong in TRAP_SHARES of the cases that do not escalate.

    Raises:
        ValueError: coordinates out of range.
        RuntimeError: no case in MAX_TRIES candidates.
    """
    split, seed, index, difficulty = coordinates
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng(family, split, seed, index, difficulty)
    escalates = rng.random() < ESCALATION_SHARE
    is_trap = rng.random() < TRAP_SHARES[difficulty - 1]
    for _ in range(MAX_TRIES):
        sector = SECTORS[rng.choice(list(SECTORS))]
        frame = {"sector": sector.name, "company": rng.choice(sector.companies), "wording": rng.randrange(4)}
        facts = frame | draw(rng, sector, difficulty)
        if not belongs_to(split, [facts]):
            continue
        for _ in range(SETTLE_TRIES):
            try:
                truth, num_calls = settle(facts, difficulty, escalates, rng)
            except NoCaseError:
                continue
            by_rule = follow_rule(facts)
            if not escalates and is_trap == all(truth[key] == value for key, value in by_rule.items()):
                continue
            return Scenario(
                family=family,
                split=split,
                seed=seed,
                index=index,
                difficulty=difficulty,
                role=role,
                brief=write_brief(facts),
                facts=facts,
                truth=truth,
                optimal_tool_calls=num_calls,
            )
    raise RuntimeError(f"no {family} case of difficulty {difficulty} in {MAX_TRIES} candidates")


def find_sector_of(generate: Callable[..., Scenario]) -> Callable[..., str]:
    """Return the function from coordinates to the sector of a case."""

    def find_sector(split: Split, seed: int, index: int, difficulty: int) -> str:
        return str(generate(split, seed, index, difficulty).facts["sector"])

    return find_sector


def accept(
    kept: Mapping[str, bool],
    graded: Mapping[str, float],
    weights: Mapping[str, float],
    exact: bool,
    says: str,
) -> Verdict:
    """The verdict on an answer that keeps all limits: LIMITS_SHARE + weighted grades + the rest if exact."""
    reward = LIMITS_SHARE + sum(weights[name] * value for name, value in graded.items())
    return Verdict(
        reward=1.0 if exact else round(reward, 9),
        parts={**dict.fromkeys(kept, 1.0), **graded},
        exact=exact,
        feasible=True,
        explanation=says,
        failure=None if exact else "suboptimal",
    )


def refuse_limits(kept: Mapping[str, float], explanation: str) -> Verdict:
    """The verdict on an answer that breaks limits: LIMITS_SHARE times the mean of these parts."""
    parts = {name: float(value) for name, value in kept.items()}
    return Verdict(
        reward=round(LIMITS_SHARE * sum(parts.values()) / len(parts), 9),
        parts=parts,
        exact=False,
        feasible=False,
        explanation=explanation,
        failure="infeasible",
    )


def room_of_cost(cost: int, best: int, blind: tuple[int, int]) -> float:
    """Place of a cost between a blind feasible answer's (0) and the least (1).

    `blind` is the mean cost of the feasible answers as (sum, count).

    Example: room_of_cost(15, 10, (40, 2)) == 0.5
    """
    total, count = blind
    if cost <= best:
        return 1.0
    return max(0.0, (total - cost * count) / (total - best * count))


def read_call(call: ToolCall, tools: Mapping[str, type[BaseModel]]) -> BaseModel:
    """The arguments of a call as the schema of its tool.

    Raises:
        ToolError: unknown tool, or other arguments.
    """
    if call.name not in tools:
        raise ToolError(f"unknown tool; tools are {' '.join(tools)}")
    schema = tools[call.name]
    try:
        return schema.model_validate(call.arguments, strict=True)
    except ValueError:
        names = " ".join(schema.model_fields)
        raise ToolError(f"arguments must be exactly: {names}, with the types of the example") from None


def make_job_role(
    name: str, title: str, mandate: Sequence[str], answer: type[Any], tools: tuple[Tool, ...], letter: str
) -> Role:
    """The role of a whole job: its mandate is one paragraph per entry."""
    return Role(name=name, title=title, mandate="\n".join(mandate), answer=answer, tools=tools, letter=letter)


def join_words(words: Collection[str]) -> str:
    """Example: join_words(["a", "b", "c"]) == "a, b and c" """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
