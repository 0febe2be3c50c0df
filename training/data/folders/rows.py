"""One demonstration as a row of a data folder: coordinates, brief, chat, tools, answer. Pure functions.

A role family gives one row per scenario, the team family one per seat. Rows hold no truth and no baselines.
"""

import json
import random
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from roles.base import Role, parse_answer
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES, Report
from scenarios import team
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, Verdict
from scenarios.company.optimum import recheck_optimum
from scenarios.company.setting import find_sector as company_sector
from scenarios.registry import FAMILIES, families
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.verdicts import verify_report
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


def generate_case(
    family: str, split: Split, seed: int, index: int, difficulty: int, style: Style = "full"
) -> Case:
    """The scenario of a role family in one style, of a task family or of the team."""
    if family == TEAM:
        return team.generate(split, seed, index, difficulty)
    return _find_family(family, style).generate(split, seed, index, difficulty)


def _find_family(name: str, style: Style) -> Family:
    return families(style)[name] if name in FAMILIES else SOLO_FAMILIES[name]


def require_certificate(case: Case) -> None:
    """Compare the oracle's value with that of a second, independent method.

    Raises:
        OracleDisagreementError: they differ; names the scenario and both values.
    """
    value: float | None
    second: float | None
    if isinstance(case, Scenario):
        value, second = SOLO_FAMILIES[case.family].certify(case)
    else:
        value, second = certify_team(case)
    if value != second:
        raise OracleDisagreementError(f"{case.key}: the oracle says {value}, the second method {second}")


def certify_team(case: team.TeamScenario) -> tuple[float | None, float | None]:
    """Worth of the best plan, and by dynamic programming over money; None where nothing can be run."""
    return None if case.optimum is None else case.optimum.worth, recheck_optimum(case.case)


def build_rows(
    family: str, split: Split, seed: int, index: int, difficulty: int, style: Style = "full"
) -> list[Row]:
    """The rows of the scenario with these coordinates; see `describe_case`."""
    return describe_case(generate_case(family, split, seed, index, difficulty, style), style)


def describe_case(case: Case, style: Style = "full") -> list[Row]:
    """The rows of one scenario: one of a role family, one per seat of the team family.

    Raises:
        RuntimeError: the oracle's own answer does not score 1 (a bug of the family).
    """
    if isinstance(case, Scenario):
        return [_build_role_row(_find_family(case.family, style), case, style)]
    return list(_build_seat_rows(case, style))


def _build_role_row(family: Family, scenario: Scenario, style: Style) -> Row:
    role = SOLO_ROLES[family.role]
    steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    _require_gold(family.verify(scenario, steps[-1].text), scenario.key)
    messages = [
        *write_opening(role, scenario.brief, style),
        *_play(partial(family.call_tool, scenario), steps),
    ]
    return make_row(scenario, role.name, scenario.brief, messages, list_tools(role), family.solve(scenario))


def _play(call_tool: Callable[[ToolCall], str], steps: Sequence[Step]) -> Iterator[Message]:
    for step in steps:
        observation = "" if step.call is None else call_tool(step.call)
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


def _build_seat_rows(scenario: team.TeamScenario, style: Style) -> Iterator[Row]:
    """One row per seat of an expert meeting."""
    game = team.PlanGame(scenario, style)
    meeting = hold_meeting(game)
    for name, said in meeting.messages.items():
        role, first = game.prompt_role(name), said[0]
        messages = write_opening(role, first.brief)
        for number, one in enumerate(said):
            messages += [{"role": "user", "content": one.brief}] if number else []
            messages += _play(partial(game.call_tool, name, reports=one.reports), one.steps)
        answer = meeting.decision
        if name != RECONCILER:
            report = first.steps[-1].text
            _require_gold(verify_report(scenario, name, report), scenario.key)
            answer = parse_answer(report, Report).model_dump()
        yield make_row(scenario, name, first.brief, messages, list_tools(role), answer)


def write_opening(role: Role, brief: str, style: Style = "full") -> list[Message]:
    """The messages that a chat begins with; in short style the system message is the role's title."""
    system = role.mandate if style == "full" else f"{role.title}."
    return [{"role": "system", "content": system}, {"role": "user", "content": brief}]


def count_roles(family: str) -> int:
    """Roles that play a case of the family, each with a row."""
    return len(TEAM_ROLES) if family == TEAM else 1


def find_domain(case: Case) -> str:
    """The sector that a case plays in; "" where it has none."""
    return str(case.facts.get("sector", "")) if isinstance(case, Scenario) else case.sector


def find_sector_rule(family: str) -> Callable[..., str] | None:
    """Return the function from a case's coordinates to its sector; None where cases have no sector."""
    return company_sector if family == TEAM else SOLO_FAMILIES[family].find_sector


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
        "domain": find_domain(scenario),
        "role": role,
        "brief": brief,
        "messages": store_messages(messages),
        "tools": store_tools(tools),
        "answer": json.dumps(answer),
        "author": author,
    }
