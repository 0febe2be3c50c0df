"""Checks the rows of a teacher again by the four checks, from what the rows say alone."""

from roles.base import AnswerError
from training.data.folders.columns import store_messages
from training.data.folders.rows import Row, write_opening
from training.data.teacher.checks import find_rejection, list_answers, read_messages, write_messages
from training.data.teacher.lessons import open_lesson

AUTHOR_PREFIX = "teacher:"
ANY_REWARD = 1e-6  # where nobody says which reward was asked: the answer must be worth something


def is_by_teacher(row: Row) -> bool:
    """Return whether the row says that a teacher wrote it."""
    return bool(row["author"].startswith(AUTHOR_PREFIX))


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
