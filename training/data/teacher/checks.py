"""The four checks that a teacher's play passes to become training data, each with its own reason.

tools    every call is of a tool that the role has, and the tool accepts it
answer   the final answer parses strictly and the verifier gives it the asked reward
chain    every figure was given by a tool before or stands in the brief, every other number was worked out
replay   the tools, asked again on the scenario made anew, say the same word for word
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roles.registry import ROLES
from scenarios.base import ToolCall, ToolError
from simulator.tool_calls import CLOSE, OPEN
from training.data.folders.columns import Message, load_messages, store_messages
from training.data.folders.rows import write_turn
from training.data.teacher.claims import FalseChainError, KnownNumbers
from training.data.teacher.lessons import Lesson

Reason = Literal["tools", "answer", "chain", "replay"]
EXACT = 1.0
TOLERANCE = 1e-9  # of a reward

_TOKEN = re.compile(r"\n|[A-Za-z][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|\S")
_IDENTIFIER = re.compile(r"[A-Z][0-9]{0,2}")
_FILLERS = frozenset(
    ["a", "an", "at", "are", "be", "for", "in", "is", "of", "option", "only", "the", "was", *":=(\"'*|$"]
)
_MOST_FILLERS = 8
_SENTENCE = re.compile(r"\n|[.;!?](?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTurn:
    """One assistant turn, and what its tool call was answered.

    Example: PlayedTurn(text="A no", call=ToolCall(name="measure", arguments={"option": "B"}),
                        observation="cost 67 latency 61 availability 86")
    """

    text: str
    call: ToolCall | None = None  # None in a turn that answers
    observation: str = ""
    asked: str = ""  # the message before this turn; "" where none stands between it and the turn before


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Fault of a play. Example: Rejection(reason="answer", detail="no final answer")"""

    reason: Reason
    detail: str


Check = Callable[[Lesson, Sequence[PlayedTurn], float], str | None]


def list_answers(turns: Sequence[PlayedTurn]) -> list[str]:
    """Answers in order: the turns without a call."""
    return [turn.text for turn in turns if turn.call is None]


def observe(lesson: Lesson, turns: Sequence[PlayedTurn], call: ToolCall) -> tuple[str, bool]:
    """Result of the tool after these turns, and whether it accepted the call."""
    try:
        return lesson.call_tool(list_answers(turns), call), True
    except ToolError as error:
        return f"error: {error}", False


def check_tools(lesson: Lesson, turns: Sequence[PlayedTurn], min_reward: float) -> str | None:
    """The first call that no tool of the role takes; None if all are taken."""
    known = [tool.name for tool in lesson.role.tools]
    for number, turn in enumerate(turns, start=1):
        if OPEN in turn.text or CLOSE in turn.text:
            return f"turn {number} writes {OPEN} into its words"
        if turn.call is None:
            continue
        if turn.call.name not in known:
            return f"turn {number} calls {turn.call.name[:40]!r}; the tools are {', '.join(known)}"
        observation, is_accepted = observe(lesson, turns[: number - 1], turn.call)
        if not is_accepted:
            return f"turn {number} calls {turn.call.name} in vain: {observation[:200]}"
    return None


def check_answer(lesson: Lesson, turns: Sequence[PlayedTurn], min_reward: float) -> str | None:
    """Objection of the verifier to the last turn; None from a reward of `min_reward` on."""
    answers = list_answers(turns)
    if not turns or turns[-1].call is not None or lesson.follow_up(answers) is not None:
        return "no final answer"
    verdict = lesson.verify(answers)
    if verdict.reward >= min_reward - TOLERANCE:
        return None
    return f"reward {verdict.reward:.3f} under {min_reward:g}: {verdict.explanation[:200]}"


def check_chain(lesson: Lesson, turns: Sequence[PlayedTurn], min_reward: float) -> str | None:
    """The first thing said that nobody gave and no sum worked out; None if there is none.

    A figure (a number right after a name under which the family's tools give figures: "latency 53", "the cost
    of B is 67", `"total": 42`) must have been given under this name in an earlier observation, and of the one
    thing that its sentence names where a tool was asked about that thing; or stand in the brief. Every other
    number of the words must be known or worked out, and every equation must hold (see `claims.py`).
    """
    names = {name for text in lesson.list_observations() for name, _ in read_figures(text)} | {
        name for turn in turns for name, _ in read_figures(turn.observation)
    }
    from_brief = _list_numbers(lesson.brief)
    known = KnownNumbers([lesson.brief])
    given: dict[tuple[str, float], set[str]] = {}  # figure -> things that tools were asked about
    asked: set[tuple[str, str]] = set()  # (thing, name of a figure that a tool gave of it)
    for number, turn in enumerate(turns, start=1):
        from_brief |= _list_numbers(turn.asked)
        known.learn(turn.asked)
        for sentence in _SENTENCE.split(turn.text):
            figures = list(read_figures(sentence))
            restated = {value for name, value in figures if (name, value) in given}
            for name, value in figures:
                if name not in names or value in from_brief:
                    continue
                if (name, value) not in given:
                    if name in ROLES and value in restated:
                        continue  # a seat's label, no name: "worth 118, best A coo cost 118"
                    return f"turn {number} states {name} {value:g}, which neither a tool nor the brief gave"
                about = [thing for thing, what in asked if what == name and _names(sentence, thing)]
                if len(about) == 1 and about[0] not in given[name, value]:
                    return f"turn {number} states {name} {value:g} of {about[0][:40]}, which is another's"
        try:
            known.check(_leave_answer_out(turn))
        except FalseChainError as error:
            return f"turn {number} states {error}"
        known.learn(turn.observation)
        things = set(_list_texts(turn.call.arguments)) if turn.call else set()
        for name, value in read_figures(turn.observation):
            given.setdefault((name, value), set()).update(things)
            asked |= {(thing, name) for thing in things}
    return None


