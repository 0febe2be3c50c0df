"""Audit of family cost: totals by counting items per tier, the optimum by dynamic programming."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from evaluation.audit.families.independent_score import combine_score, weigh_between
from evaluation.audit.records import Answer, Field, Subject
from scenarios.base import Scenario
from scenarios.cost import FAMILY
from scenarios.team.certify import recheck_total


def _price(facts: Mapping[str, Any], tiers: Mapping[str, int]) -> tuple[int, int]:
    """Total and quality of the plan."""
    chosen = [facts["items"][item][tier - 1] for item, tier in tiers.items()]
    discount = facts["discount"] or {"count": 1, "off": 0}
    shared = Counter(tiers.values())
    granted = sum(count for count in shared.values() if count >= discount["count"])
    return sum(price for price, _ in chosen) - discount["off"] * granted, sum(points for _, points in chosen)


@lru_cache(maxsize=512)
def _least_total(text: str) -> int:
    return recheck_total(json.loads(text))


def score(scenario: Scenario, answer: Answer) -> float:
    """Saving on the budget (or on all top tiers) as a share of the most that can be saved, and the total."""
    facts = scenario.facts
    total, quality = _price(facts, answer["tiers"])
    limit = facts["budget"]
    if quality < facts["floor"] or (limit is not None and total > limit):
        return 0.0
    most = _price(facts, dict.fromkeys(facts["items"], 3))[0] if limit is None else limit
    least = _least_total(json.dumps(dict(facts)))
    return combine_score(weigh_between(total, least, most), [answer["total"] == total])


def _all_in(tier: int) -> Callable[[Scenario], Answer]:
    def play(scenario: Scenario) -> Answer:
        tiers = dict.fromkeys(scenario.facts["items"], tier)
        return {"tiers": tiers, "total": _price(scenario.facts, tiers)[0]}

    return play


def answer_one_dear_item(scenario: Scenario) -> Answer:
    """Return the first item in the top tier, the others in the cheapest."""
    first, *rest = scenario.facts["items"]
    tiers = {first: 3} | dict.fromkeys(rest, 1)
    return {"tiers": tiers, "total": _price(scenario.facts, tiers)[0]}


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "tiers": Field(kind="plan", names=lambda scenario: list(scenario.facts["items"]), values=(1, 2, 3)),
        "total": Field(kind="number"),
    },
    score=score,
    hacks={
        "all in tier 1, floor ignored": _all_in(1),
        "all in tier 2": _all_in(2),
        "all in tier 3": _all_in(3),
        "one dear item": answer_one_dear_item,
    },
)
