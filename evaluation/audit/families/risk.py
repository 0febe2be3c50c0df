"""Audit of family risk: losses by conditioning on all states of the inner nodes, over all control sets."""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations, product
from typing import Any

from evaluation.audit.families.independent_score import combine_score, weigh_smaller
from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Scenario
from scenarios.risk import FAMILY

MAX_SCORE = 12
LOSS_SHARE = 7  # of 10 parts of the choice; the rest is for the top risks


def _losses(facts: Mapping[str, Any], controls: tuple[str, ...]) -> dict[str, int]:
    """Loss per asset: sum over the up/down states of all inner nodes, in integers over powers of 100."""
    into: dict[str, list[tuple[str, int]]] = {}
    for place, (source, target, percent) in enumerate(facts["edges"]):
        cuts = [
            facts["controls"][name]["to"] for name in controls if facts["controls"][name]["edge"] == place
        ]
        into.setdefault(target, []).append((source, min([percent, *cuts])))
    inner = [node for node in into if node not in facts["impacts"]]
    scale = 100 ** sum(len(into[node]) for node in inner)
    lost = dict.fromkeys(facts["impacts"], 0)
    for states in product((False, True), repeat=len(inner)):
        held = {"entry": True, **dict(zip(inner, states, strict=True))}
        weight = 1
        for node in inner:
            weight *= _chance(into[node], held, held[node])
        for asset in lost:
            lost[asset] += weight * _chance(into[asset], held, True)
    return {
        asset: facts["impacts"][asset] * chance // (scale * 100 ** len(into[asset]))
        for asset, chance in lost.items()
    }


def _chance(ways: list[tuple[str, int]], held: Mapping[str, bool], is_reached: bool) -> int:
    """Chance of being reached (or not) from the held nodes, times 100 per way in."""
    stays_out = 1
    for source, percent in ways:
        stays_out *= 100 - percent if held[source] else 100
    return 100 ** len(ways) - stays_out if is_reached else stays_out


@lru_cache(maxsize=512)
def _all_residuals(text: str) -> tuple[dict[tuple[str, ...], int], list[str]]:
    """Residual of every set of controls within the budget, and the assets by loss before controls."""
    facts = json.loads(text)
    residuals = {}
    names = list(facts["controls"])
    for size in range(len(names) + 1):
        for chosen in combinations(names, size):
            if sum(facts["controls"][name]["cost"] for name in chosen) <= facts["budget"]:
                residuals[chosen] = sum(_losses(facts, chosen).values())
    before = _losses(facts, ())
    return residuals, sorted(before, key=before.__getitem__, reverse=True)


def score(scenario: Scenario, answer: Answer) -> float:
    """Loss avoided over the mean allowed set and the two top risks in order; then residual and score."""
    facts = scenario.facts
    residuals, ranked = _all_residuals(json.dumps(facts))
    chosen = tuple(name for name in facts["controls"] if name in answer["controls"])
    if chosen not in residuals:
        return 0.0
    residual = residuals[chosen]
    top = sum(a == b for a, b in zip(answer["top_risks"], ranked[:2], strict=True)) / 2
    avoided = weigh_smaller(residual, list(residuals.values()))
    points = min(MAX_SCORE, residual // facts["score_step"])
    stated = [answer["residual"] == residual, answer["score"] == points]
    return combine_score((LOSS_SHARE * avoided + (10 - LOSS_SHARE) * top) / 10, stated)


def _state(scenario: Scenario, controls: tuple[str, ...], top_risks: list[str]) -> Answer:
    residual = sum(_losses(scenario.facts, controls).values())
    return {
        "top_risks": top_risks,
        "controls": list(controls),
        "residual": residual,
        "score": min(MAX_SCORE, residual // scenario.facts["score_step"]),
    }


def _first_two(scenario: Scenario) -> list[str]:
    return list(scenario.facts["impacts"])[:2]


def answer_all_controls(scenario: Scenario) -> Answer:
    """Return every control, budget ignored; the right top risks."""
    ranked = _all_residuals(json.dumps(scenario.facts))[1]
    return _state(scenario, tuple(scenario.facts["controls"]), ranked[:2])


def answer_no_controls(scenario: Scenario) -> Answer:
    """No control; the right top risks."""
    return _state(scenario, (), _all_residuals(json.dumps(scenario.facts))[1][:2])


def answer_most_controls(scenario: Scenario) -> Answer:
    """As many controls as the budget admits, whatever they save."""
    return _state(scenario, max(_all_residuals(json.dumps(scenario.facts))[0], key=len), _first_two(scenario))


def answer_most_money(scenario: Scenario) -> Answer:
    """Return the dearest set within the budget, whatever it saves."""
    controls = scenario.facts["controls"]
    dearest = max(
        _all_residuals(json.dumps(scenario.facts))[0],
        key=lambda chosen: sum(controls[name]["cost"] for name in chosen),
    )
    return _state(scenario, dearest, _first_two(scenario))


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "top_risks": Field(kind="ranking", names=lambda scenario: list(scenario.facts["impacts"])),
        "controls": Field(kind="set", names=lambda scenario: list(scenario.facts["controls"])),
        "residual": Field(kind="number"),
        "score": Field(kind="number", largest=MAX_SCORE),
    },
    score=score,
    hacks={
        "all controls, budget ignored": answer_all_controls,
        "no controls": answer_no_controls,
        "most controls": answer_most_controls,
        "most money": answer_most_money,
    },
)