def _list_numbers(text: str) -> set[float]:
    return {float(token) for token in _TOKEN.findall(text) if token[0].isdigit()}


def _leave_answer_out(turn: PlayedTurn) -> str:
    """The words of a turn: the verifier judges the answer that follows them."""
    if turn.call is not None:
        return turn.text
    thoughts, closed, rest = turn.text.rpartition("</think>")
    return thoughts + closed + rest.partition("{")[0]


def _list_texts(value: Any) -> Iterator[str]:
    """Every text in the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _list_texts(inner)


def _names(sentence: str, thing: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(thing)}(?![A-Za-z0-9])", sentence) is not None


def check_replay(lesson: Lesson, turns: Sequence[PlayedTurn], min_reward: float) -> str | None:
    """The first tool or message whose words differ when it is asked again; None if all agree."""
    again = lesson.remake()
    for number, turn in enumerate(turns, start=1):
        before = turns[: number - 1]
        expected = (again.follow_up(list_answers(before)) or "") if before and before[-1].call is None else ""
        if turn.asked != expected:
            return f"turn {number} was asked {turn.asked[:80]!r}, not {expected[:80]!r}"
        if turn.call is None:
            continue
        observation, _ = observe(again, before, turn.call)
        if observation != turn.observation:
            return f"turn {number}: {turn.call.name} says {observation[:80]!r}, not {turn.observation[:80]!r}"
    return None


CHECKS: dict[Reason, Check] = {
    "tools": check_tools,
    "answer": check_answer,
    "chain": check_chain,
    "replay": check_replay,
}


def find_rejection(
    lesson: Lesson, turns: Sequence[PlayedTurn], min_reward: float = EXACT
) -> Rejection | None:
    """The first of the four checks that fails; None for a demonstration worth keeping."""
    for reason, check in CHECKS.items():
        detail = check(lesson, turns, min_reward)
        if detail is not None:
            return Rejection(reason=reason, detail=detail)
    return None


def read_figures(text: str) -> Iterator[tuple[str, float]]:
    """Named figures of a text: a word, at most some filler ("of option B is", ":"), a number, on one line.

    Example: list(read_figures("latency: 53 ms, cost 66")) == [("latency", 53.0), ("cost", 66.0)]
    """
    tokens = _TOKEN.findall(text)
    for position, token in enumerate(tokens):
        if not (token.isascii() and token[0].isalpha()) or token in _FILLERS:
            continue
        for following in tokens[position + 1 : position + 2 + _MOST_FILLERS]:
            if following[0].isdigit() and following.isascii():
                yield _normalise(token), float(following)
            elif following.lower() in _FILLERS or _IDENTIFIER.fullmatch(following):
                continue
            break


def _normalise(word: str) -> str:
    """Identifiers as they are (A, K2), other words in lower case and without a plural s."""
    return word if _IDENTIFIER.fullmatch(word) else word.lower().removesuffix("s")


def write_messages(turns: Sequence[PlayedTurn]) -> list[Message]:
    """The turns as chat messages of a data row."""
    messages: list[Message] = []
    for turn in turns:
        messages += [{"role": "user", "content": turn.asked}] if turn.asked else []
        messages += write_turn(turn.text, turn.call, turn.observation)
    return messages


def read_messages(stored: Sequence[Mapping[str, Any]], num_opening: int) -> tuple[PlayedTurn, ...] | None:
    """The turns after the first `num_opening` messages of a row; None if no turns are written like this."""
    try:
        messages = load_messages(stored)
        turns = tuple(_read_turns(messages[num_opening:]))
        is_whole = store_messages(write_messages(turns)) == list(stored[num_opening:])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
    return turns if is_whole else None


def _read_turns(messages: Sequence[Message]) -> Iterator[PlayedTurn]:
    waiting, asked = iter(messages), ""
    for message in waiting:
        if message["role"] == "user":
            asked = message["content"]
            continue
        if "tool_calls" not in message:
            yield PlayedTurn(text=message["content"], asked=asked)
            asked = ""
            continue
        function = message["tool_calls"][0]["function"]
        call = ToolCall(name=function["name"], arguments=function["arguments"])
        observation = next(waiting, {})["content"]
        yield PlayedTurn(text=message["content"], call=call, observation=observation, asked=asked)
        asked = ""
