"""Tools at the table: describe and measure of a specialist's own parts, total and sheet of ReconcileGPT."""

from collections.abc import Mapping
from typing import Any

from roles.part import TOOLS
from roles.reconcile import SHEET, TOTAL
from scenarios.base import ToolCall, ToolError
from scenarios.company.records import Part
from scenarios.team.funding import Funding, find_obstacle, fund_in_order, list_favoured, make_funding
from scenarios.team.listed_seat import is_listed
from scenarios.team.offers import Table, find_part, list_upgrades, offers_on
from scenarios.team.playable import PlayableCase, PublicCase, Seat
from scenarios.team.texts.full import describe

RECONCILER_TOOLS = (TOTAL, SHEET)
SPECIALIST_TOOLS = TOOLS
_ARGUMENTS = {"describe": {"option"}, "measure": {"option", "part"}}


def has_tools(seat: Seat) -> bool:
    """Return whether there is anything that the seat could have described or measured."""
    return "structures" in seat.facts or is_listed(seat)


def call_specialist_tool(case: PlayableCase, seat: Seat, call: ToolCall) -> str | Part:
    """Return what describe says of an option, or the part that measure is asked about.

    Raises:
        ToolError: unknown tool or option, other arguments, no such part.
    """
    expected = _ARGUMENTS.get(call.name)
    if expected is None or not has_tools(seat):
        raise ToolError(f"unknown tool {call.name[:60]!r} (tools: {', '.join(_ARGUMENTS)})")
    if not isinstance(call.arguments, Mapping) or set(call.arguments) != expected:
        raise ToolError(f"arguments must be exactly: {' '.join(sorted(expected))}")
    option = call.arguments["option"]
    if not isinstance(option, str) or option not in case.options:
        raise ToolError(f"unknown option (options: {' '.join(case.options)})")
    if call.name == "describe":
        return describe(seat, option)
    names = call.arguments["part"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ToolError("part must be a list of names of upgrades")
    part = find_part(case, seat.role, option, names)
    if part is None:
        upgrades = ", ".join(list_upgrades(case, seat.role, option)) or "none"
        raise ToolError(f"part must list upgrades that can be bought together, out of: {upgrades}")
    return part


def call_reconciler_tool(public: PublicCase, table: Table, call: ToolCall) -> str:
    """The observation of one call, from the reports alone.

    Raises:
        ToolError: unknown tool, option or label, or arguments of another form.
    """
    if not isinstance(call.arguments, Mapping):
        raise ToolError("arguments must be a JSON object")
    if call.name == "sheet":
        if call.arguments:
            raise ToolError("sheet takes no arguments")
        return "\n".join([*write_sheet(public, table), write_favours(public, table)])
    if call.name != "total":
        raise ToolError(f"unknown tool {call.name!r} (known: total, sheet)")
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


def write_sheet(public: PublicCase, table: Table) -> list[str]:
    """A line per option: its offers funded by worth per k$ while money lasts, cost and worth."""
    return [_sheet_line(public, table, option) for option in public.options]


def write_favours(public: PublicCase, table: Table) -> str:
    """The options that each seat favours.

    Example: "favour: cto A, coo B, risk A B, cost B"
    """
    favours = [f"{seat} {' '.join(list_favoured(public, table, seat))}" for seat in public.seats]
    return f"favour: {', '.join(favours)}"


def _sheet_line(public: PublicCase, table: Table, option: str) -> str:
    plan = fund_in_order(public, table, option, by_return=True)
    if plan is None:
        return f"{option} cannot be run"
    fund = " ".join(offer.label for offer in plan.offers) or "nothing"
    return f"{option} fund {fund}: {_describe(plan, public.budget)}"
