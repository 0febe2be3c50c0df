"""Parses answers without `roles.base.parse_answer`, so that the audit's scores share no code with it."""

import json
from typing import Any

from evaluation.audit.probes.answer_variants import has_form
from evaluation.audit.records import Answer, Subject
from scenarios.base import Scenario


class _RepeatedKeyError(ValueError):
    pass


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _RepeatedKeyError(key)
        made[key] = value
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_once_each)


def read_answer(subject: Subject, scenario: Scenario, text: str) -> Answer | None:
    """The one answer that ends the text; None where text follows it, where there is none, or another form."""
    *_, text = text.split("</think>")
    before, brace, _ = text.partition("{")
    if not brace or "<think>" in text:
        return None
    try:
        value, end = _DECODER.raw_decode(text, len(before))
    except (ValueError, RecursionError):
        return None
    after = "".join(text[end:].split())
    is_block = before.split()[-1:] in (["```json"], ["```"]) and after == "```"
    if (after and not is_block) or not has_form(subject, scenario, value):
        return None
    answer: Answer = value
    return answer


def audit_score(subject: Subject, scenario: Scenario, text: str) -> float:
    """Return the independent score of an answer text, 0 to 1."""
    answer = read_answer(subject, scenario, text)
    return 0.0 if answer is None else subject.score(scenario, answer)
