"""One demonstration as a row of a data folder: coordinates, brief, chat, tools, answer. Pure functions.

A role family gives one row per scenario, the team family one per seat. Rows hold no truth and no baselines.
"""

import json
import random
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

from roles.base import Role
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios import team
from scenarios.base import Family, Scenario, Split, Step, ToolCall, Verdict
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from training.data.demonstrations import expert_episode
from training.data.folders.columns import Message, store_messages, store_tools

TEAM = "team"
ALL = "all"  # every role family and the team, on the command line
SOLO_FAMILIES = ChainMap(FAMILIES, TASK_FAMILIES)  # of one role, or of one solver
SOLO_ROLES = ChainMap(ROLES, TASK_ROLES)  # by name; a solver is called like its family
ORACLE = "oracle"
Case = Scenario | team.TeamScenario
Row = dict[str, Any]


class OracleDisagreementError(RuntimeError):
    """The oracle's value and the second method's differ: a bug of the family."""


def check_families(families: Sequence[str]) -> tuple[str, ...]:
    """The families in registry order; role families and the team for `all` or an empty selection.

    Raises:
        UserError: unknown or repeated family, or others beside `all`.
    """
    known = [*FAMILIES, TEAM, *TASK_FAMILIES]
    for family in families:
        if family not in (*known, ALL):
            raise unknown("family", family, [*known, ALL])
    if len(set(families)) != len(families):
        raise UserError(f"families {', '.join(families)}: one is named twice")
    if ALL in families and len(families) > 1:
        raise UserError(f"families {', '.join(families)}: {ALL} stands alone")
    chosen = [*FAMILIES, TEAM] if not families or ALL in families else families
    return tuple(family for family in known if family in chosen)


def generate_case(family: str, split: Split, seed: int, index: int, difficulty: int) -> Case:
    """The scenario of a role family, of a task family or of the team."""
    generate = team.generate if family == TEAM else SOLO_FAMILIES[family].generate
    return generate(split, seed, index, difficulty)


def require_certificate(case: Case) -> None:
    """Compare the oracle's value with that of a second, independent method.

    Raises:
        OracleDisagreementError: they differ; names the scenario and both values.
    """
    if isinstance(case, Scenario):
        value, second = SOLO_FAMILIES[case.family].certify(case)
    else:
        value, second = team.certify_team(case)
    if value != second:
        raise OracleDisagreementError(f"{case.key}: the oracle says {value}, the second method {second}")


def build_rows(family: str, split: Split, seed: int, index: int, difficulty: int) -> list[Row]:
    """The rows of the scenario with these coordinates; see `describe_case`."""
    return describe_case(generate_case(family, split, seed, index, difficulty))


def describe_case(case: Case) -> list[Row]:
    """The rows of one scenario: one of a role family, one per seat of the team family.

    Raises:
        RuntimeError: the oracle's own answer does not score 1 (a bug of the family).
    """
    if isinstance(case, Scenario):
        return [_build_role_row(SOLO_FAMILIES[case.family], case)]
    return list(_build_seat_rows(case))


def _build_role_row(family: Family, scenario: Scenario) -> Row:
    role = SOLO_ROLES[family.role]
    steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    _require_gold(family.verify(scenario, steps[-1].text), scenario.key)
    messages = [*open_chat(role.name, scenario.brief), *_play(family, scenario, steps)]
    return make_row(scenario, role.name, scenario.brief, messages, list_tools(role), family.solve(scenario))


def _play(family: Family, scenario: Scenario, steps: Sequence[Step]) -> Iterator[Message]:
    for step in steps:
        observation = "" if step.call is None else family.call_tool(scenario, step.call)
        yield from write_turn(step.text, step.call, observation)


def write_turn(text: str, call: ToolCall | None, observation: str) -> Iterator[Message]:
    """An assistant turn, and what its tool call was answered if it has one."""
    if call is None:
        yield {"role": "assistant", "content": text}
        return
    function = {"name": call.name, "arguments": dict(call.arguments)}
    yield {"role": "assistant", "content": text, "tool_calls": [{"type": "function", "function": function}]}
    yield {"role": "tool", "name": call.name, "content": observation}


def list_tools(role: Role) -> list[dict[str, Any]]:
    """A role's tools as chat templates take them."""
    return [tool.as_chat_tool() for tool in role.tools]


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
            *open_chat(role, seat.brief),
            {"role": "assistant", "content": reports[role].text},
            {"role": "user", "content": vote_brief},
            {"role": "assistant", "content": votes[role].text},
        ]
        yield make_row(scenario, role, seat.brief, messages, [], report.model_dump() if report else None)
    _require_gold(team.verify_decision(scenario, parsed, decision_step.text), scenario.key)
    messages = [*open_chat(RECONCILER, brief), {"role": "assistant", "content": decision_step.text}]
    yield make_row(scenario, RECONCILER, brief, messages, [], decision.model_dump() if decision else None)


def open_chat(role: str, brief: str) -> list[Message]:
    """The messages that a role's chat begins with."""
    return [{"role": "system", "content": SOLO_ROLES[role].mandate}, {"role": "user", "content": brief}]


def _require_gold(verdict: Verdict, key: str) -> None:
    if verdict.reward < 1 - 1e-9:
        raise RuntimeError(f"{key}: the oracle's answer scores {verdict.reward}: {verdict.explanation}")


def make_row(
    scenario: Case,
    role: str,
    brief: str,
    messages: list[Message],
    tools: list[Any],
    answer: Any,
    author: str = ORACLE,
) -> Row:
    """A row of a data folder; its order of columns is that of `columns.SCHEMA`."""
    return {
        "key": scenario.key,
        "family": scenario.family,
        "split": scenario.split,
        "seed": scenario.seed,
        "index": scenario.index,
        "difficulty": scenario.difficulty,
        "role": role,
        "brief": brief,
        "messages": store_messages(messages),
        "tools": store_tools(tools),
        "answer": json.dumps(answer),
        "author": author,
    }
