"""One rule for every answer: the last complete JSON object, which ends the message, is the answer."""

import json
import time

import pytest

from roles.base import AnswerError, parse_answer, split_answer
from roles.part import PartAnswer
from roles.team import Vote

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
        f"so {{a, b}} and {{'part': ['A']}} lose: {TEXT}",
        f'$\\frac{{66}}{{2}} = 33$, \\text{{cost }} {{}} x_{{"a"}} ... {TEXT}',
        f"{{ {TEXT}",
        f'{{"answer": {TEXT}',
        f'{{"part": ["A"], "cost" {TEXT}',
        f'measured {{"option": "A", "upgrades": {{"spare": 1}}}}\n```json\n{TEXT}\n```',
        '{"part": ["A"], "cost": 4' + "\n" + TEXT,
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
        (f"{TEXT.replace('B', 'A')}\nor rather\n{TEXT}", "trailing_text"),
        (f'{{"cost": 41}} {TEXT}', "trailing_text"),
        (f'{{"answer": {TEXT.replace("B", "A")}}} {TEXT}', "trailing_text"),
        (f'{{"answer": {TEXT}}}', "schema"),
        (f"{TEXT} so {{a, b}}", "trailing_text"),
        (TEXT.replace("42", "NaN"), "not_json"),
        (TEXT.replace('"cost"', '"part": [], "cost"'), "duplicate_key"),
        ('{"a":' * 800, "not_json"),
        ('{"a":' * 900 + "1" + "}" * 900, "not_json"),
        ("\ud800" + TEXT[:-1], "not_json"),
    ],
)
def test_anything_else_is_no_answer(text: str, failure: str) -> None:
    with pytest.raises(AnswerError) as error:
        parse_answer(text, PartAnswer)
    assert error.value.failure == failure


def test_words_before_the_object_are_not_read() -> None:
    assert parse_answer(f"NOT {TEXT}", PartAnswer).part == ["B"]


@pytest.mark.parametrize(
    "text", ['{"a":' * 3900, '{"a":' * 3000 + "1" + "}" * 3000, '{"' * 9999, "{ " * 9999, "{}" * 9999]
)
def test_no_number_of_braces_takes_long(text: str) -> None:
    start = time.thread_time()
    with pytest.raises(AnswerError):
        parse_answer(text, PartAnswer)
    assert time.thread_time() - start < 0.1


def test_braces_in_texts_of_the_answer_begin_no_other() -> None:
    note = 'a {b} c, {"vote": "accept"} and {"'
    text = json.dumps({"vote": "object", "reason": note})
    assert parse_answer(f"no: {text}", Vote).model_dump() == {"vote": "object", "reason": note}
    assert split_answer(f"<think>{text}</think>\n{{x}} {text} \n") == (f"<think>{text}</think>\n{{x}} ", text)
