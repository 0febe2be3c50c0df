"""The four checks that a teacher's play passes to become training data, each with its own reason.

tools    every call is of a tool that the role has, and the tool accepts it
answer   the final answer parses strictly and the verifier gives it the asked reward
chain    every figure was given by a tool before or stands in the brief, every other number was worked out
replay   the tools, asked again on the scenario made anew, say the same word for word
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from roles.base import AnswerError, parse_strict_json, split_answer
from scenarios.base import Scenario, ToolCall, ToolError
from scenarios.tasks.grading.arithmetic import MAX_CHARS, ExpressionError, calculate
from simulator.tool_calls import CLOSE, OPEN
from training.data.folders.rows import Message, Row, load_messages, store_messages, write_opening, write_turn
from training.data.teacher.lessons import Lesson, open_lesson
from training.data.teacher.reasoning import SENTENCE, TOKEN, Reading, list_upgrades, read_figures

FREE = 10  # whole numbers up to here may count and order things without being given
_ORDERS = re.compile(r"(?:^|\n)[ \t*-]*$|\b(?:step|turn|option|number|round|rank|#)[ \t]*$", re.I)
_COUNTED = re.compile(
    r"[ \t]+(?:of (?:them|these|the)|more|other|upgrade|option|part|offer|seat|tool|call|step|time|way|thing"
    r"|set|combination|candidate|measurement)s?\b"
)
NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.]){NUMBER}(?![A-Za-z0-9_]*[A-Za-z_])|(?<![A-Za-z0-9_.]){NUMBER}(?=%)")
_UNIT = re.compile(r"(?<=[0-9])[ \t]*(?:k\$|[A-Za-z$]+)(?=[ \t]*[-+*/=<>)])")
_RELATION = re.compile(r"<=|>=|=<|[=<>]")
_TYPESET = str.maketrans({"\u2264": "<=", "\u2265": ">=", "\u00d7": "*", "\u00f7": "/", "\u2212": "-"})
_LEFT = re.compile(r"[0-9.,+*/%()^ \t-]*$")
_RIGHT = re.compile(r"[ \t]*[$]?[ \t]*([-+(]*[0-9][0-9.,+*/%()^ \t-]*)")
_BOUND = re.compile(r"\bfor at most $")  # what stands before a number that is chosen
_OPERATOR = re.compile(r"[0-9)%][ \t]*[-+*/^]|//")


class FalseChainError(Exception):
    """A number that nobody gave, or a relation that does not hold; the message quotes it."""


class KnownNumbers:
    """Numbers that may be stated, and the check of what is.

    Example: KnownNumbers(["latency 53, cost 66"]).check("66 + 53 = 119, so 119") passes
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._known: set[Fraction] = set()
        for text in texts:
            self.learn(text)

    def learn(self, text: str) -> None:
        """Every number of a text is known from now on."""
        self._known.update(value for _, value, _ in find_numbers(text))

    def check(self, text: str) -> None:
        """Check a text from its beginning; what its right equations work out becomes known.

        Raises:
            FalseChainError: the first number or relation that does not stand.
        """
        text = text.translate(_TYPESET)
        relations = {end: statement for statement, end in find_relations(text)}
        waiting = sorted(relations)
        for place, value, shown in find_numbers(text):
            self._work_out(relations, [end for end in waiting if end <= place])
            waiting = [end for end in waiting if end > place]
            if any(relations[end].works_out(place) for end in waiting):
                continue
            if _BOUND.search(text[:place]):
                self._known.add(value)
            elif not self._is_known(value, shown) and not _counts(text, place, value, shown):
                raise FalseChainError(f"{shown}, which nobody gave and no sum worked out")
        self._work_out(relations, waiting)

    def _work_out(self, relations: dict[int, "Relation"], ends: Iterable[int]) -> None:
        for end in ends:
            relation = relations[end]
            if not relation.holds():
                raise FalseChainError(f"{relation.text!r}, which is false")
            if relation.sign == "=":
                self._known.add(relation.values[1])

    def _is_known(self, value: Fraction, shown: str) -> bool:
        if value in self._known:
            return True
        decimals = len(shown.partition(".")[2])
        return decimals > 0 and any(_is_rounded(one, value, decimals) for one in self._known)


def _counts(text: str, place: int, value: Fraction, shown: str) -> bool:
    """Return whether a small number counts or orders things: "2 more", "step 3", "1." as a line begins."""
    if value.denominator != 1 or value > FREE:
        return False
    before, after = text[:place], text[place + len(shown) :]
    if _COUNTED.match(after):
        return True
    begins = not before.rpartition("\n")[2].strip(" \t*-")
    return _ORDERS.search(before) is not None and (not begins or after[:1] in (".", ")"))


