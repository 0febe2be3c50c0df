"""Audit of family reconcile: options compared by exact products, no root taken."""

from collections.abc import Callable
from math import exp, log, prod

from evaluation.audit.families.independent_score import combine_score, weigh_smaller
from evaluation.audit.records import Answer, Field, Subject
from roles.team import NO_OPTION
from scenarios.base import Scenario
from scenarios.reconcile import FAMILY

WORST_SCORE = 12


def _product(scenario: Scenario, option: str) -> int:
    """Weighted product of the utilities; orders options as Nash welfare does."""
    facts = scenario.facts
    return prod(row[option] ** facts["weights"][name] for name, row in facts["utilities"].items())


def _open_options(scenario: Scenario) -> list[str]:
    facts = scenario.facts
    return [
        option
        for option in facts["options"]
        if all(row[option] >= facts["limits"][name] for name, row in facts["utilities"].items())
    ]


def _contested(scenario: Scenario) -> set[str]:
    liked = {max(row, key=row.__getitem__) for row in scenario.facts["utilities"].values()}
    return liked - set(_open_options(scenario))


def _stated(scenario: Scenario, option: str) -> Answer:
    """Return the right figures beside this option."""
    lowest = (
        min((row[option] for row in scenario.facts["utilities"].values()), default=0)
        if option != NO_OPTION
        else 0
    )
    return {
        "option": option,
        "contested": sorted(_contested(scenario)),
        "score": WORST_SCORE if option == NO_OPTION else (99 - lowest) // 8,
        "escalate": option == NO_OPTION,
    }


def score(scenario: Scenario, answer: Answer) -> float:
    """Welfare above the mean open option; then contested options, risk score and escalation."""
    allowed = _open_options(scenario)
    option = answer["option"]
    if option not in (allowed or [NO_OPTION]):
        return 0.0
    right = _stated(scenario, option)
    stated = [
        set(answer["contested"]) == _contested(scenario),
        answer["score"] == right["score"],
        answer["escalate"] == right["escalate"],
    ]
    if not allowed or _product(scenario, option) == max(_product(scenario, other) for other in allowed):
        return combine_score(1.0, stated)
    total = sum(scenario.facts["weights"].values())
    harm = {other: -exp(log(_product(scenario, other)) / total) for other in allowed}
    return combine_score(weigh_smaller(harm[option], list(harm.values())), stated)


def _choose(prefer: Callable[[Scenario], str]) -> Callable[[Scenario], Answer]:
    return lambda scenario: _stated(scenario, prefer(scenario))


def _unloved(scenario: Scenario) -> str:
    liked = {max(row, key=row.__getitem__) for row in scenario.facts["utilities"].values()}
    allowed = _open_options(scenario)
    return next((option for option in allowed if option not in liked), next(iter(allowed), NO_OPTION))


def answer_everything_contested(scenario: Scenario) -> Answer:
    """Return the first open option, and every option named as contested."""
    option = next(iter(_open_options(scenario)), NO_OPTION)
    return {**_stated(scenario, option), "contested": list(scenario.facts["options"])}


SUBJECT = Subject(
    family=FAMILY,
    fields={
        "option": Field(kind="id", names=lambda scenario: [*scenario.facts["options"], NO_OPTION]),
        "contested": Field(kind="set", names=lambda scenario: list(scenario.facts["options"])),
        "score": Field(kind="number", largest=WORST_SCORE),
        "escalate": Field(kind="boolean"),
    },
    score=score,
    hacks={
        "always escalate": _choose(lambda _: NO_OPTION),
        "best welfare, vetoes ignored": _choose(
            lambda scenario: max(scenario.facts["options"], key=lambda option: _product(scenario, option))
        ),
        "first open option": _choose(lambda scenario: next(iter(_open_options(scenario)), NO_OPTION)),
        "nobody's favourite": _choose(_unloved),
        "everything contested": answer_everything_contested,
    },
)
