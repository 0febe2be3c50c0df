"""Simple policies on a part question: random, constant, greedy by return, greedy that keeps the limit."""

import json
import random
from collections.abc import Sequence
from fractions import Fraction

from scenarios.base import Scenario
from scenarios.company.domain import Choice, Domain
from scenarios.company.parts.demonstrations import answer_of
from scenarios.company.parts.question import list_parts, read_question
from scenarios.company.records import Part


def answer_randomly(domain: Domain, scenario: Scenario, rng: random.Random) -> str:
    """Any part within the amount, any figures."""
    question = read_question(scenario.facts)
    structure = question.structure
    within = [
        choice
        for choice in domain.list_choices(structure)
        if domain.price(structure, choice) <= question.amount
    ]
    guess = {"cost": rng.randint(3, 30), "worth": rng.randint(3, 40)}
    return json.dumps({"part": list(rng.choice(within)), **guess})


def answer_nothing(_domain: Domain, _scenario: Scenario, _rng: random.Random) -> str:
    """Buys nothing: the one part whose figures are the same in every case."""
    return json.dumps({"part": [], "cost": 0, "worth": 0})


def _add_by_return(parts: Sequence[Part], amount: int, start: Choice) -> Part:
    by_choice = {frozenset(part.choice): part for part in parts}
    singles = [part for part in parts if len(part.choice) == 1]
    taken = frozenset(start)
    for single in sorted(singles, key=lambda part: -Fraction(part.worth, max(1, part.cost))):
        grown = by_choice.get(taken | set(single.choice))
        if grown is not None and single.worth > 0 and grown.cost <= amount:
            taken |= set(single.choice)
    return by_choice[taken]


def answer_greedily(domain: Domain, scenario: Scenario, _rng: random.Random) -> str:
    """Adds upgrades by what each returns alone per k$ while the money lasts; overlooks the limit."""
    question = read_question(scenario.facts)
    parts = list_parts(domain, question)
    return json.dumps(answer_of(_add_by_return(parts, question.amount, ())))


def answer_honestly(domain: Domain, scenario: Scenario, _rng: random.Random) -> str:
    """Begins with the cheapest part that keeps the limit, then adds as the greedy policy does."""
    question = read_question(scenario.facts)
    parts = list_parts(domain, question)
    start = min((part for part in parts if part.keeps_limit), key=lambda part: part.cost)
    part = _add_by_return(parts, question.amount, start.choice)
    return json.dumps(answer_of(part if part.keeps_limit else start))
