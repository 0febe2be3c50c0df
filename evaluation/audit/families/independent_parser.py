"""Parses and scores answers without `roles.base.parse_answer`: the audit's scores share no code with it."""

import json
from collections.abc import Sequence
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


_LENIENT = json.JSONDecoder(parse_int=str, parse_float=str)


def read_answer(subject: Subject, scenario: Scenario, text: str) -> Answer | None:
    """The object that ends the text; None where there is none, two that share a key, or another form."""
    *_, text = text.split("</think>")
    if "<think>" in text:
        return None
    last, earlier = None, [set[str]()]
    for place in (place for place, char in enumerate(text) if char == "{"):
        try:
            value, end = _LENIENT.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        after = "".join(text[end:].split())
        is_block = text[:place].split()[-1:] in (["```json"], ["```"]) and after == "```"
        if not after or is_block:
            last = text[place:end]
            break
        earlier.append(set(value))
    try:
        answer: Answer = json.loads(last or "", object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        return None
    if set.union(*earlier) & set(answer) or not has_form(subject, scenario, answer):
        return None
    return answer


def audit_score(subject: Subject, scenario: Scenario, text: str) -> float:
    """Return the independent score of an answer text, 0 to 1."""
    answer = read_answer(subject, scenario, text)
    return 0.0 if answer is None else subject.score(scenario, answer)


CHOICE_SHARE = 8  # of 10; the rest is for stated figures


def weigh_between(value: float, best: float, worthless: float) -> float:
    """1 at `best` exactly, falling to 0 at the larger `worthless` and beyond."""
    return 1.0 if value == best else max(0.0, (worthless - value) / (worthless - best))


def weigh_smaller(value: float, allowed: Sequence[float]) -> float:
    """1 for the least of the allowed values, 0 from their mean on."""
    return weigh_between(value, min(allowed), sum(allowed) / len(allowed))


def combine_score(choice: float, stated: Sequence[bool]) -> float:
    """0.8 choice + 0.2 share of right figures; exactly 1 where both are.

    Example: combine_score(1.0, [True, False]) == 0.9
    """
    return (CHOICE_SHARE * choice + (10 - CHOICE_SHARE) * sum(stated) / len(stated)) / 10