class Relation:
    """Two sides of a sign, as found in a text. Example: "2 + 2 = 4" holds, "3 > 5" does not."""

    def __init__(self, left: str, sign: str, right: str, sign_place: int) -> None:
        self.text, self.sign, self._sign_place = f"{left} {sign} {right}", sign, sign_place
        self.values = (calculate(left), calculate(right))
        self._is_worked_out = bool(_OPERATOR.search(left)) and not _OPERATOR.search(right.lstrip("-+"))
        self._decimals = len(right.partition(".")[2]) if self._is_worked_out else 0

    def works_out(self, place: int) -> bool:
        """Return whether the number at a place is what an equation works out: it stands after the sign."""
        return self.sign == "=" and self._is_worked_out and place >= self._sign_place

    def holds(self) -> bool:
        """Return whether it is true; a result with decimals may be rounded to them."""
        one, other = self.values
        if self.sign == "=":
            return one == other or (self._decimals > 0 and _is_rounded(one, other, self._decimals))
        return {"<": one < other, ">": one > other, "<=": one <= other, "=<": one <= other}.get(
            self.sign, one >= other
        )


def find_numbers(text: str) -> Iterator[tuple[int, Fraction, str]]:
    """Place, value and spelling of every number that is no part of a name (P1, K12)."""
    for found in _NUMBER.finditer(text.translate(_TYPESET)):
        yield found.start(), Fraction(found[0].replace(",", "")), found[0]


def find_relations(text: str) -> Iterator[tuple[Relation, int]]:
    """Relations between two arithmetic expressions, with the place where each ends; units are left out."""
    for found in _RELATION.finditer(text):
        before = _blank_units(text[max(0, found.start() - MAX_CHARS) : found.start()])
        left = _LEFT.search(before)
        right = _RIGHT.match(_blank_units(text[found.end() : found.end() + MAX_CHARS]))
        if left is None or right is None:
            continue
        sides = (_trim(re.split(r"[.,][ \t]", left[0])[-1]), _trim(re.split(r"[.,](?:[ \t]|$)", right[1])[0]))
        try:
            yield Relation(sides[0], found[0], sides[1], found.start()), found.end() + right.end()
        except ExpressionError:
            continue


def _blank_units(text: str) -> str:
    """Units between a number and a sign become spaces: "53 ms - 40 ms" is 53 - 40."""
    return _UNIT.sub(lambda found: " " * len(found[0]), text + "=")[:-1]


def _trim(side: str) -> str:
    side = side.strip(" \t.,+*/-") if not side.strip().startswith("-") else side.strip(" \t.,")
    while side.count(")") > side.count("("):
        if not side.endswith(")"):
            break
        side = side[:-1].rstrip()
    while side.count("(") > side.count(")") and side.startswith("("):
        side = side[1:].lstrip()
    return side


def _is_rounded(exact: Fraction, shown: Fraction, decimals: int) -> bool:
    return abs(exact - shown) <= Fraction(1, 2 * 10**decimals)


Reason = Literal["tools", "answer", "chain", "replay"]
EXACT = 1.0
TOLERANCE = 1e-9  # of a reward

_LABEL = re.compile(r"^- \[(\w+)\]", re.M)


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
class PlayRejection:
    """Fault of a play. Example: PlayRejection(reason="answer", detail="no final answer")"""

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
    """The first thing said that does not follow from what was read, or an answer that nothing leads to.

    A figure (a number right after a name under which the family's tools give figures: "latency 53", "the
    cost of B is 67", `"total": 42`) must have been given under this name in an earlier observation, or stand
    in the brief, and be that of the thing that it is told of (`training.data.teacher.reasoning`). Every other
    number of the words must be known or worked out, and every equation and comparison must hold. What is
    said last to be best must be the answer, and some figure of a tool must be told.
    """
    return _check_words(lesson, turns, concludes=True)


def _check_words(lesson: Lesson, turns: Sequence[PlayedTurn], *, concludes: bool) -> str | None:
    names = {name for text in lesson.observations for name, _ in read_figures(text)} | {
        name for turn in turns for name, _ in read_figures(turn.observation)
    }
    from_brief = _list_numbers(lesson.brief)
    known, reading = KnownNumbers([lesson.brief]), _start_reading(lesson, turns)
    given: set[tuple[str, float]] = set()
    for number, turn in enumerate(turns, start=1):
        from_brief |= _list_numbers(turn.asked)
        known.learn(turn.asked)
        reading.hear(turn.asked)
        words, answer = _split_answer(turn)
        for sentence in SENTENCE.split(turn.text):
            for _, name, value in reading.find_figures(sentence):
                if name in names and value not in from_brief and (name, value) not in given:
                    return f"turn {number} states {name} {value:g}, which neither a tool nor the brief gave"
        try:
            known.check(words)
        except FalseChainError as error:
            return f"turn {number} states {error}"
        fault = reading.check(words)
        if fault is not None:
            return f"turn {number} states {fault}"
        if concludes and turn.call is None:
            fault = reading.find_contradiction(words, answer)
            if fault is not None:
                return f"turn {number} states {fault}"
        known.learn(turn.observation)
        given.update((name, value) for name, value in read_figures(turn.observation))
        if turn.call is not None:
            reading.observe(turn.call.arguments, turn.observation)
    return None


