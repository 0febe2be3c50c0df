"""A teacher's thoughts before a turn: kept in the row where it passes the chain check, else left out."""

from collections.abc import Sequence
from dataclasses import replace

from simulator.tool_calls import CLOSE, OPEN
from training.data.teacher.checks import EXACT, PlayedTurn, check_chain
from training.data.teacher.lessons import Lesson

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
            and check_chain(lesson, [*kept, alone], EXACT) is None
        )
        kept.append(turn if is_sound else replace(turn, text=words))
    return tuple(kept)


def _split(text: str) -> tuple[str, str]:
    """Thoughts with their marks, "" without, and the words after them."""
    if not text.startswith(BEGIN) or END not in text:
        return "", text
    thoughts, mark, words = text.partition(f"{END}\n")
    return (thoughts + mark, words) if mark else ("", text)
