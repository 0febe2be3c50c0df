"""The whole case for one agent that sits alone: facts and tools of every seat, one plan as the answer.

The control for a team: nothing is lost between seats. What it answers is written down as reports and a
decision, so that it is valued like a team's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer, AnswerError, Role, Tool, parse_answer
from roles.limits import ANSWER_RULES, MAX_LONE_CALLS, TOOL_RULES
from roles.team import MAX_REASON_CHARS, NO_OPTION, Decision, Reason, Report
from scenarios.base import Style, ToolCall, ToolError
from scenarios.company.domains import DOMAINS
from scenarios.company.records import Part
from scenarios.team.experts import make_offer
from scenarios.team.frontier import budget_band, code_parts
from scenarios.team.offers import check_report, find_part, is_needed, is_vetoed
from scenarios.team.playable import PlayableCase
from scenarios.team.texts import full, short
from scenarios.team.tools import SPECIALIST_TOOLS, call_specialist_tool

SINGLE = "single"
_EXAMPLE = '{"option": "B", "parts": {"cto": ["spare gateway"], "risk": ["key vault"]}, "escalate": false'
_SCHEMA = (
    'Answer with one JSON object and nothing after it. Its keys: `option`, the letter, or "none" to '
    "escalate; `parts`, for each seat of which you buy anything the list of names of what you buy on this "
    'option; `escalate`, true only where no option can be run within the budget (then `option` is "none" '
    f"and `parts` is {{}}); `reason`, one or two sentences ({MAX_REASON_CHARS} characters are kept), may be "
    f"left out. {ANSWER_RULES} Example of another case:\n"
    f'{_EXAMPLE}, "reason": "B with both parts is worth 71 at cost 38 of 40."}}'
)
_TOOLS_TEXT = (
    "Tools: describe(seat, option) shows everything that is known of the option in a seat's field; "
    "measure(seat, option, part) tells the exact figures, cost and worth of a part and whether the hard "
    "limit holds; total(option, parts) tells what a whole plan costs and is worth and whether it can be run. "
    f"You may call tools {MAX_LONE_CALLS} times in all. {TOOL_RULES}"
)


class SinglePlan(Answer):
    """The plan of an agent that decides alone.

    Example: SinglePlan(option="B", parts={"cto": ["spare gateway"]}, escalate=False, reason="...")
    """

    option: str  # an option, or "none" when it escalates
    parts: Annotated[dict[str, list[str]], Field(max_length=20)]  # seat -> names of what is bought
    escalate: bool
    reason: Reason = ""


@dataclass(frozen=True, slots=True)
class SingleGame:
    """One case as it is played alone, in one style of prompts.

    Example: SingleGame(generate("train", 0, 7, 2), "full").write_brief()
    """

    case: PlayableCase
    style: Style = "full"

    @property
    def prompt_role(self) -> Role:
        """The agent as its prompt introduces it; in `short` its one tool is `sheet`."""
        in_full = self.style == "full"
        tools = (*(_with_seat(tool, self.case) for tool in SPECIALIST_TOOLS), _total(self.case))
        return Role(
            name=f"{SINGLE}+{self.style}",
            title="One agent",
            mandate=self._write_system() if in_full else f"Choose and fund alone. Answer like {_EXAMPLE}}}",
            answer=SinglePlan,
            tools=tools if in_full else (_sheet(self.case),),
        )

    def _write_system(self) -> str:
        fields = [
            f"{full.title_of(seat)}. {DOMAINS[seat].rules}" for seat in self.case.seats if seat in DOMAINS
        ]
        return "\n\n".join(
            (
                "You decide alone how a company acts. You see what the specialists of every field would see.",
                full.PLAN_RULES,
                full.PART_RULES,
                "Rules of the figures, field by field.\n" + "\n".join(fields),
                _TOOLS_TEXT,
                _SCHEMA,
            )
        )

    def write_brief(self) -> str:
        """All that the seats read, seat by seat; in `short` every efficient part stands in it."""
        texts = full if self.style == "full" else short
        lines = [texts.write_public(self.case.public)]
        for name, seat in self.case.seats.items():
            title = f"{name} {budget_band(self.case, name)}"
            if self.style == "full":
                title = f"\n{full.title_of(name)} ({name})"
            lines += [title, *texts.write_seat_facts(self.case, seat, with_tools=self.style == "full")]
        return "\n".join(lines)

    def read(self, text: str) -> tuple[dict[str, Report], Decision]:
        """The plan as reports that offer just its parts, and the decision that funds them.

        Raises:
            AnswerError: malformed, an unknown option, seat or part, or a part that breaks its seat's limit.
        """
        plan = parse_answer(text, SinglePlan)
        if plan.escalate != (plan.option == NO_OPTION) or (plan.escalate and plan.parts):
            raise AnswerError("inconsistent", f"escalate goes with option {NO_OPTION} and no parts")
        parts = {} if plan.escalate else _find_parts(self.case, plan.option, plan.parts)
        reports = {
            seat: Report(offers=[make_offer(parts[seat])] if seat in parts else [], needs=[], veto=[])
            for seat in self.case.seats
        }
        most = self.case.public.offers_per_option
        labels = [seat if most == 1 else f"{seat}1" for seat in parts]
        decision = Decision(option=plan.option, fund=labels, escalate=plan.escalate, reason=plan.reason)
        return reports, decision

    def call_tool(self, call: ToolCall) -> str:
        """The observation of one call.

        Raises:
            ToolError: unknown tool, seat or option, other arguments, no such part.
        """
        arguments: dict[str, Any] = dict(call.arguments)
        if self.style == "short":
            return self._sheet(call.name, arguments)
        if call.name == "total":
            return self._total(arguments)
        seat = self.case.seats.get(str(arguments.pop("seat", "")))
        if seat is None:
            raise ToolError(f"seat must be one of {' '.join(self.case.seats)}")
        found = call_specialist_tool(self.case, seat, ToolCall(name=call.name, arguments=arguments))
        return full.write_measured(seat, found) if isinstance(found, Part) else found

    def _sheet(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Totals of the named parts on every option, as ReconcileGPT reads them of the same offers."""
        if name != "sheet" or set(arguments) != {"parts"} or not isinstance(arguments["parts"], dict):
            raise ToolError('the tool is sheet, and it takes {"parts": {SEAT: [CODE, ...]}}')
        named = arguments["parts"]
        if unknown := set(named) - set(self.case.seats):
            raise ToolError(f"seats are {' '.join(self.case.seats)}, not {' '.join(sorted(unknown))[:60]}")
        table = {}
        for seat in self.case.seats:
            coded = code_parts(self.case, seat)
            codes = named.get(seat, [])
            if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
                raise ToolError(f"parts of {seat} must be a list of codes")
            if strange := [code for code in codes if code not in coded]:
                raise ToolError(f"{seat} has no part {strange[0][:20]!r}")
            report = Report(
                offers=[make_offer(coded[code]) for code in codes],
                needs=[option for option in self.case.options if is_needed(self.case, seat, option)],
                veto=[option for option in self.case.options if is_vetoed(self.case, seat, option)],
            )
            table[seat] = check_report(self.case, seat, report)
        return short.write_decision_brief(self.case.public, table)

    def _total(self, arguments: Mapping[str, Any]) -> str:
        try:
            plan = parse_answer(json.dumps({**arguments, "escalate": False}), SinglePlan)
            parts = _find_parts(self.case, plan.option, plan.parts)
        except AnswerError as error:
            raise ToolError(str(error)) from None
        public = self.case.public
        bare = [
            seat for seat in self.case.seats if seat not in parts and _breaks(self.case, seat, plan.option)
        ]
        cost = sum(part.cost for part in parts.values())
        worth = public.base[plan.option] + sum(part.worth for part in parts.values())
        over = f"; cannot be run: {cost - public.budget} over the budget" if cost > public.budget else ""
        lacking = f"; cannot be run: the limit of {' '.join(bare)} breaks" if bare else ""
        return f"cost {cost} of {public.budget}, worth {worth}{over}{lacking}"


