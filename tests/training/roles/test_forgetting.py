"""The check for forgetting: its instructions tell right replies from wrong ones."""

import pytest

from benchmarks.roles.forgetting import list_answers
from benchmarks.roles.plain_instructions import INSTRUCTIONS, Instruction

NO_ANSWERS = (
    "",
    '{"offers": [], "needs": [], "veto": []}',
    "I am an artificial intelligence.\nI cannot\nsay.",
)


@pytest.mark.parametrize("one", INSTRUCTIONS, ids=lambda one: one.text)
def test_an_instruction_knows_its_example_from_other_replies(one: Instruction) -> None:
    others = [other.example for other in INSTRUCTIONS if other.example != one.example]
    assert one.is_right(one.example)
    assert sum(one.is_right(reply) for reply in (*others, *NO_ANSWERS)) <= 1


def test_a_short_answer_is_a_line_or_the_last_word() -> None:
    assert list_answers("It is easy.\n\nThe answer is **12**.") == [
        "It is easy.",
        "The answer is **12**.",
        "12",
    ]
    assert list_answers(" \n") == [""]
