"""Solvers that read the text of a case alone, and import nothing of the oracles, find the same answers."""

import pytest

from benchmarks.scenarios.from_words import MISREAD, list_mismatches
from scenarios.tasks.registry import JOBS, TASK_FAMILIES


@pytest.mark.parametrize("name", MISREAD)
def test_text_alone_gives_the_oracles_answer(name: str) -> None:
    assert list(list_mismatches(name, 40, seed=11)) == []


@pytest.mark.parametrize("name", MISREAD)
def test_a_rule_that_is_misread_is_noticed(name: str) -> None:
    assert list(list_mismatches(name, 60, seed=11, misread=True)) != []


@pytest.mark.parametrize("name", JOBS)
def test_the_second_method_agrees_in_the_wording_that_no_other_split_has(name: str) -> None:
    for index in range(5):
        case = TASK_FAMILIES[name].generate("test-new-sectors", 11, index, 1 + index)
        value, second = TASK_FAMILIES[name].certify(case)
        assert value == second, case.key


@pytest.mark.slow
@pytest.mark.parametrize("name", MISREAD)
def test_text_alone_gives_the_oracles_answer_in_a_thousand_cases(name: str) -> None:
    assert list(list_mismatches(name, 1000, seed=12)) == []