def _find_parts(case: PlayableCase, option: str, named: Mapping[str, list[str]]) -> dict[str, Part]:
    if option not in case.options:
        raise AnswerError("unknown_id", f"options are {' '.join(case.options)} {NO_OPTION}")
    parts = {}
    for seat, names in named.items():
        if seat not in case.seats:
            raise AnswerError("unknown_id", f"seats are {' '.join(case.seats)}")
        part = find_part(case, seat, option, names)
        if part is None:
            raise AnswerError("unknown_id", f"{seat} cannot buy this on {option}")
        if part.choice and not part.keeps_limit:
            raise AnswerError("infeasible", f"the part of {seat} breaks its own limit")
        if part.choice:
            parts[seat] = part
    return {seat: parts[seat] for seat in case.seats if seat in parts}


def _breaks(case: PlayableCase, seat: str, option: str) -> bool:
    """Return whether the seat's limit breaks where nothing is bought."""
    nothing = find_part(case, seat, option, [])
    return nothing is not None and not nothing.keeps_limit


def _with_seat(tool: Tool, case: PlayableCase) -> Tool:
    """The specialist's tool with the seat as one more argument."""
    seat = {"type": "string", "enum": list(case.seats)}
    parameters = {
        **tool.parameters,
        "properties": {"seat": seat, **tool.parameters["properties"]},
        "required": ["seat", *tool.parameters["required"]],
    }
    return Tool(name=tool.name, description=tool.description, parameters=parameters)


def _sheet(case: PlayableCase) -> Tool:
    codes = {"type": "array", "items": {"type": "string"}}
    return Tool(
        name="sheet",
        description="What these parts come to on every option, funded exactly, by return and by worth.",
        parameters={
            "type": "object",
            "properties": {"parts": {"type": "object", "properties": dict.fromkeys(case.seats, codes)}},
            "required": ["parts"],
            "additionalProperties": False,
        },
    )


def _total(case: PlayableCase) -> Tool:
    names = {"type": "array", "items": {"type": "string"}}
    return Tool(
        name="total",
        description="Cost and worth of a whole plan, and whether it can be run.",
        parameters={
            "type": "object",
            "properties": {
                "option": {"type": "string", "description": "letter of the option"},
                "parts": {"type": "object", "properties": dict.fromkeys(case.seats, names)},
            },
            "required": ["option", "parts"],
            "additionalProperties": False,
        },
    )
