"""Rows of a teacher, checked again as if they came from a stranger: the four checks on what the row says."""

import json

from roles.base import AnswerError, parse_answer
from training.data.rows import SOLO_FAMILIES, SOLO_ROLES, Row, open_chat
from training.data.teacher.checks import find_rejection, read_messages

AUTHOR_PREFIX = "teacher:"
ANY_REWARD = 1e-6  # where nobody says which reward was asked: the answer must be worth something


def is_taught(row: Row) -> bool:
    """Whether the row says that a teacher wrote it."""
    return bool(row["author"].startswith(AUTHOR_PREFIX)) and row["family"] in SOLO_FAMILIES


def find_taught_fault(row: Row, min_reward: float = ANY_REWARD) -> str | None:
    """What is wrong with messages and answer of a teacher's row of sound coordinates; None if nothing."""
    family, role = SOLO_FAMILIES[row["family"]], SOLO_ROLES[row["role"]]
    scenario = family.generate(row["split"], row["seed"], row["index"], row["difficulty"])
    opening = open_chat(role.name, scenario.brief)
    turns = read_messages(row["messages"], len(opening))
    if turns is None or json.loads(row["messages"])[: len(opening)] != opening:
        return "messages are not mandate, brief and turns"
    rejection = find_rejection(family, scenario, turns, min_reward)
    if rejection is not None:
        return f"messages fail the check of {rejection.reason}: {rejection.detail}"
    try:
        answer = parse_answer(turns[-1].text, role.answer).model_dump()
    except AnswerError as error:
        return f"answer: {error}"
    return None if row["answer"] == json.dumps(answer) else "answer differs from that of the last message"
