"""Puts what cases, models and people wrote into words: visible text, answers, tool calls, conflicts, titles.

Model text is untrusted: control characters are made visible, nothing in it is evaluated; pages escape HTML.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from roles.base import AnswerError, Role, parse_strict_json, split_answer
from scenarios.base import ToolCall
from scenarios.team import PlayableCase, TeamScenario
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, SHARE_HABITS
from scenarios.written.written_case import FreeCase
from simulator.conflicts import Conflict
from simulator.tool_calls import BadToolCallError, parse_tool_calls

MAX_SHOWN_CHARS = 2_000  # of one text
MAX_BRIEF_CHARS = 10_000
NOTHING = "(nothing)"
HABITS = frozenset({*REPORT_HABITS, *SHARE_HABITS, *FUNDING_HABITS})  # words before an expert's answer
Tone = str  # "good", "bad", "warn" or "" for a badge


def visible(text: str, *, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Text with unprintable characters (control, bidirectional) spelled out, cut at `max_chars`."""
    shown = "".join(
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text[:max_chars]
    )
    hidden = len(text) - max_chars
    return f"{shown} ... ({hidden} more characters)" if hidden > 0 else shown


def find_shared_lines(briefs: Sequence[str]) -> list[str]:
    """Return the lines with which all briefs begin; none where there is one brief."""
    if len(briefs) < 2:
        return []
    rows = zip(*(brief.split("\n") for brief in briefs), strict=False)
    shared = [row[0] for row in itertools.takewhile(lambda row: len(set(row)) == 1, rows)]
    return shared if any(line.strip() for line in shared) else []


def as_written(text: str) -> str:
    """A text as it was written, or that there is none."""
    return visible(text.strip()) or NOTHING


def readable(text: str) -> str:
    """A written answer with its JSON object in words, then the rest; other text stays as written.

    The word by which a demonstrated expert announces its habit is called that.
    """
    if not text.strip():
        return NOTHING
    try:
        before, shown = split_answer(text)
        start, end = len(before), len(before) + len(shown) - 1
    except AnswerError:
        start, end = text.find("{"), text.rfind("}")
    try:
        answer = parse_strict_json(text[start : end + 1]) if 0 <= start < end else None
    except AnswerError:
        answer = None
    if not isinstance(answer, dict):
        return visible(text.strip())
    offers = answer.get("offers")
    lines = []
    if isinstance(offers, list) and offers and all(map(_is_offer, offers)):
        lines = [_say_offer(offer) for offer in answer.pop("offers")]
    said = ", ".join(f"{key} {_spoken(value)}" for key, value in answer.items() if value not in ("", []))
    words = "\n".join([*lines, *([said] if said or not lines else [])]) or "nothing"
    prose = " ".join(part.strip() for part in (text[:start], text[end + 1 :]) if part.strip())
    said_too = "names its habit" if prose in HABITS else "also wrote"
    return visible(f"{words}\n{said_too}: {prose}" if prose else words)


def _is_offer(value: Any) -> bool:
    is_named = isinstance(value, dict) and set(value) == {"option", "part", "cost", "worth"}
    return is_named and isinstance(value["part"], list)


def _say_offer(offer: Mapping[str, Any]) -> str:
    part = " + ".join(map(str, offer["part"]))
    return f"{offer['option']}: {part}, cost {offer['cost']}, worth {offer['worth']}"


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(str, value)) or "none"
    if _is_offer(value):
        return _say_offer(value)
    if isinstance(value, dict) and set(value) == {"seat", "option", "cost_at_most"}:
        return "{seat} for another offer on {option} that costs at most {cost_at_most}".format_map(value)
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def join_words(words: Sequence[str]) -> str:
    """ "A, B and C"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def say_titles(names: Sequence[str], roles: Mapping[str, Role]) -> str:
    """Roles by their titles: "CTO and Risk"."""
    return join_words([roles[name].title if name in roles else visible(name) for name in names])


def find_title(case: PlayableCase) -> str:
    """Return the case's title in one line."""
    if isinstance(case, FreeCase):
        return visible(case.title)
    sector = case.sector.capitalize() if isinstance(case, TeamScenario) else "Company"
    return visible(f"{sector}: {' or '.join(option.name for option in case.public.options.values())}")


def say_conflict(conflict: Conflict, roles: Mapping[str, Role]) -> tuple[bool, str]:
    """Return whether the conflict breaks a hard limit, and a sentence that states it."""

    def say(names: Sequence[str], verb: str) -> str:
        return f"{say_titles(names, roles)} {verb if len(names) > 1 else verb + 's'}"

    who = f"{say(conflict.wanted_by, 'favour')} {conflict.option}"
    if conflict.over_budget:
        who += f", whose offers together are {conflict.over_budget} k$ over the budget"
    if not conflict.is_hard:
        return False, f"{who}."
    return True, f"{who}; {say(conflict.ruled_out_by, 'rule')} it out."


def say_call(text: str) -> str:
    """Return a turn with a tool call as "measure(option=B, part=[spare gateway])"."""
    try:
        calls = parse_tool_calls(text)
    except BadToolCallError as error:
        return visible(f"a call that is none ({error}): {text}")
    return visible("; ".join(map(_say_one_call, calls)) if calls else text.strip())


def _say_one_call(call: ToolCall) -> str:
    def plain(value: object) -> str:
        return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)

    return f"{call.name}({', '.join(f'{name}={plain(value)}' for name, value in call.arguments.items())})"
