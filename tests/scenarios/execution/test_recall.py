"""Recall of a company's closed cases: what it teaches; the best policy with it beats the best without."""

import math
from collections.abc import Callable, Mapping
from itertools import count, islice
from statistics import fmean, stdev

import pytest
from recall import (
    Beliefs,
    believe_average,
    believe_nothing,
    imagine,
    learn,
    play_sequence,
)

from scenarios.company.records import CompanyCase
from scenarios.company.setting import draw_setting
from scenarios.execution import (
    ActualEffect,
    apply_traits,
    draw_traits,
    draw_world,
    find_company,
    list_companies,
)
from scenarios.team import TeamScenario, generate

DIFFICULTY, NUM_CASES = 4, 5
NUM_CHOSEN_BY, NUM_COMPANIES = 12, 40  # companies that policies are chosen by, and compared on
HABITS = ("fair", "strict", "easy", "measured")
EXPECTATIONS: Mapping[str, Callable[[CompanyCase], Beliefs]] = {
    "as stated": believe_nothing,
    "average": believe_average,
}


def draw_sequence(company: str, seed: int) -> list[TeamScenario]:
    settings = ((index, draw_setting("test", seed, index, DIFFICULTY)) for index in count())
    indices = (index for index, setting in settings if company in setting.situation)
    return [generate("test", seed, index, DIFFICULTY) for index in islice(indices, NUM_CASES)]


def test_a_sequence_is_one_company_with_one_set_of_traits() -> None:
    cases = draw_sequence("Northbank", seed=0)
    assert {find_company(case.case) for case in cases} == {"Northbank"}
    worlds = [draw_world(case.case, with_traits=True) for case in cases]
    assert len({world.traits for world in worlds}) == 1
    assert len({case.key for case in cases}) == NUM_CASES


def test_beliefs_are_the_mean_of_what_was_seen_of_a_group() -> None:
    seen = [
        ActualEffect(seat="coo", upgrade="contractor transfer", stated="13 days", actual="19 days", lost=75),
        ActualEffect(seat="coo", upgrade="contractor trial", stated="4 days", actual="6 days", lost=65),
        ActualEffect(seat="risk", upgrade="mail filter", stated="x", actual="y", lost=100),
    ]
    beliefs = learn({("coo", "contractor"): 20, ("cto", "faster"): 20}, seen)
    assert beliefs == {("coo", "contractor"): 70, ("cto", "faster"): 20, ("risk", "mail filter"): 100}


def test_whoever_knows_the_traits_imagines_the_company_as_it_is() -> None:
    case = draw_sequence("Northbank", seed=0)[0].case
    traits = draw_traits(0, "Northbank", case.sector)
    assert traits
    known = {(trait.seat, trait.group): trait.loss for trait in traits}
    assert imagine(case, known).parts == apply_traits(case, traits).parts
    assert imagine(case, {}).parts == case.parts


@pytest.mark.slow
def test_the_best_policy_with_recall_beats_the_best_without() -> None:
    """Policies are habit and expectation; the best of either arm is chosen on other cases."""
    companies = list_companies()
    chosen = {
        has_recall: max(
            ((habit, name) for habit in HABITS for name in EXPECTATIONS),
            key=lambda policy: fmean(
                value
                for company in companies[:NUM_CHOSEN_BY]
                for value in play(company, 1, *policy, has_recall=has_recall)
            ),
        )
        for has_recall in (False, True)
    }
    pairs = [
        (
            fmean(play(company, 0, *chosen[False], has_recall=False)),
            fmean(play(company, 0, *chosen[True], has_recall=True)),
        )
        for company in companies[:NUM_COMPANIES]
    ]
    gains = [with_recall - without for without, with_recall in pairs]
    half = 1.96 * stdev(gains) / math.sqrt(len(gains))
    print(
        f"recall: {fmean(b for _, b in pairs):.3f} by {chosen[True]} against "
        f"{fmean(a for a, _ in pairs):.3f} by {chosen[False]}, "
        f"gain {fmean(gains):+.3f} [{fmean(gains) - half:.3f}, {fmean(gains) + half:.3f}] "
        f"over {len(gains)} companies of {NUM_CASES} cases"
    )
    assert fmean(gains) - half > 0


def play(company: str, seed: int, habit: str, expectation: str, *, has_recall: bool) -> list[float]:
    key = (company, seed)
    if key not in SEQUENCES:
        SEQUENCES[key] = draw_sequence(company, seed)
    return play_sequence(
        SEQUENCES[key],
        habit=habit,
        funding="exact",
        believe=EXPECTATIONS[expectation],
        has_recall=has_recall,
        world=seed,
    )


SEQUENCES: dict[tuple[str, int], list[TeamScenario]] = {}
