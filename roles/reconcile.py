"""ReconcileGPT: reads what the seats offer, chooses one option and funds offers on it, or escalates."""

from roles.base import Role, Tool
from roles.limits import ANSWER_RULES, TOOL_RULES
from roles.team import Decision

MAX_CALLS = 24  # of tools in one question

RULES = (
    "A plan is one option and at most one offer of each seat on it. It is worth the option's value before "
    "any spending plus the worth of the funded offers, in k$ a month. It costs what the funded offers cost. "
    "A plan can be run if it costs at most the budget, no seat vetoes its option, and every offer is funded "
    "that is marked as needed there; where a seat needs a part and offers none, the option cannot be run. "
    "The best plan is the one of the greatest worth that can be run; of equal worth the cheaper. Money that "
    "is left is worth nothing. Only if no option has a plan that can be run, the case is escalated to a "
    "person."
)
CONFLICTS = (
    "A seat favours the option on which the value before any spending plus the worth of its own offer is "
    "greatest; an option without an offer of the seat counts with its value alone, and of equal options the "
    "seat favours every one. The conflicts are the seats that favour only other options than the one chosen; "
    "there are none where the case is escalated."
)
SCHEMA = (
    'Answer with one JSON object and nothing after it. Its keys: option (the letter, or "none" to escalate), '
    "fund (labels of the funded offers on this option, in any order; [] where none is or the case is "
    "escalated), escalate (true or false), conflicts (names of seats, in any order, each once; [] for none); "
    f"reason (one or two sentences, not judged) may be left out. {ANSWER_RULES} Example of another case: "
    '{"option": "F", "fund": ["cto", "risk"], "escalate": false, "conflicts": ["coo"], '
    '"reason": "F with both offers is worth 71 at cost 38 of 40."}'
)
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
    description="Per option: its offers funded one after the other by worth per k$ while money lasts; per "
    "seat: the options that it favours.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)

ROLE = Role(
    name="reconcile",
    title="ReconcileGPT",
    mandate="\n".join(
        (
            "You are ReconcileGPT. The seats of a company have worked on the options that it can take and "
            "report what they would have funded on each. Their figures have been checked. You choose one "
            "option and the offers on it that are funded from one budget.",
            RULES,
            CONFLICTS,
            "Tools: total(option, fund) tells cost and worth of one plan and whether it can be run; sheet() "
            "funds, on every option, the needed offers first and then the others by worth per k$ while money "
            "lasts, which need not be the best plan, and names the options that each seat favours. You may "
            f"call tools {MAX_CALLS} times in all. {TOOL_RULES}",
            SCHEMA,
        )
    ),
    answer=Decision,
    tools=(TOTAL, SHEET),
    letter="M",
)
