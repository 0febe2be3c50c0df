"""Tools at the table: `total` and `sheet` of ReconcileGPT, computed from the reports alone."""

from collections.abc import Mapping
from typing import Any

from roles.base import Tool
from scenarios.base import ToolCall, ToolError
from scenarios.table.funding import Funding, PublicCase, find_obstacle, fund_in_order, make_funding
from scenarios.table.offers import Table, offers_on

TOTAL = Tool(
    name="total",
    description="Cost and worth of one option with the named offers funded, and whether it can be run.",
    parameters={
        "type": "object",
        "properties": {
            "option": {"type": "string", "description": "letter of the option"},
            "fund": {
                "type": "array",
                "items": {"type": "string"},
                "description": "labels of offers, as the table shows them",
            },
        },
        "required": ["option", "fund"],
        "additionalProperties": False,
    },
)
SHEET = Tool(
    name="sheet",
    description="Per option: its offers funded one after the other by worth per k$ while money lasts.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)
RECONCILER_TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in (TOTAL, SHEET)}


def call_reconciler_tool(public: PublicCase, table: Table, call: ToolCall) -> str:
    """The observation of one call, from the reports alone.

    Raises:
        ToolError: unknown tool, option or label, or arguments of another form.
    """
    if call.name == "sheet":
        if call.arguments:
            raise ToolError("sheet takes no arguments")
        return "\n".join(_sheet_line(public, table, option) for option in public.base)
    if call.name != "total":
        raise ToolError(f"unknown tool {call.name!r} (known: {', '.join(RECONCILER_TOOLS)})")
    option, fund = _read_total(call.arguments)
    if option not in public.base:
        raise ToolError(f"unknown option {option!r} (options: {' '.join(public.base)})")
    offers = {offer.label: offer for offer in offers_on(table, option)}
    for label in fund:
        if label not in offers:
            raise ToolError(f"{label!r} has no offer on {option} (offers: {' '.join(offers) or 'none'})")
    chosen = [offers[label] for label in dict.fromkeys(fund)]
    if len({offer.seat for offer in chosen}) != len(chosen):
        raise ToolError("at most one offer of a seat can be funded")
    obstacle = find_obstacle(public, table, option, chosen)
    text = _describe(make_funding(public, option, chosen), public.budget)
    return text if obstacle is None else f"{text}; cannot be run: {obstacle}"


def _read_total(arguments: Mapping[str, Any]) -> tuple[str, list[str]]:
    option, fund = arguments.get("option"), arguments.get("fund")
    if set(arguments) != {"option", "fund"} or not isinstance(option, str) or not isinstance(fund, list):
        raise ToolError('total takes {"option": LETTER, "fund": [LABEL, ...]}')
    if not all(isinstance(label, str) for label in fund):
        raise ToolError("fund must be a list of labels")
    return option, fund


def _describe(plan: Funding, budget: int) -> str:
    return f"cost {plan.cost} of {budget}, worth {plan.worth}"


def _sheet_line(public: PublicCase, table: Table, option: str) -> str:
    plan = fund_in_order(public, table, option, by_return=True)
    if plan is None:
        return f"{option} cannot be run"
    fund = " ".join(offer.label for offer in plan.offers) or "nothing"
    return f"{option} fund {fund}: {_describe(plan, public.budget)}"
