"""One rule for every answer: one strict JSON object ends the message, outside reasoning markup."""

import json

import pytest

from roles.base import AnswerError, parse_answer
from roles.part import PartAnswer

GOLD = {"part": ["B"], "cost": 42, "worth": 97}
TEXT = json.dumps(GOLD)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"B is cheapest.\n{TEXT}\n\n",
        f"<think>{TEXT.replace('B', 'A')}</think>\n{TEXT}",
        f"```json\n{TEXT}\n```",
        f"Here it is:\n```\n{TEXT}\n```\n",
    ],
)
def test_an_object_that_ends_the_message_is_the_answer(text: str) -> None:
    assert parse_answer(text, PartAnswer).model_dump() == GOLD


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (f"[{TEXT}]", "trailing_text"),
        (f"<tool_call>{TEXT}</tool_call>", "trailing_text"),
        (f"<think>{TEXT}</think>", "no_answer"),
        (f"<think>{TEXT}", "no_answer"),
        (f"{TEXT}</think> Let me think again.", "no_answer"),
        (f"{TEXT} {{", "trailing_text"),
        (f"{TEXT}\n{TEXT}", "trailing_text"),
        (f"{TEXT} is wrong", "trailing_text"),
        (f"{TEXT}\n```", "trailing_text"),
        (f"```json\n{TEXT}\n``` or not", "trailing_text"),
        (f"{{ {TEXT}", "not_json"),
        (TEXT.replace("42", "NaN"), "not_json"),
        (TEXT.replace('"cost"', '"part": [], "cost"'), "duplicate_key"),
        ('{"a":' * 800, "not_json"),
        ("\ud800" + TEXT[:-1], "not_json"),
    ],
)
def test_anything_else_is_no_answer(text: str, failure: str) -> None:
    with pytest.raises(AnswerError) as error:
        parse_answer(text, PartAnswer)
    assert error.value.failure == failure


def test_words_before_the_object_are_not_read() -> None:
    assert parse_answer(f"NOT {TEXT}", PartAnswer).part == ["B"]
