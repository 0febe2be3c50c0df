"""When two scenarios are one: names, sector and order do not count; figures, and who has which, do."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scenarios.base import SPLITS, Scenario
from scenarios.normal_form import LABEL, compute_similarity, list_records, normal_form
from scenarios.registry import FAMILIES
from training.data.demonstrations import difficulty_of
from training.data.folders.near_duplicates import LEAST_SIMILARITY, RepeatFilter, compute_fingerprint
from training.data.folders.rows import Case, generate_case

BASE = FAMILIES["coo"].generate("train", 0, 0, 1)


def make_case(facts: Mapping[str, Any], brief: str = "Bank case.") -> Scenario:
    return replace(BASE, facts=facts, brief=brief)


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """The same facts with other labels, everything listed in another order."""
    if isinstance(value, Mapping):
        pairs = [(names.get(key, key), rename(inner, names)) for key, inner in value.items()]
        return dict(reversed(pairs))
    if isinstance(value, list):
        return [rename(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("difficulty", [1, 2, 5, 8])
def test_other_names_order_and_sector_give_the_same_normal_form(family: str, difficulty: int) -> None:
    for index in range(5):
        case = FAMILIES[family].generate("train", 0, index, difficulty)
        labels = sorted({word for word in LABEL.findall(str(case.facts)) if f"'{word}'" in str(case.facts)})
        shuffled = random.Random(index).sample(labels, len(labels))
        names = dict(zip(labels, shuffled, strict=True))
        sector, rest = case.brief.split(" ", 1)
        words = [names.get(word, word) for word in rest.replace(".", " .").replace("\n", " \n ").split(" ")]
        other = replace(
            case,
            facts=rename(case.facts, names),
            brief=f"{'Bank' if sector == 'Retail' else 'Retail'} {' '.join(words)}",
        )
        assert normal_form(other) == normal_form(case)


def test_who_has_which_figure_counts() -> None:
    one = make_case({"hours": {"P1": {"A": 3, "B": 5}, "P2": {"A": 4, "B": 6}}})
    same = make_case({"hours": {"P2": {"B": 3, "A": 5}, "P1": {"B": 4, "A": 6}}})
    crossed = make_case({"hours": {"P1": {"A": 3, "B": 5}, "P2": {"A": 6, "B": 4}}})
    other = make_case({"hours": {"P1": {"A": 3, "B": 5}, "P2": {"A": 4, "B": 7}}})
    assert normal_form(one) == normal_form(same)
    assert len({normal_form(case) for case in (one, crossed, other)}) == 3


def test_direction_of_edges_and_what_an_index_points_at_count() -> None:
    edges = [["a1", "A", 70], ["b1", "B", 80]]
    facts = {"edges": edges, "controls": {"K1": {"edge": 0, "cost": 5}}, "impacts": {"A": 40, "B": 60}}
    one = make_case(facts)
    listed_otherwise = make_case({**facts, "edges": edges[::-1], "controls": {"K1": {"edge": 1, "cost": 5}}})
    other_target = make_case({**facts, "controls": {"K1": {"edge": 1, "cost": 5}}})
    turned = make_case({**facts, "edges": [["A", "a1", 70], edges[1]]})
    assert normal_form(one) == normal_form(listed_otherwise)
    assert len({normal_form(case) for case in (one, other_target, turned)}) == 3


def test_figures_in_the_brief_alone_tell_cases_apart() -> None:
    assert normal_form(make_case({}, "Bank case. A 4 B 6.")) == normal_form(
        make_case({}, "Retail case. B 6 A 4.")
    )
    assert normal_form(make_case({}, "Bank case. A 4 B 6.")) != normal_form(
        make_case({}, "Bank case. A 4 B 7.")
    )


def change_figures(case: Scenario, count: int) -> Scenario:
    """`count` components of an architecture get one figure each that nobody has."""
    facts: dict[str, Any] = {**case.facts, "architectures": {}}
    for option, architecture in case.facts["architectures"].items():
        components = {}
        for name, part in architecture["components"].items():
            components[name] = {**part, "cost": 1000 + count} if count > 0 else part
            count -= 1
        facts["architectures"][option] = {**architecture, "components": components}
    return replace(case, facts=facts)


def find_repeats(cases: list[Case]) -> list[str | None]:
    repeats = RepeatFilter(cases.__getitem__)
    return [repeats.find_repeat(index, compute_fingerprint(case)) for index, case in enumerate(cases)]


def test_a_tenth_of_the_records_is_the_border_of_near() -> None:
    case = FAMILIES["cto"].generate("train", 0, 1, 8)
    num_records = len(list_records(case))
    num_most = int(num_records * (1 - LEAST_SIMILARITY) / (1 + LEAST_SIMILARITY))  # changed ones count twice
    within, beyond = change_figures(case, num_most), change_figures(case, num_most + 2)
    assert compute_similarity(list_records(case), list_records(within)) >= LEAST_SIMILARITY
    assert compute_similarity(list_records(case), list_records(beyond)) < LEAST_SIMILARITY
    assert find_repeats([case, case]) == [None, "exact"]
    assert find_repeats([case, change_figures(case, 1)]) == [None, "near"]
    assert find_repeats([case, beyond]) == [None, None]
    assert find_repeats([beyond, case, within]) == [None, None, "near"]


def change_first_figure(value: Any) -> tuple[Any, bool]:
    """The same facts with their first number one higher, and whether there is one."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for place, inner in pairs:
        changed, is_changed = (inner + 1, True) if type(inner) is int else (inner, False)
        if isinstance(inner, Mapping | list):
            changed, is_changed = change_first_figure(inner)
        if is_changed:
            others = dict(value) if isinstance(value, Mapping) else list(value)
            others[place] = changed
            return others, True
    return value, False


@pytest.mark.parametrize("family", ["coo", "risk", "cost", "reconcile"])
def test_one_other_figure_makes_another_case_where_cases_are_short(family: str) -> None:
    for index in range(10):
        case = FAMILIES[family].generate("train", 0, index, 1)
        facts, is_changed = change_first_figure(case.facts)
        assert is_changed
        assert find_repeats([case, replace(case, facts=facts)]) == [None, None]


@pytest.mark.parametrize("family", [*FAMILIES, "team"])
def test_no_scenario_is_shared_between_splits_or_seeds(family: str) -> None:
    seen: dict[str, str] = {}
    for split, seed in itertools.product(SPLITS, (0, 1)):
        for index in range(100):
            case = generate_case(family, split, seed, index, difficulty_of(index, (1, 2)))  # type: ignore[arg-type]
            stream = f"{split}/{seed}"
            assert seen.setdefault(normal_form(case), stream) == stream
    assert len(seen) == 6 * 100
