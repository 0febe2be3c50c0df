"""One demonstration as a row of a data folder: its columns, and rows made from cases. Pure functions.

A role family gives one row per scenario, the team family one per seat. Rows hold no truth and no baselines.
`messages` is a list of structs, so that trainers see a conversation. The arguments of a call and the entries
of `tools` have another schema for every tool: they are JSON text, which `datasets.load_dataset` turns into
values again, as the data card's header declares it.
"""

import io
import json
import random
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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

TEAM = "team"
ALL = "all"  # every role family and the team, on the command line
SOLO_FAMILIES = ChainMap(FAMILIES, TASK_FAMILIES)  # of one role, or of one solver
SOLO_ROLES = ChainMap(ROLES, TASK_ROLES)  # by name; a solver is called like its family
ORACLE = "oracle"
Case = Scenario | team.TeamScenario
Message = dict[str, Any]  # as chat templates take it
Row = dict[str, Any]
_CALL = pa.struct(
    [("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))]
)
_MESSAGE = pa.struct(
    [("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("tool_calls", pa.list_(_CALL))]
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),  # family/split/seed/index/difficulty
        ("family", pa.string()),
        ("split", pa.string()),
        ("seed", pa.int64()),
        ("index", pa.int64()),
        ("difficulty", pa.int64()),
        ("domain", pa.string()),  # the sector that the case plays in; "" where it has none
        ("role", pa.string()),  # who answers
        ("brief", pa.string()),
        ("messages", pa.list_(_MESSAGE)),  # the whole chat, tool calls and true observations included
        ("tools", pa.list_(pa.string())),  # JSON: signatures in the `tools=` format of chat templates
        ("answer", pa.string()),  # JSON: the final answer alone
        ("author", pa.string()),  # who wrote it: "oracle", or "teacher:" and the model's name
    ]
)
COLUMNS: Mapping[str, type] = {
    field.name: str if field.type == pa.string() else int if field.type == pa.int64() else list
    for field in SCHEMA
}
_CHAT_FEATURES: Mapping[str, Any] = {
    "messages": [
        {"name": "role", "dtype": "string"},
        {"name": "content", "dtype": "string"},
        {"name": "name", "dtype": "string"},
        {
            "name": "tool_calls",
            "list": [
                {"name": "type", "dtype": "string"},
                {
                    "name": "function",
                    "struct": [{"name": "name", "dtype": "string"}, {"name": "arguments", "dtype": "json"}],
                },
            ],
        },
    ],
    "tools": "json",
}


def list_features() -> list[dict[str, Any]]:
    """The columns as `dataset_info.features` of a data card lists them."""
    dtypes = {str: "string", int: "int64"}
    return [
        {"name": name, "list": _CHAT_FEATURES[name]}
        if kind is list
        else {"name": name, "dtype": dtypes[kind]}
        for name, kind in COLUMNS.items()
    ]


def store_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A chat as its column holds it: absent keys are None, arguments of calls are JSON text."""
    return [
        {
            "role": message["role"],
            "content": message["content"],
            "name": message.get("name"),
            "tool_calls": _map_arguments(message.get("tool_calls"), json.dumps),
        }
        for message in messages
    ]


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The chat of a row, without absent keys.

    Raises:
        ValueError: arguments that are not JSON.
    """
    messages = [{**one, "tool_calls": _map_arguments(one.get("tool_calls"), json.loads)} for one in stored]
    return [{name: value for name, value in one.items() if value is not None} for one in messages]


def _map_arguments(calls: Sequence[Mapping[str, Any]] | None, change: Callable[[Any], Any]) -> Any:
    """The calls with changed arguments; None of a message without calls."""
    return calls and [
        {**call, "function": {**call["function"], "arguments": change(call["function"]["arguments"])}}
        for call in calls
    ]


def load_tools(stored: Sequence[str]) -> list[dict[str, Any]]:
    """The signatures of a row's tools."""
    return [json.loads(tool) for tool in stored]


def encode_shard(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A Parquet file of these rows; equal rows give equal bytes."""
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def read_text(row: Mapping[str, Any], column: str) -> str:
    """A text column's content, of chats and tools as JSON."""
    value = row[column]
    if column == "messages":
        return json.dumps(load_messages(value))
    return json.dumps(load_tools(value)) if column == "tools" else str(value)


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
        "domain": str(scenario.facts.get("sector", ""))
        if isinstance(scenario, Scenario)
        else scenario.sector,
        "role": role,
        "brief": brief,
        "messages": store_messages(messages),
        "tools": [json.dumps(tool) for tool in tools],
        "answer": json.dumps(answer),
        "author": author,
    }
