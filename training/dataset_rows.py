"""One demonstration as a row of a data folder: coordinates, brief, chat, tools, answer. Pure functions.

A role family gives one row per scenario, the team family one per seat. Rows hold no truth and no baselines.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios import team
from scenarios.base import Family, Scenario, Split, Step, Verdict
from scenarios.registry import FAMILIES
from training.data import expert_episode

TEAM = "team"
COLUMNS = {
    "key": str,  # family/split/seed/index/difficulty
    "family": str,
    "split": str,
    "seed": int,
    "index": int,
    "difficulty": int,
    "role": str,  # who answers
    "brief": str,
    "messages": str,  # JSON: the whole chat, tool calls and true observations included
    "tools": str,  # JSON: signatures in the `tools=` format of chat templates
    "answer": str,  # JSON: the final answer alone
}
Row = dict[str, Any]
Message = dict[str, Any]


def check_families(families: Sequence[str]) -> tuple[str, ...]:
    """The families in registry order, all of them for an empty selection.

    Raises:
        UserError: unknown or repeated family.
    """
    known = [*FAMILIES, TEAM]
    for family in families:
        if family not in known:
            raise unknown("family", family, known)
    if len(set(families)) != len(families):
        raise UserError(f"families {', '.join(families)}: one is named twice")
    return tuple(family for family in known if not families or family in families)


def build_rows(family: str, split: Split, seed: int, index: int, difficulty: int) -> list[Row]:
    """The rows of one scenario: one of a role family, one per seat of the team family.

    Raises:
        RuntimeError: the oracle's own answer does not score 1 (a bug of the family).
    """
    if family == TEAM:
        return list(_build_seat_rows(team.generate(split, seed, index, difficulty)))
    scenario = FAMILIES[family].generate(split, seed, index, difficulty)
    return [_build_role_row(FAMILIES[family], scenario)]


def _build_role_row(family: Family, scenario: Scenario) -> Row:
    role = ROLES[family.role]
    steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    _require_gold(family.verify(scenario, steps[-1].text), scenario.key)
    messages = [*_open(role.name, scenario.brief), *_play(family, scenario, steps)]
    tools = [tool.as_chat_tool() for tool in role.tools]
    return _row(scenario, role.name, scenario.brief, messages, tools, family.solve(scenario))


def _play(family: Family, scenario: Scenario, steps: Sequence[Step]) -> Iterator[Message]:
    for step in steps:
        if step.call is None:
            yield {"role": "assistant", "content": step.text}
            continue
        function = {"name": step.call.name, "arguments": dict(step.call.arguments)}
        call = {"type": "function", "function": function}
        yield {"role": "assistant", "content": step.text, "tool_calls": [call]}
        observation = family.call_tool(scenario, step.call)
        yield {"role": "tool", "name": step.call.name, "content": observation}


def _build_seat_rows(scenario: team.TeamScenario) -> Iterator[Row]:
    reports, brief, decision_step, votes = expert_episode(scenario)
    parsed = {role: team.parse_report(scenario, step.text) for role, step in reports.items()}
    decision = team.parse_decision(scenario, decision_step.text)
    vote_brief = team.vote_brief(decision)
    for role, seat in scenario.seats.items():
        report = parsed[role]
        _require_gold(team.verify_report(scenario, role, reports[role].text), scenario.key)
        _require_gold(team.verify_vote(scenario, role, decision, votes[role].text), scenario.key)
        messages = [
            *_open(role, seat.brief),
            {"role": "assistant", "content": reports[role].text},
            {"role": "user", "content": vote_brief},
            {"role": "assistant", "content": votes[role].text},
        ]
        yield _row(scenario, role, seat.brief, messages, [], report.model_dump() if report else None)
    _require_gold(team.verify_decision(scenario, parsed, decision_step.text), scenario.key)
    messages = [*_open(RECONCILER, brief), {"role": "assistant", "content": decision_step.text}]
    yield _row(scenario, RECONCILER, brief, messages, [], decision.model_dump() if decision else None)


def _open(role: str, brief: str) -> list[Message]:
    return [{"role": "system", "content": ROLES[role].mandate}, {"role": "user", "content": brief}]


def _require_gold(verdict: Verdict, key: str) -> None:
    if verdict.reward < 1 - 1e-9:
        raise RuntimeError(f"{key}: the oracle's answer scores {verdict.reward}: {verdict.explanation}")


def _row(
    scenario: Scenario | team.TeamScenario,
    role: str,
    brief: str,
    messages: list[Message],
    tools: list[Any],
    answer: Any,
) -> Row:
    return {
        "key": scenario.key,
        "family": scenario.family,
        "split": scenario.split,
        "seed": scenario.seed,
        "index": scenario.index,
        "difficulty": scenario.difficulty,
        "role": role,
        "brief": brief,
        "messages": json.dumps(messages),
        "tools": json.dumps(tools),
        "answer": json.dumps(answer),
    }
