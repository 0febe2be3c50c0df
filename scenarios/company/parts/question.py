"""The question of a part family: a structure, an amount, the part that is best for it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.base import Split, Style
from scenarios.company.domain import Choice, Domain, Terms, price_parts
from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.records import Part
from scenarios.company.setting import draw_setting, draw_structure
from scenarios.company.splits import belongs_to
from scenarios.company.steps import name_code

MAX_TRIES = 300
BOUND_FROM = 3  # first difficulty whose questions are drawn so that the limit decides
BOUND_SHARE = 0.18  # of the questions: without the limit another part would be the best
MOST_BOUND_TRIES = 100  # after these any question will do
LEAST_AFFORDABLE = (3, 3, 7, 8, 8, 8, 9, 10, 12, 14)  # parts to choose among, by difficulty 1-10


@dataclass(frozen=True, slots=True, kw_only=True)
class PartQuestion:
    """A part question as its facts state it.

    Example: read_question(scenario.facts).amount == 30
    """

    option: str
    amount: int
    structure: Mapping[str, Any]
    terms: Terms


def read_question(facts: Mapping[str, Any]) -> PartQuestion:
    """The question that the facts hold."""
    return PartQuestion(
        option=facts["option"],
        amount=facts["amount"],
        structure=facts["structure"],
        terms=Terms(rates=facts["rates"], limits=facts["limits"]),
    )


def draw_question(domain: Domain, split: Split, seed: int, index: int, difficulty: int) -> dict[str, Any]:
    """Facts of one question on an option of the company case of the same coordinates, as JSON values."""
    setting = draw_setting(split, seed, index, difficulty)
    rng = random.Random(f"part/{domain.seat}/{setting.key}")
    terms = setting.terms[domain.seat]
    wants_bound = difficulty >= BOUND_FROM and rng.random() < BOUND_SHARE
    for attempt in range(MAX_TRIES):
        is_bound = wants_bound and attempt < MOST_BOUND_TRIES
        option = rng.choice(list(setting.names))
        structure, parts = draw_structure(
            setting, domain.seat, option, attempt, "need" if is_bound else "as set"
        )
        efficient = list_efficient(parts)
        unbound = list_efficient(parts, keeping=False) if is_bound else []
        if is_bound and efficient == unbound:
            continue
        costs = [upgrade["cost"] for upgrade in structure["upgrades"].values()]
        shown_in_full = [setting.drawn_sector, setting.drawn_names[option], costs]
        shown_in_short = [[part.cost, part.worth] for part in efficient if part.choice]
        amounts = [
            amount
            for amount in range(efficient[1].cost, efficient[-1].cost + 1)
            if belongs_to(split, [amount, shown_in_full])
            and belongs_to(split, [amount, shown_in_short])
            and len(list_affordable(parts, amount, keeping=not is_bound)) >= LEAST_AFFORDABLE[difficulty - 1]
            and not (is_bound and take_within(efficient, amount) is take_within(unbound, amount))
        ]
        if amounts:
            return {
                "sector": setting.sector.name,
                "situation": setting.situation,
                "wording": setting.wording,
                "option": option,
                "name": setting.names[option],
                "amount": rng.choice(amounts),
                "structure": structure,
                "rates": dict(terms.rates),
                "limits": dict(terms.limits),
            }
    raise RuntimeError(f"no question for {domain.seat} on {setting.key} in {MAX_TRIES} draws")


def list_affordable(parts: Sequence[Part], amount: int, keeping: bool = True) -> list[Part]:
    """The parts within the amount that keep the limit, without `keeping` those that break it, too."""
    return [part for part in parts if part.cost <= amount and (part.keeps_limit or not keeping)]


def list_parts(domain: Domain, question: PartQuestion) -> tuple[Part, ...]:
    """All parts of the question, () first."""
    return price_parts(domain, question.structure, question.terms, question.option)


def find_best(parts: Sequence[Part], amount: int) -> Part:
    """The part of the greatest worth within the amount that keeps the limit; of equals the cheapest."""
    return [part for part in list_efficient(parts) if part.cost <= amount][-1]


def code_parts(domain: Domain, question: PartQuestion) -> dict[str, Part]:
    """Code -> efficient part that buys something, as short texts list them."""
    efficient = list_efficient(list_parts(domain, question))
    return {name_code(number): part for number, part in enumerate(part for part in efficient if part.choice)}


def read_choice(domain: Domain, question: PartQuestion, style: Style, names: object) -> Choice | None:
    """The names in the structure's order; None where they are no part: unknown, repeated or not together.

    In short style, which shows codes, a single name may be the code of an efficient part.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    wanted = set(names)
    choice = tuple(name for name in question.structure["upgrades"] if name in wanted)
    if len(choice) == len(names) and choice in domain.list_choices(question.structure):
        return choice
    is_coded = style == "short" and len(names) == 1
    coded = code_parts(domain, question).get(names[0]) if is_coded else None
    return None if coded is None else coded.choice


def find_best_again(domain: Domain, question: PartQuestion) -> int:
    """The best worth within the amount by the domain's second method, over all choices."""
    structure, terms = question.structure, question.terms
    before = domain.value(terms, domain.measure_again(structure, ())[1])
    found = []
    for choice in domain.list_choices(structure):
        cost, figures = domain.measure_again(structure, choice)
        if cost <= question.amount and domain.keeps_limit(terms, figures):
            found.append(domain.value(terms, figures) - before)
    return max(found)