def _start_reading(lesson: Lesson, turns: Sequence[PlayedTurn]) -> Reading:
    case = lesson.case
    labels = {
        label for text in (lesson.brief, *(turn.asked for turn in turns)) for label in _LABEL.findall(text)
    }
    facts = case.facts if isinstance(case, Scenario) else {"upgrades": {}}
    if not isinstance(case, Scenario) and lesson.name in case.seats:
        facts = case.seats[lesson.name].facts
    names = () if labels else list_upgrades(facts)
    return Reading(frozenset(names), labels, lesson.brief)


def _list_numbers(text: str) -> set[float]:
    return {float(token) for token in TOKEN.findall(text) if token[0].isdigit()}


def _split_answer(turn: PlayedTurn) -> tuple[str, Mapping[str, Any]]:
    """The words of a turn and the answer after them, {} where none can be read: the verifier judges it."""
    if turn.call is not None:
        return turn.text, {}
    words, value = turn.text, None
    with suppress(AnswerError):
        words, text = split_answer(turn.text)
        value = parse_strict_json(text)
    return words, value if isinstance(value, dict) else {}


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
) -> PlayRejection | None:
    """The first of the four checks that fails; None for a demonstration worth keeping."""
    for reason, check in CHECKS.items():
        detail = check(lesson, turns, min_reward)
        if detail is not None:
            return PlayRejection(reason=reason, detail=detail)
    return None


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


BEGIN, END = "<think>", "</think>"
MAX_THOUGHT_CHARS = 8_000  # of one turn: longer ones are left out


def write_thoughts(text: str) -> str:
    """Thoughts as a turn begins with them. Example: write_thoughts("B is cheaper.")"""
    return f"{BEGIN}\n{text.strip()}\n{END}\n"


def drop_reasoning(turns: Sequence[PlayedTurn]) -> tuple[PlayedTurn, ...]:
    """The turns without what the teacher thought."""
    return tuple(replace(turn, text=_split(turn.text)[1]) for turn in turns)


def keep_sound_reasoning(lesson: Lesson, turns: Sequence[PlayedTurn]) -> tuple[PlayedTurn, ...]:
    """The turns, each with its thoughts where these pass the chain check after the turns before it."""
    kept: list[PlayedTurn] = []
    for turn in turns:
        thoughts, words = _split(turn.text)
        alone = replace(turn, text=thoughts)
        is_sound = (
            0 < len(thoughts) <= MAX_THOUGHT_CHARS
            and thoughts.count(BEGIN) == thoughts.count(END) == 1
            and not any(mark in thoughts for mark in (OPEN, CLOSE))
            and _check_words(lesson, [*kept, alone], concludes=False) is None
        )
        kept.append(turn if is_sound else replace(turn, text=words))
    return tuple(kept)


def _split(text: str) -> tuple[str, str]:
    """Thoughts with their marks, "" without, and the words after them."""
    if not text.startswith(BEGIN) or END not in text:
        return "", text
    thoughts, mark, words = text.partition(f"{END}\n")
    return (thoughts + mark, words) if mark else ("", text)


AUTHOR_PREFIX = "teacher:"
ANY_REWARD = 1e-6  # where nobody says which reward was asked: the answer must be worth something


def find_teacher_fault(row: Row, min_reward: float = ANY_REWARD) -> str | None:
    """Fault in messages or answer of a teacher's row of sound coordinates; None if there is none."""
    place = (row["split"], row["seed"], row["index"], row["difficulty"])
    lesson = open_lesson(row["family"], *place, row["role"])
    opening = write_opening(lesson.role, lesson.brief)
    turns = read_messages(row["messages"], len(opening))
    if turns is None or row["messages"][: len(opening)] != store_messages(opening):
        return "messages are not mandate, brief and turns"
    rejection = find_rejection(lesson, turns, min_reward)
    if rejection is not None:
        return f"messages fail the check of {rejection.reason}: {rejection.detail}"
    try:
        made = lesson.build_row(write_messages(turns), list_answers(turns), row["author"])
    except AnswerError as error:
        return f"answer: {error}"
    return None if row["answer"] == made["answer"] else "answer differs from that of the messages"
