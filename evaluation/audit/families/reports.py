"""Audit of the family reconcile: plans listed again from the text that ReconcileGPT reads."""

from collections.abc import Callable
from functools import lru_cache

from evaluation.audit.families.independent_parser import combine_score, weigh_smaller
from evaluation.audit.records import Answer, Field, Subject
from evaluation.audit.text_solvers import ReportText, read_report_text
from roles.team import NO_OPTION, SPECIALISTS
from scenarios.base import Scenario
from scenarios.reconcile import FAMILY

Choose = Callable[[ReportText], tuple[str, tuple[str, ...]]]
ESCALATED: Answer = {"option": NO_OPTION, "fund": [], "escalate": True, "conflicts": []}


@lru_cache(maxsize=512)
def _read(brief: str) -> ReportText:
    return read_report_text(brief, SPECIALISTS)


def score(scenario: Scenario, answer: Answer) -> float:
    """Worth above the mean plan; then conflicts. Only escalating earns where nothing can be run."""
    text = _read(scenario.brief)
    plans, best = text.plans, text.best
    if answer["escalate"] or best is None:
        is_right = (
            best is None and answer["escalate"] and answer["option"] == NO_OPTION and not answer["fund"]
        )
        return combine_score(1.0, [not answer["conflicts"]]) if is_right else 0.0
    chosen = next(
        (p for p in plans if p.option == answer["option"] and sorted(p.fund) == sorted(answer["fund"])), None
    )
    if chosen is None:
        return 0.0
    conflicts = set(answer["conflicts"]) == set(text.list_conflicts(chosen.option))
    if chosen == best:
        return combine_score(1.0, [conflicts])
    choice = weigh_smaller(-chosen.worth, [-plan.worth for plan in plans])
    return combine_score(min(0.9, choice), [conflicts])


def _take(choose: Choose) -> Callable[[Scenario], Answer]:
    def answer(scenario: Scenario) -> Answer:
        text = _read(scenario.brief)
        option, fund = choose(text)
        conflicts = list(text.list_conflicts(option))
        return {"option": option, "fund": list(fund), "escalate": False, "conflicts": conflicts}

    return answer


def _public_favourite(text: ReportText) -> tuple[str, tuple[str, ...]]:
    return max(text.values, key=text.values.__getitem__), ()


def _all_offers_of_the_richest(text: ReportText) -> tuple[str, tuple[str, ...]]:
    totals = {
        option: value + sum(o.worth for o in text.offers[option].values())
        for option, value in text.values.items()
    }
    option = max(totals, key=totals.__getitem__)
    return option, tuple(text.offers[option])


def _dearest_offer(text: ReportText) -> tuple[str, tuple[str, ...]]:
    offers = [(o.cost, option, label) for option, own in text.offers.items() for label, o in own.items()]
    _, option, label = max(offers, default=(0, "A", ""))
    return option, (label,) if label else ()


def _loudest_seat(text: ReportText) -> tuple[str, tuple[str, ...]]:
    """The favourite of the seat with the greatest offer, that offer alone."""
    offers = [(o.worth, option, label) for option, own in text.offers.items() for label, o in own.items()]
    _, option, label = max(offers, default=(0, "A", ""))
    return option, (label,) if label else ()


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "option": Field(kind="id", names=lambda scenario: [*scenario.facts["options"], NO_OPTION]),
        "fund": Field(kind="set", names=lambda scenario: SPECIALISTS),
        "escalate": Field(kind="boolean"),
        "conflicts": Field(kind="set", names=lambda scenario: SPECIALISTS),
    },
    score=score,
    hacks={
        "always escalate": lambda _scenario: dict(ESCALATED),
        "the public favourite, nothing funded": _take(_public_favourite),
        "all offers of the richest option": _take(_all_offers_of_the_richest),
        "the dearest offer alone": _take(_dearest_offer),
        "the loudest seat": _take(_loudest_seat),
    },
)
