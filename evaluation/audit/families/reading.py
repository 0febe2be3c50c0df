"""A second reader of answers, written apart from `roles.base.parse_answer`, for scores by another route."""

import json
from typing import Any

from evaluation.audit.probes.answers import has_form
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
    """The one answer in the text; None where there is none, more than one brace group, or another form."""
    before, brace, _ = text.partition("{")
    if not brace:
        return None
    try:
        value, end = _DECODER.raw_decode(text, len(before))
    except (ValueError, RecursionError):
        return None
    if "}" in text[end:] or not has_form(subject, scenario, value):
        return None
    answer: Answer = value
    return answer


def audit_score(subject: Subject, scenario: Scenario, text: str) -> float:
    """What the text is worth by the second route, 0 to 1."""
    answer = read_answer(subject, scenario, text)
    return 0.0 if answer is None else subject.score(scenario, answer)
